/**
 * Random numbers by counter: draw c of a request with seed s always uses the same key, whatever runs beside it. The
 * finalizer is that of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
 */

const MASK = (1n << 64n) - 1n;

/** The 64 bits from which MLX's key for draw `counter` is made. */
export function drawBits(seed: bigint, counter: number): bigint {
  let z = (seed + BigInt(counter) * 0x9e3779b97f4a7c15n) & MASK;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

/** A seed for requests that give none. */
export function freshSeed(): bigint {
  const words = crypto.getRandomValues(new BigUint64Array(1));
  return words[0] ?? 0n;
}
