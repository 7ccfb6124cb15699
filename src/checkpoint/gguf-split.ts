/**
 * A GGUF model that was split into `NAME-00001-of-0000N.gguf` parts, seen as one: metadata of the first part, tensors of
 * all. Any part's name leads to the whole; a single file is a set of one.
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { CheckpointError } from "./errors.ts";
import { type GgufFile, type GgufTensor, readGguf } from "./gguf-container.ts";
import type { GgufMetadata } from "./gguf-metadata.ts";

export interface GgufSet {
  /** Headers of all parts, in order. */
  readonly parts: readonly GgufFile[];
  readonly metadata: GgufMetadata;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

const PART = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/;

/** Paths of all parts of the model that `file` belongs to, in order; `[file]` when it is not split. */
export function ggufParts(file: string): string[] {
  const match = PART.exec(path.basename(file));
  if (match === null) return [file];
  const [, stem = "", , total = ""] = match;
  const name = (n: number) => `${stem}-${String(n).padStart(5, "0")}-of-${total}.gguf`;
  return Array.from({ length: Number(total) }, (_, i) => path.join(path.dirname(file), name(i + 1)));
}

/** Name without `.gguf` and without the part suffix. */
export function ggufStem(file: string): string {
  return PART.exec(path.basename(file))?.[1] ?? path.basename(file).replace(/\.gguf$/i, "");
}

/**
 * Reads and checks the headers of all parts.
 * @throws CheckpointError naming a missing part, a wrong part number, or a tensor that two parts hold
 */
export function readGgufSet(file: string): GgufSet {
  const paths = ggufParts(file);
  const missing = paths.filter((part) => !existsSync(part));
  const [gone] = missing;
  if (gone !== undefined) {
    const message =
      paths.length === 1 ? "does not exist" : `is missing (${missing.length} of ${paths.length} parts are)`;
    throw new CheckpointError({ file: gone, check: "set", message });
  }
  const parts = paths.map(readGguf);
  const [first] = parts;
  if (first === undefined) throw new CheckpointError({ file, check: "set", message: "is a part of a set of none" });
  const tensors = new Map<string, GgufTensor>();
  for (const [index, part] of parts.entries()) {
    checkPart(part, index, parts.length);
    for (const [name, tensor] of part.tensors) {
      if (tensors.has(name)) {
        throw new CheckpointError({
          file: part.file,
          tensor: name,
          check: "set",
          message: "is in another part as well",
        });
      }
      tensors.set(name, tensor);
    }
  }
  return { parts, metadata: first.metadata, tensors };
}

function checkPart(part: GgufFile, index: number, count: number): void {
  const declared = part.metadata.int("split.count", count === 1 ? 1 : 0);
  const number = part.metadata.int("split.no", index);
  // A single file may carry split.count 0.
  if ((declared === count || (count === 1 && declared === 0)) && number === index) return;
  throw new CheckpointError({
    file: part.file,
    check: "set",
    message: `says that it is part ${number + 1} of ${declared}, its name says ${index + 1} of ${count}`,
  });
}
