/**
 * Memory whose address stays. A small typed array lives inside the JavaScript heap and may get another address after
 * `ptr()` (seen under Bun 1.4.5: calls through the old one corrupt memory), so addresses that are kept are taken only
 * from buffers far above that size.
 */
import { ptr } from "bun:ffi";

const BYTES = 65536;
const buffer = new Uint8Array(BYTES).buffer;
const start = ptr(new Uint8Array(buffer));
let used = 0;

export interface PinnedInts {
  readonly cells: Int32Array;
  readonly address: number;
}

/** `length` int32 cells for the life of the thread, 16-byte aligned. */
export function pinnedInts(length: number): PinnedInts {
  const offset = used;
  used += Math.ceil((length * 4) / 16) * 16;
  if (used > BYTES) throw new RangeError("pinned memory is used up: raise BYTES in pinned.ts");
  return { cells: new Int32Array(buffer, offset, length), address: start + offset };
}
