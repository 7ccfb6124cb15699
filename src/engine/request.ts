/** A request on its way through the engine: its grammar compiled, waiting, then a row, then its statistics. */
import type { CompiledConstraint } from "../decoding/constraint.ts";
import type { Row } from "../decoding/row.ts";
import type { Speculator } from "../decoding/speculator.ts";
import type { GenerateRequest, GrammarStats, RequestStats, RoundInfo } from "./protocol.ts";

/** Rounds at each end of a request that `decayRatio` compares. */
const DECAY_SPAN = 16;

export class ActiveRequest {
  row: Row | null = null;
  cancelled = false;
  /** Gives up the compilation of the grammar; null while there is none. */
  compiling: (() => void) | null = null;
  /** The grammar, until its row is opened. */
  compiled: CompiledConstraint | null = null;
  private readonly queuedAt = performance.now();
  private startedAt: number | null = null;
  private firstTokenAt: number | null = null;
  private newestAt = 0;
  /** Forwards of the target that this request took part in and that were settled. */
  forwards = 0;
  private readonly acceptLengths: number[] = [];
  private readonly roundMs: number[] = [];
  private drafted = 0;
  private accepted = 0;
  private lookupRounds = 0;
  private forcedTokens = 0;
  private plainRounds = 0;

  /** @param policy how the row drafts; null: plain steps */
  constructor(
    readonly request: GenerateRequest,
    readonly policy: Speculator | null,
  ) {}

  get id(): string {
    return this.request.id;
  }

  /** Leaves the queue. */
  start(row: Row): void {
    this.row = row;
    this.startedAt = performance.now();
  }

  /** Gives back what the request holds of its grammar. */
  dropGrammar(): void {
    this.compiling?.();
    this.compiling = null;
    this.compiled?.[Symbol.dispose]();
    this.compiled = null;
  }

  /** The prompt's end: it belongs to no round. */
  firstToken(): void {
    this.newestAt = performance.now();
    this.firstTokenAt ??= this.newestAt;
  }

  /** After the first token: one round or plain step. */
  round(source: RoundInfo["source"], drafted: number, accepted: number): RoundInfo {
    const now = performance.now();
    const ms = now - this.newestAt;
    this.newestAt = now;
    this.acceptLengths.push(accepted + 1);
    this.roundMs.push(ms);
    this.drafted += drafted;
    this.accepted += accepted;
    if (source === "lookup") this.lookupRounds++;
    if (source === "forced") this.forcedTokens += accepted;
    if (source === "plain") this.plainRounds++;
    return { source, drafted, accepted, cap: this.policy?.cap ?? null, ms };
  }

  /** Seconds are those of the engine thread; queueing counts neither as prefill nor as decode. */
  stats(): RequestStats {
    const { policy } = this;
    const now = performance.now();
    const started = this.startedAt ?? now;
    const first = this.firstTokenAt ?? now;
    const seconds = (ms: number) => ms / 1000;
    return {
      mode: policy?.mode ?? "baseline",
      seed: String(this.row?.sampler.seed ?? this.request.sampling.seed ?? "0"),
      promptTokens: this.request.promptIds.length,
      cachedTokens: 0,
      completionTokens: this.row?.committed ?? 0,
      rounds: this.acceptLengths.length,
      acceptLengths: this.acceptLengths,
      drafted: this.drafted,
      accepted: this.accepted,
      lookupRounds: this.lookupRounds,
      parkedRounds: policy === null ? 0 : this.plainRounds,
      targetForwards: this.forwards,
      cap: policy?.cap ?? null,
      acceptance: policy?.acceptance ?? null,
      decayRatio: this.decayRatio(),
      queueSeconds: seconds(started - this.queuedAt),
      prefillSeconds: seconds(first - started),
      decodeSeconds: seconds(now - first),
      ttftSeconds: seconds(first - started),
      ...this.grammarStats(),
    };
  }

  private grammarStats(): { readonly grammar?: GrammarStats } {
    const { constraint } = this.request;
    const counted = this.row?.constraint?.stats();
    if (!constraint || counted === undefined) return {};
    const { kind, relaxed } = constraint;
    return { grammar: { kind, ...counted, forcedTokens: this.forcedTokens, relaxed } };
  }

  private decayRatio(): number | null {
    const { acceptLengths, roundMs } = this;
    if (roundMs.length < 2 * DECAY_SPAN) return null;
    const rate = (from: number, to: number) => {
      const total = (values: readonly number[]) => values.slice(from, to).reduce((sum, value) => sum + value, 0);
      return total(acceptLengths) / Math.max(total(roundMs), Number.MIN_VALUE);
    };
    return rate(roundMs.length - DECAY_SPAN, roundMs.length) / rate(1, DECAY_SPAN + 1);
  }
}
