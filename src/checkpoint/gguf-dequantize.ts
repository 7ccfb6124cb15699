/**
 * The K formats whose 16-element groups MLX's affine groups cannot hold (Q6_K, Q3_K, Q2_K) → float32, exactly as the
 * format defines their values. The caller keeps them dense or quantizes them again. Source: models-dense.md §8.4
 * (Q6_K) and the format's public description (Q3_K, Q2_K).
 */

export interface DenseFormat {
  /** Width at which a large tensor is quantized again, in groups of 32. */
  readonly requantizeBits: 4 | 8;
  /** Converts `blocks` blocks of 256 elements into `out`, from index 0 on. `source` is 2-byte aligned. */
  readonly dequantize: (source: Uint8Array, blocks: number, out: Float32Array) => void;
}

/** By ggml type name. */
export const DENSE_FORMATS: ReadonlyMap<string, DenseFormat> = new Map([
  ["Q6_K", { requantizeBits: 8, dequantize: fromQ6K }],
  ["Q3_K", { requantizeBits: 4, dequantize: fromQ3K }],
  ["Q2_K", { requantizeBits: 4, dequantize: fromQ2K }],
]);

function halves(source: Uint8Array): Float16Array {
  return new Float16Array(source.buffer, source.byteOffset, source.byteLength >> 1);
}

/** Two halves of 128: 64 bytes of low nibbles, 32 bytes of high bit pairs, 8 signed scales; then f16 d. */
function fromQ6K(source: Uint8Array, blocks: number, out: Float32Array): void {
  const f16 = halves(source);
  const i8 = new Int8Array(source.buffer, source.byteOffset, source.byteLength);
  for (let b = 0; b < blocks; b++) {
    const at = b * 210;
    const d = f16[b * 105 + 104] ?? 0;
    for (let half = 0; half < 2; half++) {
      const ql = at + half * 64;
      const qh = at + 128 + half * 32;
      const to = b * 256 + half * 128;
      for (let side = 0; side < 2; side++) {
        const sc = at + 192 + half * 8 + side;
        const s0 = d * (i8[sc] ?? 0);
        const s1 = d * (i8[sc + 2] ?? 0);
        const s2 = d * (i8[sc + 4] ?? 0);
        const s3 = d * (i8[sc + 6] ?? 0);
        for (let e = side * 16; e < side * 16 + 16; e++) {
          const a = source[ql + e] ?? 0;
          const c = source[ql + e + 32] ?? 0;
          const h = source[qh + e] ?? 0;
          out[to + e] = s0 * (((a & 15) | ((h & 3) << 4)) - 32);
          out[to + e + 32] = s1 * (((c & 15) | ((h & 12) << 2)) - 32);
          out[to + e + 64] = s2 * (((a >> 4) | (h & 48)) - 32);
          out[to + e + 96] = s3 * (((c >> 4) | ((h & 192) >> 2)) - 32);
        }
      }
    }
  }
}

/** 32 bytes of high bits, 64 bytes of bit pairs, 12 bytes of six-bit scales, f16 d. */
function fromQ3K(source: Uint8Array, blocks: number, out: Float32Array): void {
  const f16 = halves(source);
  for (let b = 0; b < blocks; b++) {
    const at = b * 110;
    const d = f16[b * 55 + 54] ?? 0;
    for (let group = 0; group < 16; group++) {
      const lowByte = source[at + 96 + (group & 7)] ?? 0;
      const low = group < 8 ? lowByte & 15 : lowByte >> 4;
      const high = ((source[at + 104 + (group & 3)] ?? 0) >> (2 * (group >> 2))) & 3;
      const scale = d * ((low | (high << 4)) - 32);
      // Group g lies in half ⌊g/8⌋, bit pair ⌊g/2⌋ mod 4, and begins at element 16·(g mod 2) of 32.
      const pair = (group >> 1) & 3;
      const first = (group & 1) * 16;
      const half = group >> 3;
      for (let e = first; e < first + 16; e++) {
        const q = ((source[at + 32 + half * 32 + e] ?? 0) >> (2 * pair)) & 3;
        const set = ((source[at + e] ?? 0) >> (half * 4 + pair)) & 1;
        out[b * 256 + half * 128 + pair * 32 + e] = scale * (q - 4 + 4 * set);
      }
    }
  }
}

/** 16 bytes of four-bit scales and minima, 64 bytes of bit pairs, f16 d, f16 dmin. */
function fromQ2K(source: Uint8Array, blocks: number, out: Float32Array): void {
  const f16 = halves(source);
  for (let b = 0; b < blocks; b++) {
    const at = b * 84;
    const d = f16[b * 42 + 40] ?? 0;
    const dmin = f16[b * 42 + 41] ?? 0;
    for (let group = 0; group < 16; group++) {
      const packed = source[at + group] ?? 0;
      const scale = d * (packed & 15);
      const min = dmin * (packed >> 4);
      const pair = (group >> 1) & 3;
      const first = (group & 1) * 16;
      const half = group >> 3;
      for (let e = first; e < first + 16; e++) {
        const q = ((source[at + 16 + half * 32 + e] ?? 0) >> (2 * pair)) & 3;
        out[b * 256 + half * 128 + pair * 32 + e] = scale * q - min;
      }
    }
  }
}
