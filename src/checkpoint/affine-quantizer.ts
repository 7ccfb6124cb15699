/**
 * MLX's affine quantization of float32 rows, in TypeScript: groups of consecutive values become
 * scale · q + bias with unsigned q. The end of the range that is larger in magnitude is met exactly, and the scale is
 * moved so that zero is a whole step from it. Bit-equal to mlx.core.quantize on the CPU (tested against its output).
 * The error of a value is at most half a step, |scale|/2, at most |scale| at the moved end.
 */

/** Adding and subtracting 1.5·2^23 rounds a float32 of magnitude below 2^22 to the nearest integer, ties to even. */
const ROUND = 12582912;
/** MLX's floor under a scale, so that a constant group does not divide by zero. */
const SCALE_MIN = Math.fround(1e-7);
const fround = Math.fround;

/**
 * Quantizes `groups` groups of `groupSize` values.
 * @param values float32, groups · groupSize of them
 * @param bits 4 or 8
 * @param words receives groups · groupSize · bits / 32 packed words, element 0 in the lowest bits
 * @param scales receives one scale a group
 * @param biases receives one bias a group
 */
export function quantizeAffine(
  values: Float32Array,
  groups: number,
  groupSize: number,
  bits: 4 | 8,
  words: Uint32Array,
  scales: Float32Array,
  biases: Float32Array,
): void {
  const steps = (1 << bits) - 1;
  const perWord = 32 / bits;
  const wordsPerGroup = groupSize / perWord;
  for (let g = 0; g < groups; g++) {
    const start = g * groupSize;
    let low = values[start] ?? 0;
    let high = low;
    for (let i = start + 1; i < start + groupSize; i++) {
      const v = values[i] ?? 0;
      if (v < low) low = v;
      if (v > high) high = v;
    }
    const lowIsEdge = Math.abs(low) > Math.abs(high);
    let scale = Math.max(fround(fround(high - low) / steps), SCALE_MIN);
    if (!lowIsEdge) scale = -scale;
    const edge = lowIsEdge ? low : high;
    const q0 = fround(fround(fround(edge / scale) + ROUND) - ROUND);
    let bias = 0;
    if (q0 !== 0) {
      scale = fround(edge / q0);
      bias = edge;
    }
    scales[g] = scale;
    biases[g] = bias;
    for (let w = 0; w < wordsPerGroup; w++) {
      let word = 0;
      const first = start + w * perWord;
      for (let k = 0; k < perWord; k++) {
        const x = fround(fround((values[first + k] ?? 0) - bias) / scale);
        const q = fround(fround(x + ROUND) - ROUND);
        word |= Math.max(0, Math.min(q, steps)) << (k * bits);
      }
      words[g * wordsPerGroup + w] = word;
    }
  }
}
