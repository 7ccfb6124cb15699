/**
 * GGUF → a cached MLX model folder: config.json, model.safetensors, tokenizer.json, tokenizer_config.json,
 * generation_config.json. Everything that can be refused is refused before a byte is written; the folder appears
 * complete or not at all (checkpoint/built-folder.ts). models-dense.md §8.
 */
import { closeSync, openSync, rmSync, statfsSync } from "node:fs";
import path from "node:path";
import { openBuildFolder, publish, readMarker, writeDurably } from "../../checkpoint/built-folder.ts";
import { CheckpointError } from "../../checkpoint/errors.ts";
import { type GgufSet, readGgufSet } from "../../checkpoint/gguf-split.ts";
import { assertUnchanged } from "../../checkpoint/positional-read.ts";
import { plannedBytes, SafetensorsWriter } from "../../checkpoint/safetensors-writer.ts";
import { CONVERSION_VERSION, sourceFacts } from "./conversion-folder.ts";
import { ggufModelConfig } from "./model-config.ts";
import { mapTensorNames } from "./tensor-names.ts";
import { tokenizerFiles } from "./tokenizer-files.ts";
import { DENSE_BYTES_MAX, planWeights, type WeightPlan } from "./weight-plan.ts";
import { streamWeights } from "./weight-stream.ts";

export { conversionDir } from "./conversion-folder.ts";

/** Bytes of the source. */
export interface ConversionProgress {
  readonly bytesDone: number;
  readonly bytesTotal: number;
}

export interface ConvertOptions {
  readonly onProgress?: (progress: ConversionProgress) => void;
  readonly signal?: AbortSignal;
  /** See DENSE_BYTES_MAX; 0 quantizes every Q6_K, Q3_K and Q2_K tensor again. */
  readonly denseBytesMax?: number;
}

export interface Conversion {
  readonly dir: string;
  /** False when a complete folder of this source was there already. */
  readonly converted: boolean;
  /** Losses and other things worth telling the user. */
  readonly notes: readonly string[];
}

/** Room left on the volume beside the result. */
const SPARE_BYTES = 64 << 20;
/** Conversions of this thread by folder: a second one for the same folder waits for the first. */
const running = new Map<string, Promise<unknown>>();

/**
 * Converts `file` (any part of a split model) into `outDir`, or returns at once when that holds its conversion already.
 * Safe against other processes doing the same, and against being killed at any moment.
 * @throws CheckpointError when the file is damaged or not supported; the signal's reason when aborted
 */
export async function convertGguf(file: string, outDir: string, options: ConvertOptions = {}): Promise<Conversion> {
  const previous = running.get(outDir);
  const current = (async () => {
    // Its outcome is told to its own caller; ours only has to come after it.
    if (previous !== undefined) await Promise.allSettled([previous]);
    return await convertAlone(file, outDir, options);
  })();
  running.set(outDir, current);
  try {
    return await current;
  } finally {
    if (running.get(outDir) === current) running.delete(outDir);
  }
}

async function convertAlone(file: string, outDir: string, options: ConvertOptions): Promise<Conversion> {
  options.signal?.throwIfAborted();
  const facts = sourceFacts(file);
  const done = readMarker(outDir, { ...facts, version: CONVERSION_VERSION });
  if (done !== null) return { dir: outDir, converted: false, notes: done.notes };

  const set = readGgufSet(file);
  const config = ggufModelConfig(set, file);
  const plan = planWeights(set, mapTensorNames(set, config, file), options.denseBytesMax ?? DENSE_BYTES_MAX);
  const tokenizer = tokenizerFiles(set.metadata, config.vocabSize, file);
  const notes = [...plan.notes, ...tokenizer.notes];

  const build = openBuildFolder(outDir);
  try {
    checkSpace(outDir, plan);
    const json = { ...config.json, ...(plan.quantization === null ? {} : { quantization: plan.quantization }) };
    const ids = tokenizer.generation;
    writeJson(build, "config.json", { ...json, ...ids });
    writeJson(build, "generation_config.json", ids);
    writeJson(build, "tokenizer.json", tokenizer.tokenizer);
    writeJson(build, "tokenizer_config.json", tokenizer.config);
    await writeWeights(path.join(build, "model.safetensors"), set, plan, options);
    publish(build, outDir, { ...facts, version: CONVERSION_VERSION, notes });
  } catch (error) {
    rmSync(build, { recursive: true, force: true });
    throw error;
  }
  return { dir: outDir, converted: true, notes };
}

async function writeWeights(file: string, set: GgufSet, plan: WeightPlan, options: ConvertOptions): Promise<void> {
  const bytesTotal = plan.weights.reduce((sum, { source }) => sum + source.bytes, 0);
  let bytesDone = 0;
  const onBytes = (bytes: number) => {
    bytesDone += bytes;
    options.onProgress?.({ bytesDone, bytesTotal });
  };
  const fds = new Map<string, number>();
  const writer = new SafetensorsWriter(file, plan.tensors);
  try {
    for (const part of set.parts) {
      const fd = openSync(part.file, "r");
      fds.set(part.file, fd);
      assertUnchanged(fd, part);
    }
    const fdOf = (name: string) => fds.get(name) ?? -1;
    await streamWeights(plan, fdOf, writer, onBytes, options.signal ?? null);
    // Bytes that were replaced while they were read must not become a cached model.
    for (const part of set.parts) assertUnchanged(fdOf(part.file), part);
    writer.finish();
  } finally {
    writer.close();
    for (const fd of fds.values()) closeSync(fd);
  }
}

function checkSpace(outDir: string, plan: WeightPlan): void {
  const needed = plan.tensors.reduce((sum, tensor) => sum + plannedBytes(tensor), SPARE_BYTES);
  const { bavail, bsize } = statfsSync(path.dirname(outDir));
  const free = bavail * bsize;
  if (free >= needed) return;
  const gigabytes = (bytes: number) => `${(bytes / 1e9).toFixed(1)} GB`;
  throw new CheckpointError({
    file: outDir,
    check: "space",
    message: `the conversion needs ${gigabytes(needed)}, ${gigabytes(free)} are free; make room or set another cache folder`,
  });
}

function writeJson(dir: string, name: string, value: unknown): void {
  writeDurably(path.join(dir, name), `${JSON.stringify(value)}\n`);
}
