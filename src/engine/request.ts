/** A request on its way through the engine: waiting, then a row, then its statistics. */
import type { Row } from "../decoding/row.ts";
import type { GenerateRequest, RequestStats } from "./protocol.ts";

export class ActiveRequest {
  row: Row | null = null;
  cancelled = false;
  private readonly queuedAt = performance.now();
  private startedAt: number | null = null;
  private firstTokenAt: number | null = null;
  /** Forwards of the target that this request took part in and that were settled. */
  forwards = 0;

  constructor(readonly request: GenerateRequest) {}

  get id(): string {
    return this.request.id;
  }

  /** Leaves the queue. */
  start(row: Row): void {
    this.row = row;
    this.startedAt = performance.now();
  }

  firstToken(): void {
    this.firstTokenAt ??= performance.now();
  }

  /** Seconds are those of the engine thread; queueing counts neither as prefill nor as decode. */
  stats(): RequestStats {
    const now = performance.now();
    const started = this.startedAt ?? now;
    const first = this.firstTokenAt ?? now;
    const seconds = (ms: number) => ms / 1000;
    return {
      mode: "baseline",
      seed: String(this.row?.sampler.seed ?? this.request.sampling.seed ?? "0"),
      promptTokens: this.request.promptIds.length,
      cachedTokens: 0,
      completionTokens: this.row?.committed ?? 0,
      rounds: this.row?.committed ?? 0,
      drafted: 0,
      accepted: 0,
      lookupRounds: 0,
      targetForwards: this.forwards,
      cap: null,
      queueSeconds: seconds(started - this.queuedAt),
      prefillSeconds: seconds(first - started),
      decodeSeconds: seconds(now - first),
      ttftSeconds: seconds(first - started),
    };
  }
}
