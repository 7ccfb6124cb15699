/**
 * All weights of a model folder as one table: name → place in a file. The index decides which shard owns a tensor;
 * without one no name may appear twice. Headers only: no tensor byte is read. Rules: models-dense.md §1.1 and
 * hub.md §10 set 1–4 and 6 (set 5, strictness against the model, is the model loader's).
 */
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { CheckpointError } from "./errors.ts";
import { assertUnchanged, readExact, withFile } from "./positional-read.ts";
import { checkTriples } from "./quantization-triples.ts";
import { isQuantizedStorage, type SafetensorsDtype } from "./safetensors-dtype.ts";
import { readSafetensorsHeader, type SafetensorsHeader } from "./safetensors-header.ts";
import { readSafetensorsIndex, type SafetensorsIndex } from "./safetensors-index.ts";

export interface TensorLocation {
  /** Absolute path of the file that holds it. */
  readonly file: string;
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly number[];
  /** Absolute byte position in the file. */
  readonly offset: number;
  readonly bytes: number;
}

export interface Checkpoint {
  readonly dir: string;
  /** Headers of the files in use, in the order in which they were read. */
  readonly files: readonly SafetensorsHeader[];
  readonly tensors: ReadonlyMap<string, TensorLocation>;
  /** Things worth telling that are no errors. */
  readonly notes: readonly string[];
}

export interface OpenOptions {
  /** A drafter's folder: `*.safetensors` of any name are weights, beside those that an index names. */
  readonly drafter?: boolean;
}

const INDEX = "model.safetensors.index.json";

/**
 * Resolves and validates the weight files of `dir`.
 * @throws CheckpointError
 */
export function openCheckpoint(dir: string, options: OpenOptions = {}): Checkpoint {
  const indexFile = path.join(dir, INDEX);
  const index = existsSync(indexFile) ? readSafetensorsIndex(indexFile) : null;
  const names = weightFiles(dir, index, options.drafter ?? false);
  const files = names.map((name) => readSafetensorsHeader(path.join(dir, name)));
  const notes = files.flatMap((header) => header.notes);
  const tensors = new Map<string, TensorLocation>();
  for (const header of files) collect(header, index, tensors, notes);
  if (index !== null) checkIndex(indexFile, index, dir, tensors, notes);
  checkStorage(tensors);
  checkTriples(tensors);
  return { dir, files, tensors, notes };
}

/**
 * Reads the bytes of one tensor, after checking that its file is still the one that was validated.
 * @throws CheckpointError
 */
export function readTensorBytes(checkpoint: Checkpoint, name: string): Uint8Array<ArrayBuffer> {
  const place = checkpoint.tensors.get(name);
  const header = checkpoint.files.find((candidate) => candidate.file === place?.file);
  if (place === undefined || header === undefined) {
    throw new CheckpointError({
      file: checkpoint.dir,
      tensor: name,
      check: "set",
      message: "is not in the checkpoint",
    });
  }
  return withFile(place.file, (fd) => {
    assertUnchanged(fd, header);
    const out = new Uint8Array(place.bytes);
    readExact(fd, place.file, out, place.offset);
    return out;
  });
}

function weightFiles(dir: string, index: SafetensorsIndex | null, drafter: boolean): string[] {
  let present: string[];
  try {
    present = readdirSync(dir).filter((name) => name.endsWith(".safetensors"));
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new CheckpointError({ file: dir, check: "file", message: `cannot be listed: ${reason}` });
  }
  if (index !== null) checkPresent(dir, index, new Set(present));
  if (index !== null && !drafter) return [...index.files].sort();
  const usable = present.filter((name) => drafter || !/^consolidated|^adapter_model|\.fp32\./.test(name)).sort();
  const preferred = drafter ? usable : usable.filter((name) => name.startsWith("model"));
  const chosen = preferred.length > 0 ? preferred : usable;
  if (chosen.length === 0) {
    const torch = existsSync(path.join(dir, "pytorch_model.bin"));
    const message = torch
      ? "holds only pytorch_model.bin, which is not read; convert it to safetensors"
      : "holds no *.safetensors file";
    throw new CheckpointError({ file: dir, check: "set", message });
  }
  return chosen;
}

function checkPresent(dir: string, index: SafetensorsIndex, present: ReadonlySet<string>): void {
  const missing = [...index.files].filter((name) => !present.has(name)).sort();
  const first = missing[0];
  if (first === undefined) return;
  const more = missing.length > 1 ? ` (and ${missing.length - 1} more)` : "";
  throw new CheckpointError({
    file: path.join(dir, first),
    check: "set",
    message: `is named in ${INDEX} but missing${more}; download again`,
  });
}

function collect(
  header: SafetensorsHeader,
  index: SafetensorsIndex | null,
  tensors: Map<string, TensorLocation>,
  notes: string[],
): void {
  const extra: string[] = [];
  for (const [name, entry] of header.tensors) {
    const owner = index?.weightMap.get(name);
    if (owner !== undefined && owner !== path.basename(header.file)) continue;
    if (index !== null && owner === undefined) extra.push(name);
    const other = tensors.get(name);
    if (other !== undefined) {
      throw new CheckpointError({
        file: header.file,
        tensor: name,
        check: "set",
        message: `is also in ${path.basename(other.file)} and no index says which one counts`,
      });
    }
    tensors.set(name, { file: header.file, ...entry });
  }
  if (extra.length > 0) notes.push(`${header.file}: ${extra.length} tensors are not in the index (${extra[0]}, …)`);
}

function checkIndex(
  indexFile: string,
  index: SafetensorsIndex,
  dir: string,
  tensors: ReadonlyMap<string, TensorLocation>,
  notes: string[],
): void {
  const missing = [...index.weightMap].filter(([name]) => !tensors.has(name));
  const first = missing[0];
  if (first !== undefined) {
    const more = missing.length > 1 ? ` (and ${missing.length - 1} more)` : "";
    throw new CheckpointError({
      file: path.join(dir, first[1]),
      tensor: first[0],
      check: "set",
      message: `the index puts it here, but it is missing${more}; download again`,
    });
  }
  if (index.totalSize === null) return;
  let sum = 0;
  for (const name of index.weightMap.keys()) sum += tensors.get(name)?.bytes ?? 0;
  if (sum !== index.totalSize)
    notes.push(`${indexFile}: total_size says ${index.totalSize}, the tensors have ${sum} bytes`);
}

/** F8 and F4 are storage of a quantization layout: a weight beside its scale, or the scale itself. */
function checkStorage(tensors: ReadonlyMap<string, TensorLocation>): void {
  for (const [name, entry] of tensors) {
    if (!isQuantizedStorage(entry.dtype)) continue;
    const isScale = /[._](?:weight_scale|scales|scale|weight_scale_inv)$/.test(name);
    const hasScale = ["_scale", "_scale_inv"].some((suffix) => tensors.has(name + suffix));
    const packed = name.endsWith(".weight_packed") && tensors.has(name.replace(/_packed$/, "_scale"));
    if (isScale || hasScale || packed) continue;
    throw new CheckpointError({
      file: entry.file,
      tensor: name,
      check: "dtype",
      message: `${entry.dtype} is read only inside a known quantization layout, and this tensor has no scale beside it`,
    });
  }
}
