/**
 * Noise-level conditioning of GGUF drafters: each slot of a block has a fixed log signal-to-noise ratio (the anchor's is
 * the highest, all masks share the lowest), which becomes a constant vector added to its embedding. drafters.md §3.5.
 */

const FREQUENCIES = 64;
/** Times are stretched to this, as in diffusion models. */
const STEPS = 1000;

/**
 * Sines and cosines of every slot's time, float32 [block, 128], row after row. Times are relative to the range of
 * ratios: the anchor's is its upper end and every mask's the lower, whatever the range.
 */
export function logSnrFeatures(block: number): Float32Array {
  const out = new Float32Array(block * 2 * FREQUENCIES);
  for (let slot = 0; slot < block; slot++) {
    const time = slot === 0 ? STEPS : 0;
    for (let i = 0; i < FREQUENCIES; i++) {
      const angle = time * 10000 ** (-i / FREQUENCIES);
      out[slot * 2 * FREQUENCIES + i] = Math.sin(angle);
      out[slot * 2 * FREQUENCIES + FREQUENCIES + i] = Math.cos(angle);
    }
  }
  return out;
}
