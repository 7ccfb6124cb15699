/**
 * Takes out of a mask the tokens that would pass a counted limit. Inside a string the characters that a token adds to it
 * are known beforehand, so the masks of tokens that add at most so many are, too; elsewhere only tokens that could pass
 * a limit are followed: those with a comma once an array or object is nearly full, and very long ones.
 */
import type { CounterState, Counters } from "./counters.ts";

/** Rooms below that have masks of their own; above, the few tokens that add more are looked at one by one. */
const ROOMS = 33;
/** No token is known with more commas. Ours: half of the least counted limit. */
const COMMAS_MAX = 32;

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;

export class TokenFilter {
  /** By room: ids of tokens with more commas; within a string only those count that stand behind its end. */
  private readonly outsideStrings: readonly (readonly number[])[];
  private readonly withinStrings: readonly (readonly number[])[];
  /** Characters that each token adds to an open string, before it closes it. */
  private readonly added: readonly number[];
  /** Ids of tokens that add `ROOMS` or more. */
  private readonly longOnes: readonly number[];
  /** Ids of tokens that could hold a whole string of that length. */
  private readonly longWithQuote: readonly number[];
  /** By room: tokens that add no more. */
  private masks: readonly Uint32Array[] | null = null;
  private readonly width: number;

  constructor(private readonly bytes: readonly Uint8Array[]) {
    this.width = Math.ceil(bytes.length / 32);
    this.outsideStrings = idsByRoom(bytes, (token) => token);
    this.withinStrings = idsByRoom(bytes, (token) =>
      token.subarray((token.indexOf(QUOTE) + 1 || token.length + 1) - 1),
    );
    this.added = bytes.map(charactersAdded);
    this.longOnes = idsOf(this.added, (count) => count >= ROOMS);
    this.longWithQuote = idsOf(bytes, (token) => token.length >= ROOMS && token.includes(QUOTE));
  }

  /** Clears bits of `mask` whose token passes a limit from `state`. */
  apply(counters: Counters, state: CounterState, mask: Uint32Array): void {
    if (state.string !== null) this.limitString(counters, state, state.string, mask);
    for (const id of this.longWithQuote) this.check(counters, state, mask, id);
    const byRoom = state.string === null ? this.outsideStrings : this.withinStrings;
    for (const id of byRoom[counters.memberRoom(state)] ?? []) this.check(counters, state, mask, id);
  }

  private limitString(
    counters: Counters,
    state: CounterState,
    { max, length, escape: open }: NonNullable<CounterState["string"]>,
    mask: Uint32Array,
  ): void {
    const room = max - length;
    if (open > 0) {
      // Few tokens go on with an escape.
      for (let id = 0; id < this.bytes.length; id++) this.check(counters, state, mask, id);
    } else if (room < ROOMS) {
      const allowed = this.withinRoom(Math.max(room, 0));
      for (let word = 0; word < this.width; word++) mask[word] = (mask[word] ?? 0) & (allowed[word] ?? 0);
    } else if (room < Number.POSITIVE_INFINITY) {
      for (const id of this.longOnes) this.check(counters, state, mask, id);
    }
  }

  private withinRoom(room: number): Uint32Array {
    this.masks ??= masksByRoom(this.added, this.width);
    return this.masks[room] ?? new Uint32Array(this.width);
  }

  private check(counters: Counters, state: CounterState, mask: Uint32Array, id: number): void {
    const word = mask[id >> 5] ?? 0;
    const bit = 1 << (id & 31);
    const token = this.bytes[id];
    if ((word & bit) === 0 || token === undefined) return;
    if (counters.advance(state, token) === null) mask[id >> 5] = word & ~bit;
  }
}

function masksByRoom(added: readonly number[], width: number): readonly Uint32Array[] {
  const byCount = Array.from({ length: ROOMS }, (): number[] => []);
  for (const [id, count] of added.entries()) byCount[count]?.push(id);
  const mask = new Uint32Array(width);
  return byCount.map((ids) => {
    for (const id of ids) mask[id >> 5] = (mask[id >> 5] ?? 0) | (1 << (id & 31));
    return mask.slice();
  });
}

/** @param part of a token, where commas count */
function idsByRoom(
  bytes: readonly Uint8Array[],
  part: (token: Uint8Array) => Uint8Array,
): readonly (readonly number[])[] {
  const commas = bytes.map((token) => part(token).reduce((sum, byte) => sum + (byte === COMMA ? 1 : 0), 0));
  return Array.from({ length: COMMAS_MAX }, (_, room) => idsOf(commas, (count) => count > room));
}

function idsOf<T>(values: readonly T[], holds: (value: T) => boolean): readonly number[] {
  return values.flatMap((value, id) => (holds(value) ? [id] : []));
}

/** As `Counters` counts; an escape that is cut counts whole. */
function charactersAdded(token: Uint8Array): number {
  let count = 0;
  for (let at = 0; at < token.length; at++) {
    const byte = token[at] ?? 0;
    if (byte === QUOTE) break;
    if ((byte & 0xc0) !== 0x80) count++;
    if (byte === BACKSLASH) at += token[at + 1] === 0x75 ? 5 : 1;
  }
  return count;
}
