/**
 * Converts the tensors of a plan one after the other, a few megabytes at a time: memory stays flat whatever the file's
 * size, and between two pieces the event loop turns, so that a cancel on the same thread is seen.
 */
import { setImmediate } from "node:timers/promises";
import { quantizeAffine } from "../../checkpoint/affine-quantizer.ts";
import { CheckpointError } from "../../checkpoint/errors.ts";
import type { AffineTarget } from "../../checkpoint/gguf-blocks.ts";
import { readExact } from "../../checkpoint/positional-read.ts";
import type { SafetensorsWriter } from "../../checkpoint/safetensors-writer.ts";
import {
  biasesName,
  GROUP_SIZE,
  matrixShape,
  type PlannedWeight,
  quantizedBits,
  scalesName,
  type WeightPlan,
} from "./weight-plan.ts";

/** Source bytes of one piece: some 10–50 ms of work. */
const PIECE_BYTES = 4 << 20;

/** One piece of one tensor, read and with its rows in order. */
interface Piece {
  readonly weight: PlannedWeight;
  readonly source: Uint8Array;
  readonly firstRow: number;
  readonly rows: number;
}

/**
 * @param fdOf open file of a path of the source
 * @param onBytes called with the source bytes of each finished piece
 * @throws CheckpointError for damaged blocks; the signal's reason when aborted
 */
export async function streamWeights(
  plan: WeightPlan,
  fdOf: (file: string) => number,
  writer: SafetensorsWriter,
  onBytes: (bytes: number) => void,
  signal: AbortSignal | null,
): Promise<void> {
  for (const weight of plan.weights) {
    const { rows } = matrixShape(weight.source);
    const rowBytes = weight.source.bytes / rows;
    const unit = weight.target.interleavedHeadRows ?? 1;
    const step = Math.max(1, Math.floor(PIECE_BYTES / (rowBytes * unit))) * unit;
    for (let row = 0; row < rows; row += step) {
      await setImmediate();
      signal?.throwIfAborted();
      const count = Math.min(step, rows - row);
      const source = new Uint8Array(count * rowBytes);
      readExact(fdOf(weight.source.file), weight.source.file, source, weight.source.offset + row * rowBytes);
      const ordered = unit === 1 ? source : separatePairs(source, rowBytes, unit);
      convertPiece({ weight, source: ordered, firstRow: row, rows: count }, plan.scaleDtype, writer);
      onBytes(source.byteLength);
    }
  }
}

/**
 * Undoes the row order of llama files: in every head of `headRows` rows, row 2j + s is moved to s · headRows/2 + j.
 */
export function separatePairs(source: Uint8Array, rowBytes: number, headRows: number): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(source.byteLength);
  const rows = source.byteLength / rowBytes;
  const half = headRows / 2;
  for (let row = 0; row < rows; row++) {
    const inHead = row % headRows;
    const to = row - inHead + (inHead % 2) * half + (inHead >> 1);
    out.set(source.subarray(row * rowBytes, (row + 1) * rowBytes), to * rowBytes);
  }
  return out;
}

function convertPiece(piece: Piece, scaleDtype: "F16" | "F32", writer: SafetensorsWriter): void {
  const { weight, source, firstRow, rows } = piece;
  const { conversion, target } = weight;
  const { columns } = matrixShape(weight.source);
  const blocks = source.byteLength / weight.source.type.blockBytes;
  if (conversion.kind === "copy") {
    writer.write(target.name, source, (firstRow * source.byteLength) / rows);
    return;
  }
  if (conversion.kind === "dense") {
    const values = new Float32Array(rows * columns);
    conversion.format.dequantize(source, blocks, values);
    writer.write(target.name, bytesOf(values), firstRow * columns * 4);
    return;
  }
  const groups = (rows * columns) / GROUP_SIZE;
  const bits = quantizedBits(conversion) ?? 0;
  const affine: AffineTarget = {
    words: new Uint32Array(groups * bits),
    scales: new Float32Array(groups),
    biases: new Float32Array(groups),
  };
  if (conversion.kind === "exact") {
    conversion.format.convert(source, blocks, affine);
  } else {
    const values = new Float32Array(rows * columns);
    conversion.format.dequantize(source, blocks, values);
    const { words, scales, biases } = affine;
    quantizeAffine(values, groups, GROUP_SIZE, conversion.format.requantizeBits, words, scales, biases);
  }
  const firstGroup = (firstRow * columns) / GROUP_SIZE;
  writer.write(target.name, bytesOf(affine.words), firstGroup * bits * 4);
  writeScales(piece, scalesName(target.name), affine.scales, firstGroup, scaleDtype, writer);
  writeScales(piece, biasesName(target.name), affine.biases, firstGroup, scaleDtype, writer);
}

function writeScales(
  piece: Piece,
  name: string,
  values: Float32Array,
  first: number,
  dtype: "F16" | "F32",
  writer: SafetensorsWriter,
): void {
  const stored = dtype === "F16" ? new Float16Array(values) : values;
  for (let i = 0; i < stored.length; i++) {
    if (Number.isFinite(stored[i])) continue;
    const { source } = piece.weight;
    const message = `a block holds a scale that is not finite (${stored[i]}); the file is damaged`;
    throw new CheckpointError({ file: source.file, tensor: source.name, check: "gguf", message });
  }
  writer.write(name, bytesOf(stored), first * stored.BYTES_PER_ELEMENT);
}

function bytesOf(array: Uint32Array | Float32Array | Float16Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
