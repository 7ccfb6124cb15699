/**
 * AWQ's four-bit layout → MLX's affine triple. AWQ packs eight output columns into a word, in the order 0, 4, 1, 5, 2,
 * 6, 3, 7 of nibbles, input rows first; MLX packs eight inputs of one output row. Source: models-dense.md §1.4.
 */
import { decodeFloats, encodeFloats, type FloatDtype } from "./float-bytes.ts";

export interface AwqTensors {
  /** [in, out/8] */
  readonly qweight: Uint32Array;
  /** [in/group, out], raw bytes of `dtype`. */
  readonly scales: Uint8Array<ArrayBuffer>;
  /** [in/group, out/8]; null: the zero point is 8 everywhere. */
  readonly qzeros: Uint32Array | null;
  readonly dtype: FloatDtype;
}

export interface AffineTriple {
  /** [out, in/8] */
  readonly weight: Uint32Array<ArrayBuffer>;
  /** [out, in/group], raw bytes of the source's dtype. */
  readonly scales: Uint8Array<ArrayBuffer>;
  readonly biases: Uint8Array<ArrayBuffer>;
}

/** Column j of eight lies in this nibble of the word. */
const NIBBLE_OF_COLUMN = [0, 4, 1, 5, 2, 6, 3, 7] as const;
const MIDDLE = 8;

/**
 * @param inFeatures a multiple of 8 and of `groupSize`
 * @param outFeatures a multiple of 8
 * @throws RangeError when the arrays do not have the sizes that these numbers ask for
 */
export function repackAwq(
  tensors: AwqTensors,
  inFeatures: number,
  outFeatures: number,
  groupSize: number,
): AffineTriple {
  const { qweight, qzeros, dtype } = tensors;
  const groups = inFeatures / groupSize;
  const scales = decodeFloats(tensors.scales, dtype);
  const words = outFeatures / 8;
  const sizes = [
    [qweight.length, inFeatures * words],
    [scales.length, groups * outFeatures],
    [qzeros?.length ?? groups * words, groups * words],
  ] as const;
  if (!Number.isInteger(groups) || inFeatures % 8 !== 0 || sizes.some(([found, wanted]) => found !== wanted)) {
    throw new RangeError(`AWQ tensors do not fit ${outFeatures}×${inFeatures} in groups of ${groupSize}`);
  }
  const outScales = new Float32Array(scales.length);
  const outBiases = new Float32Array(scales.length);
  for (let o = 0; o < outFeatures; o++) {
    for (let g = 0; g < groups; g++) {
      const zero = qzeros === null ? MIDDLE : columnOf(qzeros[g * words + (o >> 3)] ?? 0, o & 7);
      const scale = scales[g * outFeatures + o] ?? 0;
      outScales[o * groups + g] = scale;
      outBiases[o * groups + g] = -zero * scale;
    }
  }
  return {
    weight: transposeWords(qweight, inFeatures, outFeatures),
    scales: encodeFloats(outScales, dtype),
    biases: encodeFloats(outBiases, dtype),
  };
}

function columnOf(word: number, column: number): number {
  return (word >>> (4 * (NIBBLE_OF_COLUMN[column] ?? 0))) & 15;
}

/** Eight input rows of one word column become one word in each of eight output rows. */
function transposeWords(source: Uint32Array, inFeatures: number, outFeatures: number): Uint32Array<ArrayBuffer> {
  const words = outFeatures / 8;
  const rowWords = inFeatures / 8;
  const out = new Uint32Array(outFeatures * rowWords);
  for (let block = 0; block < rowWords; block++) {
    for (let w = 0; w < words; w++) {
      for (let column = 0; column < 8; column++) {
        let packed = 0;
        for (let i = 0; i < 8; i++) packed |= columnOf(source[(block * 8 + i) * words + w] ?? 0, column) << (4 * i);
        out[(w * 8 + column) * rowWords + block] = packed;
      }
    }
  }
  return out;
}
