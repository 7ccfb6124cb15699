/**
 * The last rounds of all rows, and what all rounds so far say of drafting (admin-metrics.md §4). Sum of `committed` plus
 * one first token a row is the number of completion tokens: the first belongs to the prompt's forward, not to a round.
 */
import type { ModelInfo, RoundInfo } from "../../engine/protocol.ts";

export interface RoundRecord {
  /** Request that the row belongs to, 8 hex digits. */
  readonly req: string;
  readonly mode: ModelInfo["mode"];
  /** Round of the row, from 0. */
  readonly i: number;
  readonly drafted: number;
  readonly accepted: number;
  readonly committed: number;
  readonly cap: number | null;
  readonly source: RoundInfo["source"];
  readonly ms: number;
  /** Row of the request, from 0. */
  readonly row: number;
  /** Rows computed together. */
  readonly R: number;
  /** Count of all rounds. */
  readonly seq: number;
  /** Milliseconds since the server started. */
  readonly t: number;
}

export interface RoundStats {
  readonly rounds: number;
  readonly committed_tokens: number;
  readonly mean_accept_len: number;
  readonly draft_acceptance: number | null;
  readonly lookup_rounds: number;
  readonly position_acceptance: readonly number[];
  readonly position_offered: readonly number[];
  readonly accept_histogram: Readonly<Record<string, number>>;
}

/** memory.md §10. */
const KEPT_MAX = 512;

export class RoundLog {
  private readonly ring: RoundRecord[] = [];
  private seq = 0;
  private committed = 0;
  private drafted = 0;
  private accepted = 0;
  private lookupRounds = 0;
  private readonly offeredAt: number[] = [];
  private readonly acceptedAt: number[] = [];
  private readonly lengths: number[] = [];

  constructor(private readonly startedAt = performance.now()) {}

  /** Milliseconds since the server started, as in the records. */
  now(): number {
    return Math.round(performance.now() - this.startedAt);
  }

  /** Number of the next round. */
  get next(): number {
    return this.seq;
  }

  /** @param round whole, with `next` and `now`: each token passes here, and copies would show */
  record(round: RoundRecord): void {
    this.ring[this.seq % KEPT_MAX] = round;
    this.seq += 1;
    this.count(round);
  }

  private count({ drafted, accepted, committed, source }: RoundRecord): void {
    this.committed += committed;
    this.drafted += drafted;
    this.accepted += accepted;
    if (source === "lookup") this.lookupRounds += 1;
    for (let at = 0; at < drafted; at++) {
      this.offeredAt[at] = (this.offeredAt[at] ?? 0) + 1;
      this.acceptedAt[at] = (this.acceptedAt[at] ?? 0) + (accepted > at ? 1 : 0);
    }
    this.lengths[committed] = (this.lengths[committed] ?? 0) + 1;
  }

  /** The newest `limit` rounds, oldest first. */
  last(limit: number): RoundRecord[] {
    const count = Math.min(limit, this.ring.length);
    return Array.from({ length: count }, (_, i) => this.ring[(this.seq - count + i) % KEPT_MAX]).filter(
      (record) => record !== undefined,
    );
  }

  stats(): RoundStats {
    return {
      rounds: this.seq,
      committed_tokens: this.committed,
      mean_accept_len: this.seq > 0 ? rounded(this.committed / this.seq, 3) : 0,
      draft_acceptance: this.drafted > 0 ? rounded(this.accepted / this.drafted, 4) : null,
      lookup_rounds: this.lookupRounds,
      position_acceptance: this.offeredAt.map((offered, at) => rounded((this.acceptedAt[at] ?? 0) / offered, 4)),
      position_offered: [...this.offeredAt],
      accept_histogram: Object.fromEntries(this.lengths.flatMap((count, length) => [[String(length), count]])),
    };
  }
}

export function rounded(value: number, digits: number): number {
  const scale = 10 ** digits;
  return Math.round(value * scale) / scale;
}
