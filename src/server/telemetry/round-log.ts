/**
 * The last rounds of all rows, and what all rounds so far say of drafting (admin-metrics.md §4). Sum of `committed` plus
 * one first token a row is the number of completion tokens: the first belongs to the prompt's forward, not to a round.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import { byNumber, count, modeSchema, orNull, roundSource } from "../openapi/schemas.ts";

export const roundSchema = t.Object(
  {
    req: t.String({ description: "Request that the row belongs to, 8 hex digits." }),
    mode: modeSchema,
    i: t.Integer({ description: "Round of the row, from 0." }),
    drafted: count,
    accepted: count,
    committed: count,
    cap: orNull(count),
    source: roundSource,
    ms: t.Number(),
    row: t.Integer({ description: "Row of the request, from 0." }),
    R: t.Integer({ description: "Rows computed together." }),
    seq: t.Integer({ description: "Count of all rounds." }),
    t: t.Number({ description: "Milliseconds since the server started." }),
  },
  { $id: "Round" },
);

export const roundStatsSchema = t.Object(
  {
    rounds: count,
    committed_tokens: count,
    mean_accept_len: t.Number(),
    draft_acceptance: orNull(t.Number()),
    lookup_rounds: count,
    position_acceptance: t.Array(t.Number({ description: "Accepted at this place of a draft, of those offered." })),
    position_offered: t.Array(count),
    accept_histogram: byNumber(count),
  },
  { $id: "RoundStats" },
);

export type RoundRecord = Readonly<Static<typeof roundSchema>>;
export type RoundStats = Static<typeof roundStatsSchema>;

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
