/**
 * Follows one request through the engine's events of its rows and the events of its choices. It only listens: nothing
 * is held back, reordered or changed, and each event costs a few additions.
 */
import type { EventSource, GenerateEvent } from "../../engine/client.ts";
import type { ModelInfo, RequestStats, RoundInfo, TokenEvent } from "../../engine/protocol.ts";
import type { ChoiceEvent } from "../generation/events.ts";
import type { GenerationJob } from "../generation/job.ts";
import type { Api, Outcome } from "./feed.ts";
import { listened } from "./listened.ts";
import type { Counter } from "./series.ts";
import type { Telemetry } from "./telemetry.ts";

interface SourceCounters {
  readonly rounds: Counter;
  readonly drafted: Counter;
  readonly accepted: Counter;
}

export class RequestWatch {
  private readonly startedAt = performance.now();
  private readonly labels: { readonly model: string; readonly mode: ModelInfo["mode"] };
  private outcome: Outcome | null = null;
  private reasoningTokens = 0;
  private started = false;
  private shared = false;
  private over = false;

  constructor(
    private readonly telemetry: Telemetry,
    private readonly job: Pick<GenerationJob, "id" | "model" | "rows">,
    private readonly api: Api,
  ) {
    this.labels = { model: job.model.id, mode: job.model.mode };
    this.publish("queued");
  }

  /** The row's events, counted as they pass. */
  row(id: string, events: EventSource<GenerateEvent>): EventSource<GenerateEvent> {
    const { telemetry, labels, job } = this;
    const gap = telemetry.histograms.interToken.of(labels);
    const bySource = new Map<RoundInfo["source"], SourceCounters>();
    const row = job.rows.findIndex(({ request }) => request.id === id);
    let round = 0;
    const req = job.id;
    const { mode } = labels;
    const tokens = ({ ids, round: info }: Omit<TokenEvent, "id">) => {
      if (telemetry.rows.running > 1) this.shared = true;
      if (info === null) return;
      const { source, drafted, accepted, cap, ms } = info;
      const R = telemetry.rows.running;
      const { rounds } = telemetry;
      const committed = ids.length;
      const i = round++;
      const seq = rounds.next;
      const t = rounds.now();
      const record = { req, mode, i, drafted, accepted, committed, cap, source, ms, row, R, seq, t };
      rounds.record(record);
      gap.observe(ms / 1000 / Math.max(1, ids.length), ids.length);
      const counters = bySource.get(source) ?? this.countersOf(source);
      bySource.set(source, counters);
      counters.rounds.value += 1;
      counters.drafted.value += drafted;
      counters.accepted.value += accepted;
      if (telemetry.feed.wanted) telemetry.feed.publish({ name: "round", data: record });
    };
    let began = false;
    let chunks = 0;
    const begin = () => {
      began = true;
      telemetry.rows.running += 1;
      telemetry.rows.peak = Math.max(telemetry.rows.peak, telemetry.rows.running);
      if (telemetry.rows.running === 2) telemetry.sharing.batches += 1;
      if (!this.started) this.publish("started");
      this.started = true;
    };
    return listened(events, {
      value: (event) => {
        if (!began) begin();
        if (event.type === "tokens") tokens(event);
        else if (event.type === "prefill") this.prefill(event.processed, event.total, chunks++);
        else this.rowDone(event.stats);
      },
      end: () => {
        if (began) telemetry.rows.running -= 1;
      },
    });
  }

  private countersOf(source: RoundInfo["source"]): SourceCounters {
    const { rounds, draftTokens, acceptedTokens } = this.telemetry.counters;
    const labels = { ...this.labels, source };
    return { rounds: rounds.of(labels), drafted: draftTokens.of(labels), accepted: acceptedTokens.of(labels) };
  }

  private prefill(processed: number, total: number, chunksBefore: number): void {
    const { feed, rounds } = this.telemetry;
    if (!feed.wanted || (chunksBefore === 0 && processed >= total)) return;
    const { id, model } = this.job;
    const done = processed >= total ? { done: true as const } : {};
    feed.publish({
      name: "prefill",
      data: { type: "prefill", req: id, mode: model.mode, processed, total, t: rounds.now(), ...done },
    });
  }

  private rowDone(stats: RequestStats): void {
    const { counters, histograms } = this.telemetry;
    const { labels } = this;
    counters.promptTokens.of(labels).value += stats.promptTokens;
    counters.cachedTokens.of(labels).value += stats.cachedTokens;
    counters.completionTokens.of(labels).value += stats.completionTokens;
    counters.prefillSeconds.of(labels).value += stats.prefillSeconds;
    counters.decodeSeconds.of(labels).value += stats.decodeSeconds;
    histograms.queue.of({ ...labels, api: this.api }).observe(stats.queueSeconds);
    if (stats.completionTokens > 0) histograms.ttft.of({ ...labels, api: this.api }).observe(stats.ttftSeconds);
    this.telemetry.cap = { cap: stats.cap, acceptance: stats.acceptance };
    this.telemetry.last = {
      contextTokens: stats.promptTokens + stats.completionTokens,
      decodeTps: stats.decodeSeconds > 0 ? stats.completionTokens / stats.decodeSeconds : null,
      acceptLen: stats.rounds > 0 ? stats.acceptLengths.reduce((sum, length) => sum + length, 0) / stats.rounds : null,
    };
  }

  /** The choices' events, counted as they pass. */
  choices(events: AsyncGenerator<ChoiceEvent>): AsyncGenerator<ChoiceEvent> {
    return listened(events, { value: (event) => this.choice(event), error: () => this.failed() });
  }

  choice(event: ChoiceEvent): void {
    if (event.type !== "end") return;
    // Of several choices the last one that was not cut names the request's outcome.
    if (this.outcome === null || event.reason !== "cancelled") this.outcome = event.reason;
    this.reasoningTokens += event.reasoningTokens;
  }

  failed(): void {
    this.outcome = "error";
  }

  /** The request is over, however it ended. Calling it twice is harmless. */
  finish(): void {
    if (this.over) return;
    this.over = true;
    const { counters, histograms, sharing } = this.telemetry;
    const labels = { ...this.labels, api: this.api };
    counters.requests.of({ ...labels, outcome: this.outcome ?? "cancelled" }).value += 1;
    if (this.reasoningTokens > 0) counters.reasoningTokens.of(this.labels).value += this.reasoningTokens;
    histograms.request.of(labels).observe((performance.now() - this.startedAt) / 1000);
    if (this.shared) sharing.batched += 1;
    else sharing.serial += 1;
    this.publish("finished");
  }

  private publish(type: "queued" | "started" | "finished"): void {
    const { feed, rounds } = this.telemetry;
    if (!feed.wanted) return;
    const outcome = type === "finished" ? { outcome: this.outcome ?? "cancelled" } : {};
    feed.publish({ name: "request", data: { type, req: this.job.id, api: this.api, t: rounds.now(), ...outcome } });
  }
}
