/**
 * A grammar that begins behind the model's thoughts (structured-output.md §5): free inside them, but for the end of the
 * text; bound behind the token that closes them. A family that opens its thoughts itself may also begin with the answer.
 * The state follows committed tokens; along a draft it is walked, and masks behind a closer are those of the grammar's
 * beginning. Every mask depends on the prefix alone.
 */
import type { ConstraintStart, ConstraintStats, MaskRows, RowConstraint } from "./constraint.ts";

/** Tokens that are left for the answer at least (structured-output.md §5): at the budget's end thoughts are closed. */
const ANSWER_MIN = 64;

export interface ReasoningLimits {
  readonly eosIds: readonly number[];
  /** Completion tokens at most. */
  readonly maxNewTokens: number;
  /** Tokens that logits are for. */
  readonly vocab: number;
}

/** The row's constraint from its first token on. @param bound at the grammar's beginning; owned by the result */
export function startingAt(start: ConstraintStart, bound: RowConstraint, limits: ReasoningLimits): RowConstraint {
  if (start.kind === "at_once" || (!start.inside && start.openerId === null)) return bound;
  return new AfterReasoning(start, bound, limits);
}

type Phase = "before" | "thoughts" | "bound";

class AfterReasoning implements RowConstraint {
  private phase: Phase;
  /** Completion tokens so far. */
  private length = 0;
  private readonly openerId: number;
  private readonly closerId: number;
  private readonly eos: ReadonlySet<number>;
  /** Places from which on thoughts can only be closed. */
  private readonly budget: number;
  private readonly width: number;

  constructor(
    { inside, openerId, closerId }: Extract<ConstraintStart, { kind: "after_reasoning" }>,
    private readonly inner: RowConstraint,
    limits: ReasoningLimits,
  ) {
    this.phase = inside ? "thoughts" : "before";
    this.openerId = openerId ?? -1;
    this.closerId = closerId;
    this.eos = new Set(limits.eosIds);
    this.budget = Math.max(0, limits.maxNewTokens - ANSWER_MIN);
    this.width = Math.ceil(limits.vocab / 32);
  }

  get ended(): boolean {
    return this.inner.ended;
  }

  masks(draft: readonly number[]): MaskRows {
    if (this.phase === "bound") return this.inner.masks(draft);
    const opens = this.phase === "before";
    if (opens && draft.length > 0 && draft[0] !== this.openerId) {
      const answer = this.inner.masks(draft);
      return { kept: answer.kept, width: answer.width, words: () => this.orOpener(answer.words()) };
    }
    const from = opens ? 1 : 0;
    const { kept, closed } = this.walk(draft, from);
    // The row before an opener and the rows behind a closer are the grammar's: both begin where it begins.
    const answer = closed || opens ? this.inner.masks(closed ? draft.slice(kept) : []) : null;
    const total = kept + (closed && answer !== null ? answer.kept : 0);
    return { kept: total, width: this.width, words: () => this.rows(from, kept, closed, answer) };
  }

  /** Legal drafts in the thoughts from place `from` on, up to a closer. */
  private walk(draft: readonly number[], from: number): { kept: number; closed: boolean } {
    for (let at = from; at < draft.length; at++) {
      const id = draft[at] as number;
      if (id === this.closerId) return { kept: at + 1, closed: true };
      if (this.eos.has(id) || this.length + at >= this.budget) return { kept: at, closed: false };
    }
    return { kept: draft.length, closed: false };
  }

  private rows(from: number, kept: number, closed: boolean, answer: MaskRows | null): Uint32Array {
    const { width } = this;
    const tail = answer?.words() ?? new Uint32Array(0);
    const thoughts = closed ? kept : kept + 1;
    const own = Math.min(answer?.width ?? width, width);
    const tailRows = closed && answer !== null ? answer.kept + 1 : 0;
    const words = new Uint32Array((thoughts + tailRows) * width);
    for (let row = 0; row < thoughts; row++) {
      const at = words.subarray(row * width, (row + 1) * width);
      if (row < from) at.set(tail.subarray(0, own));
      else this.fillThought(at, this.length + row);
    }
    if (from > 0) set(words, this.openerId);
    for (let row = 0; row < tailRows; row++) {
      const source = row * (answer?.width ?? 0);
      words.set(tail.subarray(source, source + own), (thoughts + row) * width);
    }
    return words;
  }

  /** Anything but the end; only the closer once the budget is spent. */
  private fillThought(words: Uint32Array, place: number): void {
    if (place >= this.budget) {
      set(words, this.closerId);
      return;
    }
    words.fill(0xffffffff);
    for (const id of this.eos) words[id >> 5] = (words[id >> 5] ?? 0) & ~(1 << (id & 31));
  }

  private orOpener(words: Uint32Array): Uint32Array {
    set(words, this.openerId);
    return words;
  }

  commit(ids: readonly number[]): void {
    let at = 0;
    for (; at < ids.length && this.phase !== "bound"; at++) {
      const id = ids[at];
      if (this.phase === "before") {
        this.phase = id === this.openerId ? "thoughts" : "bound";
        if (this.phase === "bound") break;
      } else if (id === this.closerId) this.phase = "bound";
    }
    this.length += ids.length;
    if (at < ids.length) this.inner.commit(ids.slice(at));
  }

  forced(): readonly number[] {
    if (this.phase === "bound") return this.inner.forced();
    return this.phase === "thoughts" && this.length >= this.budget ? [this.closerId] : [];
  }

  stats(): ConstraintStats {
    return this.inner.stats();
  }

  [Symbol.dispose](): void {
    this.inner[Symbol.dispose]();
  }
}

function set(words: Uint32Array, id: number): void {
  if (id >= 0 && id >> 5 < words.length) words[id >> 5] = (words[id >> 5] ?? 0) | (1 << (id & 31));
}
