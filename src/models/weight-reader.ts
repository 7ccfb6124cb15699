/**
 * Reads a checked checkpoint tensor by tensor into arrays, strictly: each tensor that a model asks for must be there
 * with the right shape, and at the end none may be left over (but those that the family drops). models-dense.md §1.4–1.5.
 */
import { CheckpointError } from "../checkpoint/errors.ts";
import type { Quantization, QuantizationSpec } from "../checkpoint/quantization.ts";
import type { SafetensorsDtype } from "../checkpoint/safetensors-dtype.ts";
import type { Checkpoint, TensorLocation } from "../checkpoint/safetensors-set.ts";
import { type Dtype, dtypeOf, evaluate, free, keep, type MlxArray, NONE, scope } from "../mlx/array.ts";
import { readTensor } from "../mlx/file.ts";
import { astype } from "../mlx/ops.ts";
import type { LinearWeights, Matrix } from "../nn/weights.ts";

const DTYPES: Readonly<Partial<Record<SafetensorsDtype, Dtype>>> = {
  BOOL: "bool",
  U8: "uint8",
  I8: "int8",
  U16: "uint16",
  I16: "int16",
  U32: "uint32",
  I32: "int32",
  U64: "uint64",
  I64: "int64",
  F16: "float16",
  BF16: "bfloat16",
  F32: "float32",
  F64: "float64",
};
const FLOATING: ReadonlySet<Dtype> = new Set(["float16", "bfloat16", "float32", "float64"]);

export interface ReadOptions {
  /** Every floating tensor is widened to this; null keeps the file's dtypes. */
  readonly dtype: "float32" | null;
  /** Called after each tensor with the bytes read so far and in all. */
  readonly onBytes?: (done: number, total: number) => void;
}

export class WeightReader {
  private readonly used = new Set<string>();
  /** Arrays that nobody has taken yet. */
  private readonly made = new Set<MlxArray>();
  private bytesDone = 0;
  private readonly bytesTotal: number;
  /** Bytes of all arrays made, as they are in memory. */
  residentBytes = 0;

  constructor(
    private readonly checkpoint: Checkpoint,
    private readonly quantization: Quantization,
    private readonly options: ReadOptions,
  ) {
    this.bytesTotal = [...checkpoint.tensors.values()].reduce((sum, tensor) => sum + tensor.bytes, 0);
  }

  has(name: string): boolean {
    return this.checkpoint.tensors.has(name);
  }

  /** One-dimensional parameter of `length` values. */
  vector(name: string, length: number): MlxArray {
    return this.read(name, [length]);
  }

  /** The matrix [out, in] of a Linear or Embedding at `path`, packed or not. */
  matrix(path: string, out: number, inFeatures: number): Matrix {
    const spec = this.quantization.forModule(path, inFeatures, this.checkpoint.tensors);
    if (spec === null) return { kind: "plain", weight: this.read(`${path}.weight`, [out, inFeatures]) };
    return this.packed(path, out, inFeatures, spec);
  }

  /** A Linear at `path`. `bias`: whether the family's config says that it has one. */
  linear(path: string, out: number, inFeatures: number, bias: boolean): LinearWeights {
    return {
      matrix: this.matrix(path, out, inFeatures),
      bias: bias ? this.vector(`${path}.bias`, out) : NONE,
      inFeatures,
      outFeatures: out,
    };
  }

  private packed(path: string, out: number, inFeatures: number, spec: QuantizationSpec): Matrix {
    const { groupSize, bits, mode } = spec;
    const groups = inFeatures / groupSize;
    return {
      kind: "quantized",
      weight: this.read(`${path}.weight`, [out, (inFeatures * bits) / 32]),
      scales: this.read(`${path}.scales`, [out, groups]),
      biases: mode === "affine" ? this.read(`${path}.biases`, [out, groups]) : NONE,
      groupSize,
      bits,
      mode,
    };
  }

  /**
   * Ends the reading.
   * @param dropped whether the family knows the tensor and does not use it
   * @throws CheckpointError naming tensors that the model has no place for
   */
  finish(dropped: (name: string) => boolean): void {
    const left = [...this.checkpoint.tensors.keys()].filter((name) => !this.used.has(name) && !dropped(name));
    const first = left[0];
    if (first === undefined) {
      // What the family drops was never read.
      this.options.onBytes?.(this.bytesTotal, this.bytesTotal);
      return;
    }
    const more = left.length > 1 ? ` (and ${left.length - 1} more)` : "";
    throw new CheckpointError({
      file: this.checkpoint.tensors.get(first)?.file ?? this.checkpoint.dir,
      tensor: first,
      check: "set",
      message: `has no place in this model${more}: the checkpoint belongs to another architecture`,
    });
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

  private read(name: string, shape: readonly number[]): MlxArray {
    const place = this.checkpoint.tensors.get(name);
    if (place === undefined) {
      throw new CheckpointError({ file: this.checkpoint.dir, tensor: name, check: "set", message: "is missing" });
    }
    if (place.shape.length !== shape.length || place.shape.some((length, axis) => length !== shape[axis])) {
      throw new CheckpointError({
        file: place.file,
        tensor: name,
        check: "set",
        message: `has shape [${place.shape}], the config asks for [${shape}]`,
      });
    }
    this.used.add(name);
    const array = scope(() => {
      const stored = readTensor(place.file, place.offset, place.shape, dtypeIn(place, name));
      const wanted = this.options.dtype;
      const result =
        wanted !== null && FLOATING.has(dtypeOf(stored)) && dtypeOf(stored) !== wanted
          ? astype(stored, wanted)
          : stored;
      evaluate([result]);
      return keep(result);
    });
    this.made.add(array);
    this.residentBytes += place.bytes * widening(place.dtype, this.options.dtype);
    this.bytesDone += place.bytes;
    this.options.onBytes?.(this.bytesDone, this.bytesTotal);
    return array;
  }
}

function widening(dtype: SafetensorsDtype, wanted: "float32" | null): number {
  if (wanted === null) return 1;
  return dtype === "F16" || dtype === "BF16" ? 2 : dtype === "F64" ? 0.5 : 1;
}

function dtypeIn(place: TensorLocation, name: string): Dtype {
  const dtype = DTYPES[place.dtype];
  if (dtype !== undefined) return dtype;
  throw new CheckpointError({
    file: place.file,
    tensor: name,
    check: "dtype",
    message: `is ${place.dtype}, which is only read inside a known quantization layout`,
  });
}
