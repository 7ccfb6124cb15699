/**
 * `model.safetensors.index.json`: which shard holds which tensor. Shard names are plain names in the same folder, so
 * that an index can never point outside of it (hub.md §10 set 1).
 */
import { CheckpointError } from "./errors.ts";
import { isJsonObject, type JsonObject, JsonSyntaxError, parseJson } from "./json.ts";
import { readExact, withFile } from "./positional-read.ts";

export interface SafetensorsIndex {
  /** Tensor name → shard name. */
  readonly weightMap: ReadonlyMap<string, string>;
  readonly files: ReadonlySet<string>;
  /** `metadata.total_size` where it is a number. */
  readonly totalSize: number | null;
}

const INDEX_BYTES_MAX = 100_000_000;

/** @throws CheckpointError */
export function readSafetensorsIndex(file: string): SafetensorsIndex {
  const json = readIndexJson(file);
  const fail = (message: string, tensor?: string): never => {
    throw new CheckpointError({ file, tensor, check: "index", message });
  };
  const map = json.weight_map;
  if (!isJsonObject(map)) return fail("has no weight_map object");
  const weightMap = new Map<string, string>();
  for (const [tensor, shard] of Object.entries(map)) {
    if (typeof shard !== "string") return fail("weight_map does not name a file", tensor);
    if (!isPlainName(shard)) return fail(`${JSON.stringify(shard)} is not a plain file name in this folder`, tensor);
    weightMap.set(tensor, shard);
  }
  if (weightMap.size === 0) fail("weight_map is empty");
  const total = isJsonObject(json.metadata) ? json.metadata.total_size : undefined;
  return { weightMap, files: new Set(weightMap.values()), totalSize: typeof total === "number" ? total : null };
}

function readIndexJson(file: string): JsonObject {
  const text = withFile(file, (fd, { size }) => {
    if (size > INDEX_BYTES_MAX)
      throw new CheckpointError({ file, check: "index", message: `is too large (${size} bytes)` });
    const raw = new Uint8Array(size);
    readExact(fd, file, raw, 0);
    return new TextDecoder().decode(raw);
  });
  try {
    const json = parseJson(text, { uniqueKeys: true, nonFinite: false });
    if (isJsonObject(json)) return json;
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    throw new CheckpointError({ file, check: "index", message: `is not valid JSON: ${error.message}` });
  }
  throw new CheckpointError({ file, check: "index", message: "is not a JSON object" });
}

function isPlainName(name: string): boolean {
  return name !== "" && name !== "." && !name.includes("..") && !/[/\\\0]/.test(name);
}
