/**
 * One row's place in its grammar: XGrammar's matcher and the counts beside it, moved together. Asked for masks only
 * while it is not at its end, and rolled back only by what was counted here: anything else would abort the instance.
 */
import type { GrammarMatcher } from "@mlc-ai/web-xgrammar";
import type { CounterState, Counters } from "./counters.ts";
import type { TokenFilter } from "./token-filter.ts";

export interface TokenFacts {
  readonly bytes: readonly Uint8Array[];
  readonly filter: TokenFilter;
}

const NO_BYTES = new Uint8Array(0);

export class RowMatcher {
  private state: CounterState | null;

  constructor(
    private readonly matcher: GrammarMatcher,
    private readonly counters: Counters | null,
    private readonly facts: TokenFacts,
  ) {
    this.state = counters?.start ?? null;
  }

  dispose(): void {
    this.matcher.dispose();
  }

  /** @throws RangeError for an id that the grammar denies: the rows of both sides have come apart */
  commit(ids: readonly number[]): void {
    for (const id of ids) {
      const next = this.counted(this.state, id);
      if (next === "over" || !this.matcher.acceptToken(id))
        throw new RangeError(`token ${id} was committed, but is denied`);
      this.state = next;
    }
  }

  /** Drafts before the first illegal one; an EOS counts and is the last. */
  legal(draft: readonly number[]): number {
    let accepted = 0;
    let state = this.state;
    for (const id of draft) {
      const next = this.counted(state, id);
      if (next === "over" || !this.matcher.acceptToken(id)) break;
      accepted++;
      state = next;
      if (this.matcher.isTerminated()) break;
    }
    this.undo(accepted);
    return accepted;
  }

  /** Writes the masks of rows `from` … along a draft that is legal; false: nothing may follow there. */
  async masks(
    draft: readonly number[],
    from: number,
    target: (index: number) => Uint32Array,
    rows: number,
  ): Promise<void> {
    let accepted = 0;
    let state = this.state;
    for (let row = 0; row < from + rows; row++) {
      if (row >= from) await this.mask(state, target(row - from));
      const id = draft[row];
      if (id === undefined) break;
      const next = this.counted(state, id);
      if (next === "over" || !this.matcher.acceptToken(id)) break;
      accepted++;
      state = next;
    }
    this.undo(accepted);
  }

  /** The text that must follow. */
  forced(): string {
    return this.matcher.isTerminated() ? "" : this.matcher.findJumpForwardString();
  }

  private async mask(state: CounterState | null, target: Uint32Array): Promise<void> {
    if (this.matcher.isTerminated()) {
      // Behind an EOS nothing is read.
      target.fill(0xffff_ffff);
      return;
    }
    target.set(await this.matcher.getNextTokenBitmask());
    if (this.counters !== null && state !== null) this.facts.filter.apply(this.counters, state, target);
  }

  private counted(state: CounterState | null, id: number): CounterState | null | "over" {
    if (this.counters === null || state === null) return null;
    return this.counters.advance(state, this.facts.bytes[id] ?? NO_BYTES) ?? "over";
  }

  private undo(count: number): void {
    if (count > 0) this.matcher.rollBack(count);
  }
}
