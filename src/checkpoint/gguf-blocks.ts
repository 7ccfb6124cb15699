/**
 * GGUF block formats → MLX affine quantization of group size 32, exactly: every value scale·q + bias is the value that
 * the block means, with float32 scales and biases. Layouts and formulas: models-dense.md §8.4. The host is
 * little-endian, as are the blocks. Formats that affine groups of 32 cannot express are in gguf-dequantize.ts.
 */
import { packFiveBits, squeezeNibbles } from "./bit-packing.ts";

/** Where converted blocks go: `bits` words, one scale and one bias for every 32 elements, from index 0 on. */
export interface AffineTarget {
  readonly words: Uint32Array;
  readonly scales: Float32Array;
  readonly biases: Float32Array;
}

export interface ExactFormat {
  readonly bits: 4 | 5 | 8;
  /** Scale and bias are exact in float16 as well (the file's own numbers, times a power of two). */
  readonly exactInFloat16: boolean;
  /**
   * Converts `blocks` consecutive blocks. `source` starts at the first block and is 4-byte aligned in its buffer.
   */
  readonly convert: (source: Uint8Array, blocks: number, target: AffineTarget) => void;
}

/** The formats that become affine groups of 32 without any loss, by ggml type name. */
export const EXACT_FORMATS: ReadonlyMap<string, ExactFormat> = new Map([
  ["Q4_0", { bits: 4, exactInFloat16: true, convert: fromQ4_0 }],
  ["Q4_1", { bits: 4, exactInFloat16: true, convert: fromQ4_1 }],
  ["Q5_0", { bits: 5, exactInFloat16: true, convert: fromQ5_0 }],
  ["Q5_1", { bits: 5, exactInFloat16: true, convert: fromQ5_1 }],
  ["Q8_0", { bits: 8, exactInFloat16: true, convert: fromQ8_0 }],
  ["Q4_K", { bits: 4, exactInFloat16: false, convert: fromQ4K }],
  ["Q5_K", { bits: 5, exactInFloat16: false, convert: fromQ5K }],
]);

interface Views {
  readonly u16: Uint16Array;
  readonly u32: Uint32Array;
  readonly f16: Float16Array;
}

function viewsOf(source: Uint8Array): Views {
  const { buffer, byteOffset, byteLength } = source;
  return {
    u16: new Uint16Array(buffer, byteOffset, byteLength >> 1),
    u32: new Uint32Array(buffer, byteOffset, byteLength >> 2),
    f16: new Float16Array(buffer, byteOffset, byteLength >> 1),
  };
}

/** Four u32 of nibble pairs: low nibbles are elements 0–15, high ones 16–31. */
function packSplitNibbles(a: number, b: number, c: number, d: number, out: Uint32Array, at: number): void {
  out[at] = squeezeNibbles(a) | (squeezeNibbles(b) << 16);
  out[at + 1] = squeezeNibbles(c) | (squeezeNibbles(d) << 16);
  out[at + 2] = squeezeNibbles(a >>> 4) | (squeezeNibbles(b >>> 4) << 16);
  out[at + 3] = squeezeNibbles(c >>> 4) | (squeezeNibbles(d >>> 4) << 16);
}

function fromQ4_0(source: Uint8Array, blocks: number, { words, scales, biases }: AffineTarget): void {
  const { u16, f16 } = viewsOf(source);
  const word = (at: number) => (u16[at] ?? 0) | ((u16[at + 1] ?? 0) << 16);
  for (let b = 0, p = 0; b < blocks; b++, p += 9) {
    const d = f16[p] ?? 0;
    scales[b] = d;
    biases[b] = -8 * d;
    packSplitNibbles(word(p + 1), word(p + 3), word(p + 5), word(p + 7), words, b * 4);
  }
}

function fromQ4_1(source: Uint8Array, blocks: number, { words, scales, biases }: AffineTarget): void {
  const { u32, f16 } = viewsOf(source);
  for (let b = 0, p = 0; b < blocks; b++, p += 5) {
    scales[b] = f16[p * 2] ?? 0;
    biases[b] = f16[p * 2 + 1] ?? 0;
    packSplitNibbles(u32[p + 1] ?? 0, u32[p + 2] ?? 0, u32[p + 3] ?? 0, u32[p + 4] ?? 0, words, b * 4);
  }
}

/** 16 bytes of nibbles at `nibbles` and the 32 fifth bits in `high` → 32 values. */
function joinFiveBits(source: Uint8Array, nibbles: number, high: number, values: Uint8Array): void {
  for (let i = 0; i < 16; i++) {
    const byte = source[nibbles + i] ?? 0;
    values[i] = (byte & 15) | (((high >>> i) & 1) << 4);
    values[i + 16] = (byte >> 4) | (((high >>> (i + 16)) & 1) << 4);
  }
}

