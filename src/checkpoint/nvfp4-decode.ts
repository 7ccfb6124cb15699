/**
 * ModelOpt's NVFP4 weights → bfloat16: value = E2M1(nibble) · E4M3(scale of its 16) · scale_2, rounded once in float32
 * and once to bfloat16. MLX's own nvfp4 has no place for the matrix-wide scale_2. Source: models-dense.md §1.4.
 */
import { toBfloat16 } from "./float-bytes.ts";

const GROUP = 16;
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6] as const;
/** E4M3 of every byte: bias 7, no infinities, 0x7f and 0xff are NaN, subnormals m/8 · 2^-6. */
const E4M3 = Float32Array.from({ length: 256 }, (_, byte) => {
  const sign = byte < 128 ? 1 : -1;
  const exponent = (byte >> 3) & 15;
  const mantissa = byte & 7;
  if (exponent === 15 && mantissa === 7) return Number.NaN;
  return exponent === 0 ? (sign * mantissa) / 512 : sign * (1 + mantissa / 8) * 2 ** (exponent - 7);
});

/**
 * @param weight [out, in/2], the low nibble is the even element
 * @param scales [out, in/16], E4M3 bytes
 * @param scale2 the matrix-wide factor
 * @returns bfloat16 bit patterns, [out, in]
 * @throws RangeError when the sizes do not belong together
 */
export function decodeNvfp4(weight: Uint8Array, scales: Uint8Array, scale2: number): Uint16Array<ArrayBuffer> {
  const count = weight.length * 2;
  if (scales.length * GROUP !== count) {
    throw new RangeError(`${weight.length} bytes of NVFP4 need ${count / GROUP} scales, found ${scales.length}`);
  }
  const values = new Float32Array(count);
  const factor = Math.fround(scale2);
  for (let group = 0; group < scales.length; group++) {
    const scale = E4M3[scales[group] ?? 0] ?? 0;
    for (let i = group * GROUP; i < (group + 1) * GROUP; i += 2) {
      const byte = weight[i >> 1] ?? 0;
      // The product of the two small formats is exact in float32.
      values[i] = (E2M1[byte & 15] ?? 0) * scale * factor;
      values[i + 1] = (E2M1[byte >> 4] ?? 0) * scale * factor;
    }
  }
  return toBfloat16(values);
}
