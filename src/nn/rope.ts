/**
 * Rotary position embedding. `freqs` are divisors of the position (wavelength / 2π), as MLX's kernel takes them; the
 * scaling rules are those of the checkpoints' `rope_scaling` types (models-dense.md §3.7). Tables are float32.
 */
import { concatenate, dim, dtypeOf, float32Array, free, keep, type MlxArray, scalar, scope } from "../mlx/array.ts";
import { multiply, rope, ropeAt, slice } from "../mlx/ops.ts";

/** The parameters of a rotation, as a config states them. */
export interface RopeSpec {
  /** Rotated features per head; the others pass. */
  readonly dims: number;
  /** true pairs (2j, 2j+1), false pairs (j, j + dims/2). */
  readonly traditional: boolean;
  readonly base: number;
  readonly scaling: RopeScaling;
}

export type RopeScaling =
  | { readonly kind: "none" }
  | { readonly kind: "linear"; readonly factor: number }
  | { readonly kind: "dynamic"; readonly factor: number; readonly maxPositions: number }
  /** Divisors that multiply base^(2j/dims), e.g. GGUF's rope_freqs. */
  | { readonly kind: "factors"; readonly factors: readonly number[] }
  | {
      readonly kind: "llama3";
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalMaxPositions: number;
    }
  | {
      readonly kind: "yarn";
      readonly factor: number;
      readonly originalMaxPositions: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      readonly mscale: number;
      readonly mscaleAllDim: number;
    }
  | {
      readonly kind: "longrope";
      readonly longFactor: readonly number[];
      readonly originalMaxPositions: number;
      readonly maxPositions: number;
      readonly longMscale: number | null;
    };

/** Applies the rotation to rows. */
export interface Rope {
  /** x [1, heads, T, D] at positions offset … offset+T−1. */
  rotate(x: MlxArray, offset: number): MlxArray;
  /** x [R, heads, 1, D], row r at positions[r] (int32 [R]). */
  rotateAt(x: MlxArray, positions: MlxArray): MlxArray;
  /** False when the table depends on the length so far, so that rows must be rotated one by one. */
  readonly flat: boolean;
  dispose(): void;
}

export function makeRope(spec: RopeSpec): Rope {
  const { dims, traditional, base, scaling } = spec;
  if (scaling.kind === "dynamic") return dynamicRope(spec, scaling.factor, scaling.maxPositions);
  if (scaling.kind === "none" || scaling.kind === "linear") {
    const scale = scaling.kind === "linear" ? 1 / scaling.factor : 1;
    return {
      rotate: (x, offset) => rope(x, dims, traditional, base, scale, offset),
      rotateAt: (x, positions) => ropeAt(x, dims, traditional, base, scale, positions),
      flat: true,
      dispose: () => undefined,
    };
  }
  // Made at the first use: a load that fails before has nothing to free.
  let made: MlxArray | null = null;
  const table = () => {
    made ??= scope(() => keep(float32Array(ropeDivisors(spec))));
    return made;
  };
  const magnitude = ropeMagnitude(scaling);
  return {
    rotate: (x, offset) => rope(magnify(x, dims, magnitude), dims, traditional, null, 1, offset, table()),
    rotateAt: (x, positions) => ropeAt(magnify(x, dims, magnitude), dims, traditional, null, 1, positions, table()),
    flat: true,
    dispose: () => {
      if (made !== null) free(made);
      made = null;
    },
  };
}

/** NTK-aware scaling whose base grows with the sequence. */
function dynamicRope(spec: RopeSpec, factor: number, maxPositions: number): Rope {
  const { dims, traditional } = spec;
  return {
    rotate: (x, offset) => {
      const grown = dynamicRopeBase(spec, factor, maxPositions, offset + dim(x, 2));
      return rope(x, dims, traditional, grown, 1, offset);
    },
    rotateAt: () => {
      throw new RangeError("dynamic rope is rotated row by row");
    },
    flat: false,
    dispose: () => undefined,
  };
}

/** The base of a sequence of `length` tokens. */
export function dynamicRopeBase(spec: RopeSpec, factor: number, maxPositions: number, length: number): number {
  const n = Math.max(length, maxPositions);
  return spec.base * ((factor * n) / maxPositions - (factor - 1)) ** (spec.dims / (spec.dims - 2));
}

/** Scales the rotated features before the rotation (YaRN's and LongRoPE's attention temperature). */
function magnify(x: MlxArray, dims: number, magnitude: number): MlxArray {
  if (magnitude === 1) return x;
  const [a, b, c, d] = [dim(x, 0), dim(x, 1), dim(x, 2), dim(x, 3)];
  const factor = scalar(magnitude, dtypeOf(x));
  if (d === dims) return multiply(x, factor);
  const rotated = slice(x, [0, 0, 0, 0], [a, b, c, dims]);
  const rest = slice(x, [0, 0, 0, dims], [a, b, c, d]);
  return concatenate([multiply(rotated, factor), rest], 3);
}

/** Attention temperature of a scaling; 1 for most. */
export function ropeMagnitude(scaling: RopeScaling): number {
  if (scaling.kind === "yarn") {
    const m = (mscale: number) => (scaling.factor <= 1 ? 1 : 0.1 * mscale * Math.log(scaling.factor) + 1);
    return m(scaling.mscale) / m(scaling.mscaleAllDim);
  }
  if (scaling.kind === "longrope") {
    if (scaling.longMscale !== null) return scaling.longMscale;
    const ratio = scaling.maxPositions / scaling.originalMaxPositions;
    return ratio <= 1 ? 1 : Math.sqrt(1 + Math.log(ratio) / Math.log(scaling.originalMaxPositions));
  }
  return 1;
}

/** The table of divisors [dims/2] for scalings that have one. */
export function ropeDivisors(spec: RopeSpec): number[] {
  const { dims, base, scaling } = spec;
  const plain = Array.from({ length: dims / 2 }, (_, j) => base ** ((2 * j) / dims));
  switch (scaling.kind) {
    case "factors":
      return plain.map((f, j) => f * (scaling.factors[j] ?? 1));
    case "longrope":
      return plain.map((f, j) => f * (scaling.longFactor[j] ?? 1));
    case "llama3": {
      const { factor, lowFreqFactor: low, highFreqFactor: high, originalMaxPositions: original } = scaling;
      return plain.map((f) => {
        const wavelength = 2 * Math.PI * f;
        if (wavelength > original / low) return f * factor;
        if (wavelength <= original / high) return f;
        const smooth = (original / wavelength - low) / (high - low);
        return f / ((1 - smooth) / factor + smooth);
      });
    }
    case "yarn": {
      const { factor, originalMaxPositions: original, betaFast, betaSlow } = scaling;
      const corrected = (n: number) => (dims * Math.log(original / (2 * Math.PI * n))) / (2 * Math.log(base));
      const low = Math.max(Math.floor(corrected(betaFast)), 0);
      const top = Math.min(Math.ceil(corrected(betaSlow)), dims - 1);
      const high = top === low ? top + 0.001 : top;
      return plain.map((f, j) => {
        const keepPart = 1 - Math.min(Math.max((j - low) / (high - low), 0), 1);
        return (factor * f * f) / (factor * f * keepPart + f * (1 - keepPart));
      });
    }
    default:
      return plain;
  }
}
