/**
 * Packing of small unsigned integers the way MLX stores quantized rows: element i occupies bits [i·b, i·b + b) of a
 * little-endian bit stream, lowest bit first (models-dense.md §2). These are the fast paths for blocks of 32.
 */

/** The low nibbles of the four bytes of `x`, in order, as 16 bits. */
export function squeezeNibbles(x: number): number {
  const masked = x & 0x0f0f0f0f;
  const pairs = (masked | (masked >>> 4)) & 0x00ff00ff;
  return (pairs | (pairs >>> 8)) & 0xffff;
}

/** Packs 32 five-bit values v[0…31] into the five words from out[at] on. */
export function packFiveBits(v: Uint8Array, out: Uint32Array, at: number): void {
  const g = (i: number) => v[i] ?? 0;
  out[at] = g(0) | (g(1) << 5) | (g(2) << 10) | (g(3) << 15) | (g(4) << 20) | (g(5) << 25) | (g(6) << 30);
  out[at + 1] = (g(6) >> 2) | (g(7) << 3) | (g(8) << 8) | (g(9) << 13) | (g(10) << 18) | (g(11) << 23) | (g(12) << 28);
  out[at + 2] =
    (g(12) >> 4) |
    (g(13) << 1) |
    (g(14) << 6) |
    (g(15) << 11) |
    (g(16) << 16) |
    (g(17) << 21) |
    (g(18) << 26) |
    (g(19) << 31);
  out[at + 3] =
    (g(19) >> 1) | (g(20) << 4) | (g(21) << 9) | (g(22) << 14) | (g(23) << 19) | (g(24) << 24) | (g(25) << 29);
  out[at + 4] =
    (g(25) >> 3) | (g(26) << 2) | (g(27) << 7) | (g(28) << 12) | (g(29) << 17) | (g(30) << 22) | (g(31) << 27);
}