function fromQ5_0(source: Uint8Array, blocks: number, { words, scales, biases }: AffineTarget): void {
  const { u16, f16 } = viewsOf(source);
  const values = new Uint8Array(32);
  for (let b = 0, p = 0; b < blocks; b++, p += 11) {
    const d = f16[p] ?? 0;
    scales[b] = d;
    biases[b] = -16 * d;
    joinFiveBits(source, p * 2 + 6, (u16[p + 1] ?? 0) | ((u16[p + 2] ?? 0) << 16), values);
    packFiveBits(values, words, b * 5);
  }
}

function fromQ5_1(source: Uint8Array, blocks: number, { words, scales, biases }: AffineTarget): void {
  const { u32, f16 } = viewsOf(source);
  const values = new Uint8Array(32);
  for (let b = 0, p = 0; b < blocks; b++, p += 6) {
    scales[b] = f16[p * 2] ?? 0;
    biases[b] = f16[p * 2 + 1] ?? 0;
    joinFiveBits(source, p * 4 + 8, u32[p + 1] ?? 0, values);
    packFiveBits(values, words, b * 5);
  }
}

function fromQ8_0(source: Uint8Array, blocks: number, { words, scales, biases }: AffineTarget): void {
  const { u16, f16 } = viewsOf(source);
  for (let b = 0, p = 0; b < blocks; b++, p += 17) {
    const d = f16[p] ?? 0;
    scales[b] = d;
    biases[b] = -128 * d;
    for (let k = 0; k < 8; k++) {
      const at = p + 1 + 2 * k;
      words[b * 8 + k] = ((u16[at] ?? 0) | ((u16[at + 1] ?? 0) << 16)) ^ 0x80808080;
    }
  }
}

/**
 * The 12 bytes of six-bit scales and minima of Q4_K and Q5_K, expanded to the float scales and biases of eight
 * sub-blocks of 32. `at` is the byte of the block's start.
 */
function expandKScales(
  source: Uint8Array,
  at: number,
  d: number,
  dmin: number,
  target: AffineTarget,
  first: number,
): void {
  const s = at + 4;
  for (let j = 0; j < 4; j++) {
    const low = source[s + j] ?? 0;
    const middle = source[s + j + 4] ?? 0;
    const high = source[s + j + 8] ?? 0;
    target.scales[first + j] = d * (low & 63);
    target.biases[first + j] = -dmin * (middle & 63);
    target.scales[first + j + 4] = d * ((high & 15) | ((low >> 6) << 4));
    target.biases[first + j + 4] = -dmin * ((high >> 4) | ((middle >> 6) << 4));
  }
}

function fromQ4K(source: Uint8Array, blocks: number, target: AffineTarget): void {
  const { u32, f16 } = viewsOf(source);
  const { words } = target;
  for (let b = 0; b < blocks; b++) {
    expandKScales(source, b * 144, f16[b * 72] ?? 0, f16[b * 72 + 1] ?? 0, target, b * 8);
    for (let chunk = 0; chunk < 4; chunk++) {
      const from = b * 36 + 4 + chunk * 8;
      const to = b * 32 + chunk * 8;
      for (let k = 0; k < 4; k++) {
        const x = u32[from + 2 * k] ?? 0;
        const y = u32[from + 2 * k + 1] ?? 0;
        words[to + k] = squeezeNibbles(x) | (squeezeNibbles(y) << 16);
        words[to + 4 + k] = squeezeNibbles(x >>> 4) | (squeezeNibbles(y >>> 4) << 16);
      }
    }
  }
}

function fromQ5K(source: Uint8Array, blocks: number, target: AffineTarget): void {
  const { f16 } = viewsOf(source);
  const low = new Uint8Array(32);
  const high = new Uint8Array(32);
  for (let b = 0; b < blocks; b++) {
    const at = b * 176;
    expandKScales(source, at, f16[b * 88] ?? 0, f16[b * 88 + 1] ?? 0, target, b * 8);
    for (let chunk = 0; chunk < 4; chunk++) {
      const nibbles = at + 48 + chunk * 32;
      for (let e = 0; e < 32; e++) {
        const byte = source[nibbles + e] ?? 0;
        const fifth = (source[at + 16 + e] ?? 0) >> (2 * chunk);
        low[e] = (byte & 15) | ((fifth & 1) << 4);
        high[e] = (byte >> 4) | ((fifth & 2) << 3);
      }
      packFiveBits(low, target.words, (b * 8 + chunk * 2) * 5);
      packFiveBits(high, target.words, (b * 8 + chunk * 2 + 1) * 5);
    }
  }
}
