/** A request on its way through the engine: waiting, then a row, then its statistics. */
import type { DraftSource } from "../decoding/round.ts";
import type { Row } from "../decoding/row.ts";
import type { GenerateRequest, ModelInfo, RequestStats } from "./protocol.ts";

export class ActiveRequest {
  row: Row | null = null;
  cancelled = false;
  private readonly queuedAt = performance.now();
  private startedAt: number | null = null;
  private firstTokenAt: number | null = null;
  /** Forwards of the target that this request took part in and that were settled. */
  forwards = 0;
  private readonly acceptLengths: number[] = [];
  private drafted = 0;
  private accepted = 0;
  private lookupRounds = 0;
  private plainRounds = 0;

  constructor(readonly request: GenerateRequest) {}

  get id(): string {
    return this.request.id;
  }

  /** Leaves the queue. */
  start(row: Row): void {
    this.row = row;
    this.startedAt = performance.now();
  }

  /** The prompt's end: it belongs to no round. */
  firstToken(): void {
    this.firstTokenAt ??= performance.now();
  }

  /** After the first token: what one round or plain step has committed. */
  round(committed: number, source: DraftSource, drafted: number, accepted: number): void {
    this.acceptLengths.push(committed);
    this.drafted += drafted;
    this.accepted += accepted;
    if (source === "lookup") this.lookupRounds++;
    if (source === "plain") this.plainRounds++;
  }

  /** Seconds are those of the engine thread; queueing counts neither as prefill nor as decode. */
  stats(mode: ModelInfo["mode"], cap: number | null): RequestStats {
    const now = performance.now();
    const started = this.startedAt ?? now;
    const first = this.firstTokenAt ?? now;
    const seconds = (ms: number) => ms / 1000;
    return {
      mode,
      seed: String(this.row?.sampler.seed ?? this.request.sampling.seed ?? "0"),
      promptTokens: this.request.promptIds.length,
      cachedTokens: 0,
      completionTokens: this.row?.committed ?? 0,
      rounds: this.acceptLengths.length,
      acceptLengths: this.acceptLengths,
      drafted: this.drafted,
      accepted: this.accepted,
      lookupRounds: this.lookupRounds,
      parkedRounds: mode === "baseline" ? 0 : this.plainRounds,
      targetForwards: this.forwards,
      cap,
      queueSeconds: seconds(started - this.queuedAt),
      prefillSeconds: seconds(first - started),
      decodeSeconds: seconds(now - first),
      ttftSeconds: seconds(first - started),
    };
  }
}
