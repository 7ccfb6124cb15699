/**
 * A row's constraint on the engine thread: knows what was committed, so that the place in the grammar can be found again
 * in a new worker, and asks the worker for everything else. What was committed travels with the next question.
 */
import { ConstraintError, type ConstraintStats, type MaskRows, type RowConstraint } from "../../decoding/constraint.ts";
import type { GrammarEntry } from "./grammar-entry.ts";
import type { RowOpening } from "./messages.ts";
import type { GrammarMeter } from "./metrics.ts";
import { LostWorker, OP_FORCED, OP_MASKS, ROWS_MAX } from "./shared-block.ts";

/** Losses of the worker within one question: a grammar is given up at its second, others may die beside it. */
const ATTEMPTS_MAX = 4;

export interface BoundRowOptions {
  readonly eosIds: readonly number[];
  readonly vocabSize: number;
  /** The grammar was compiled before this row asked for it. */
  readonly cached: boolean;
  readonly meter: GrammarMeter;
}

export class BoundRow implements RowConstraint {
  private readonly accepted: number[] = [];
  /** Of `accepted`, how many the worker knows. */
  private told = 0;
  private over = false;
  private failure: string | null = null;
  private maskedRows = 0;
  private cutDrafts = 0;
  private maskMs = 0;
  private readonly width: number;

  constructor(
    readonly id: number,
    readonly entry: GrammarEntry,
    private readonly options: BoundRowOptions,
  ) {
    this.width = Math.ceil(options.vocabSize / 32);
    entry.rows.add(this);
    entry.home.open(this);
  }

  /** What a new worker needs to go on with this row. */
  opening(): RowOpening {
    this.told = this.accepted.length;
    return { row: this.id, key: this.entry.key, eosIds: this.options.eosIds, accepted: [...this.accepted] };
  }

  fail(why: string): void {
    this.failure ??= why;
  }

  get ended(): boolean {
    return this.over;
  }

  masks(draft: readonly number[]): MaskRows {
    const started = performance.now();
    const { width } = this;
    let kept = this.ask(OP_MASKS, draft, 0);
    this.maskMs += performance.now() - started;
    if (kept < draft.length) this.cutDrafts++;
    return {
      kept,
      width,
      words: () => {
        const begun = performance.now();
        const words = new Uint32Array((kept + 1) * width);
        for (let from = 0; from <= kept; from += ROWS_MAX) {
          const rows = Math.min(ROWS_MAX, kept + 1 - from);
          const legal = draft.slice(0, kept);
          if (from > 0) kept = this.ask(OP_MASKS, legal, from);
          words.set(
            this.read(
              () => this.entry.home.masks(rows, this),
              () => this.ask(OP_MASKS, legal, from),
            ),
            from * width,
          );
        }
        this.tellDeadEnd(words);
        this.maskedRows += kept + 1;
        const ms = performance.now() - begun;
        this.maskMs += ms;
        this.options.meter.masked(ms);
        return words;
      },
    };
  }

  commit(ids: readonly number[]): void {
    this.alive();
    for (const id of ids) {
      if (this.over)
        throw new ConstraintError("internal", "a token was committed behind the end of a constrained text");
      if (this.options.eosIds.includes(id)) this.over = true;
      else this.accepted.push(id);
    }
  }

  forced(): readonly number[] {
    if (this.over) return [];
    let count = this.ask(OP_FORCED, [], 0);
    return this.read(
      () => this.entry.home.forced(count, this),
      () => {
        count = this.ask(OP_FORCED, [], 0);
      },
    );
  }

  stats(): ConstraintStats {
    const { compileMs } = this.entry;
    const { maskedRows, cutDrafts, maskMs } = this;
    return { compileMs, cached: this.options.cached, maskedRows, cutDrafts, maskMs };
  }

  [Symbol.dispose](): void {
    this.entry.rows.delete(this);
    this.entry.home.close(this);
    this.failure ??= "the row has ended";
  }

  /** The first answer to a question. */
  private ask(op: number, draft: readonly number[], from: number): number {
    for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
      this.alive();
      const commits = this.accepted.slice(this.told);
      try {
        const answer = this.entry.home.call({ op, row: this.id, commits, draft, from }, this);
        this.told = this.accepted.length;
        return answer;
      } catch (error) {
        if (!(error instanceof LostWorker)) throw error;
      }
    }
    throw new ConstraintError("internal", "grammar engine failed");
  }

  /** The second answer; `again` asks the question anew in a new worker. */
  private read<T>(answer: () => T, again: () => unknown): T {
    for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
      this.alive();
      try {
        return answer();
      } catch (error) {
        if (!(error instanceof LostWorker)) throw error;
        this.alive();
        again();
      }
    }
    throw new ConstraintError("internal", "grammar engine failed");
  }

  private alive(): void {
    if (this.failure !== null) throw new ConstraintError("internal", this.failure);
  }

  /** Where the committed text cannot go on, the row is about to fail. Drafts that lead there are decoding's matter. */
  private tellDeadEnd(words: Uint32Array): void {
    if (words.subarray(0, this.width).some((word) => word !== 0)) return;
    console.error(`no legal token in a text of the grammar\n${this.entry.source.ebnf}`);
  }
}
