/**
 * Reads a drafter's checked tensors into arrays and packs its matrices: 4 bits in groups of 64 unless told otherwise.
 * Floats are widened first where the device computes in float32. Matrices that are always applied to the same input are
 * joined, row under row, which changes no row of the product. drafters.md §6.
 */
import type { SafetensorsDtype } from "../checkpoint/safetensors-dtype.ts";
import { type Checkpoint, readTensorBytes } from "../checkpoint/safetensors-set.ts";
import {
  bytesOf,
  concatenate,
  type Dtype,
  dim,
  dtypeOf,
  evaluate,
  free,
  keep,
  type MlxArray,
  NONE,
  scalar,
  scope,
} from "../mlx/array.ts";
import { readTensor } from "../mlx/file.ts";
import { add, astype, contiguous, quantize, slice } from "../mlx/ops.ts";
import type { LinearWeights, Matrix, NormWeights } from "../nn/weights.ts";
import { DrafterError } from "./errors.ts";

const FLOATS: Readonly<Partial<Record<SafetensorsDtype, Dtype>>> = {
  F16: "float16",
  BF16: "bfloat16",
  F32: "float32",
};
const GROUP = 64;

/** 0 keeps the matrices as they are. */
export type DrafterBits = 0 | 2 | 3 | 4 | 5 | 6 | 8;

export interface WeightOptions {
  readonly bits: DrafterBits;
  /** What matrices are widened to before anything is packed; null keeps the file's dtype. */
  readonly matrixDtype: "float32" | null;
  /** The same for everything else: the dtype of activations. */
  readonly vectorDtype: "float32" | null;
  /** Norm weights are stored as w − 1. */
  readonly offsetNorms: boolean;
  readonly eps: number;
}

/** A tensor for the time of a computation, widened as activations are unless told otherwise. */
export type ReadTensor = (name: string, dtype?: "float32" | null) => MlxArray;

export class DrafterWeights {
  /** Arrays that nobody has taken yet. */
  private readonly made = new Set<MlxArray>();
  /** Bytes of all arrays made. */
  bytes = 0;

  constructor(
    private readonly checkpoint: Checkpoint,
    private readonly options: WeightOptions,
  ) {}

  /** A tensor as it is, or cast. */
  array(name: string, dtype?: Dtype): MlxArray {
    const [array = NONE] = this.own((read) => {
      const stored = read(name);
      return [dtype === undefined || dtype === dtypeOf(stored) ? stored : astype(stored, dtype)];
    });
    return array;
  }

  norm(name: string): NormWeights {
    const { offsetNorms, eps } = this.options;
    const [weight = NONE] = this.own((read) => {
      const stored = read(`${name}.weight`);
      return [offsetNorms ? add(stored, scalar(1, dtypeOf(stored))) : stored];
    });
    return { weight, eps };
  }

  /** The first `outputs` rows of a module without a bias. */
  firstRows(path: string, outputs: number): LinearWeights {
    const matrix = this.matrix([path], true, outputs);
    const inFeatures = this.checkpoint.tensors.get(`${path}.weight`)?.shape[1] ?? 0;
    return { matrix, bias: NONE, inFeatures, outFeatures: outputs };
  }

  /** A linear of one or more modules, joined row under row. */
  linear(paths: readonly string[], bias: boolean, packed = true): LinearWeights {
    const matrix = this.matrix(paths, packed);
    const [vector = NONE] = bias
      ? this.own((read) => {
          const parts = paths.map((path) => read(`${path}.bias`));
          return [concatenate(parts, 0)];
        })
      : [];
    const shapes = paths.map((path) => this.checkpoint.tensors.get(`${path}.weight`)?.shape ?? []);
    const outFeatures = shapes.reduce((sum, [out = 0]) => sum + out, 0);
    return { matrix, bias: vector, inFeatures: shapes[0]?.[1] ?? 0, outFeatures };
  }

  /** @param first only so many first rows; null: all */
  matrix(paths: readonly string[], packed = true, first: number | null = null): Matrix {
    const { bits } = this.options;
    const parts = this.own((read) => {
      const rows = paths.map((path) => read(`${path}.weight`, this.options.matrixDtype));
      const whole = concatenate(rows, 0);
      const plain = first === null ? whole : contiguous(slice(whole, [0, 0], [first, dim(whole, 1)]));
      if (!packed || bits === 0 || dim(plain, 1) % GROUP !== 0) return [plain];
      const { weight, scales, biases } = quantize(plain, GROUP, bits, "affine");
      return [weight, scales, biases];
    });
    const [weight = NONE, scales, biases] = parts;
    if (scales === undefined || biases === undefined || bits === 0) return { kind: "plain", weight };
    return { kind: "quantized", weight, scales, biases, groupSize: GROUP, bits, mode: "affine" };
  }

  /** The values of an integer tensor. */
  integers(name: string): number[] {
    const place = this.checkpoint.tensors.get(name);
    const bytes = readTensorBytes(this.checkpoint, name);
    if (place?.dtype === "I32") return [...new Int32Array(bytes.buffer)];
    if (place?.dtype === "I64") return Array.from(new BigInt64Array(bytes.buffer), Number);
    throw new DrafterError(this.checkpoint.dir, "tensors", `${name} is ${place?.dtype}, not a list of integers`);
  }

  /** The arrays belong to somebody else from now on. */
  handOver(taken: readonly MlxArray[]): void {
    for (const x of taken) this.made.delete(x);
  }

  /** Frees what was made and not handed over, after a failed load. */
  discard(): void {
    for (const x of this.made) free(x);
    this.made.clear();
  }

  /** Computes arrays, from tensors that live only meanwhile, and keeps them for the drafter. */
  own(make: (read: ReadTensor) => MlxArray[]): MlxArray[] {
    return scope(() => {
      const arrays = make((name, dtype = this.options.vectorDtype) => this.read(name, dtype));
      evaluate(arrays);
      for (const x of arrays) {
        this.made.add(keep(x));
        this.bytes += bytesOf(x);
      }
      return arrays;
    });
  }

  private read(name: string, wanted: "float32" | null): MlxArray {
    const { dir, tensors } = this.checkpoint;
    const place = tensors.get(name);
    if (place === undefined) throw new DrafterError(dir, "tensors", `${name} is missing`);
    const dtype = FLOATS[place.dtype];
    if (dtype === undefined) {
      throw new DrafterError(dir, "tensors", `${name} is ${place.dtype}; drafters are read in F32, F16 and BF16`);
    }
    const stored = readTensor(place.file, place.offset, place.shape, dtype);
    return wanted === null || dtype === wanted ? stored : astype(stored, wanted);
  }
}
