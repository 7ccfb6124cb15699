/** How KV buffers grow: 256 tokens, then by half, in steps of 256, never beyond what the row can hold. */

const STEP = 256;

/** Next capacity ≥ `needed`, in tokens; at most log₁.₅ copies over a row's life. */
export function nextCapacity(capacity: number, needed: number, max: number): number {
  const grown = Math.max(needed, capacity * 1.5, STEP);
  const stepped = Math.ceil(grown / STEP) * STEP;
  return Math.max(needed, Math.min(stepped, max));
}
