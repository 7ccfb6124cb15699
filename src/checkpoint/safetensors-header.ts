/**
 * The header of one safetensors file, validated before anything is mapped: only the first 8 + n bytes are read, and
 * whatever is returned lies inside the file, overlaps nothing and has exactly the size that its shape says.
 * Rules: hub.md §10 rows 1–11; format: u64 LE header length, JSON header, tensor bytes.
 */
import { type CheckName, CheckpointError } from "./errors.ts";
import { isJsonObject, type JsonObject, JsonSyntaxError, type JsonValue, parseJson } from "./json.ts";
import { type FileIdentity, readExact, withFile } from "./positional-read.ts";
import { dtypeBits, isSafetensorsDtype, type SafetensorsDtype } from "./safetensors-dtype.ts";

export interface TensorEntry {
  readonly dtype: SafetensorsDtype;
  /** Row-major shape; [] is a scalar. */
  readonly shape: readonly number[];
  /** Absolute position of the first byte in the file. */
  readonly offset: number;
  readonly bytes: number;
}

export interface SafetensorsHeader extends FileIdentity {
  /** Absolute position of the first tensor byte. */
  readonly dataStart: number;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly metadata: ReadonlyMap<string, string>;
  /** Things worth telling that are no errors (unaligned tensors, F64). */
  readonly notes: readonly string[];
}

const HEADER_BYTES_MAX = 100_000_000;
const NAME_BYTES_MAX = 512;
const DIMS_MAX = 8;
const LFS_POINTER = "version https://git-lfs";
const utf8 = new TextEncoder();

/**
 * Reads and checks the header of `file`.
 * @throws CheckpointError naming the file, the tensor and the broken rule
 */
export function readSafetensorsHeader(file: string): SafetensorsHeader {
  return withFile(file, (fd, identity) => {
    const fail = (check: CheckName, message: string): never => {
      throw new CheckpointError({ file, check, message });
    };
    const start = new Uint8Array(Math.min(identity.size, 64));
    readExact(fd, file, start, 0);
    if (identity.size === 0) fail("file", "is empty");
    if (Buffer.from(start).toString("latin1").startsWith(LFS_POINTER)) {
      fail("file", "is a Git LFS pointer: only the pointer was downloaded, not the weights; download the file again");
    }
    if (identity.size < 10) fail("file", `has only ${identity.size} bytes, not a safetensors file`);

    const declared = new DataView(start.buffer).getBigUint64(0, true);
    if (declared > BigInt(HEADER_BYTES_MAX)) {
      fail("header-length", `header length ${declared} is above ${HEADER_BYTES_MAX}; not a safetensors file?`);
    }
    const length = Number(declared);
    if (8 + length > identity.size) {
      fail("header-length", `header length ${length} exceeds the file (${identity.size} bytes); file truncated?`);
    }
    const raw = new Uint8Array(length);
    readExact(fd, file, raw, 8);
    return interpret(identity, raw);
  });
}

function interpret(identity: FileIdentity, raw: Uint8Array): SafetensorsHeader {
  const { file } = identity;
  const dataStart = 8 + raw.byteLength;
  const header = decode(file, raw);
  const metadata = readMetadata(file, header.__metadata__);
  const notes: string[] = [];
  const tensors = new Map<string, TensorEntry>();
  for (const [name, value] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    tensors.set(name, readEntry(identity, dataStart, name, value));
  }
  checkCoverage(identity, dataStart, tensors);
  noteOddities(file, tensors, notes);
  return { ...identity, dataStart, tensors, metadata, notes };
}

function decode(file: string, raw: Uint8Array): JsonObject {
  const fail = (message: string): never => {
    throw new CheckpointError({ file, check: "header-json", message: `not a safetensors header: ${message}` });
  };
  if (raw[0] !== 0x7b) fail("does not begin with '{' at position 0");
  let end = raw.byteLength;
  while (end > 0 && raw[end - 1] === 0x20) end--;
  if (raw[end - 1] !== 0x7d) fail(`does not end with '}' and spaces (position ${end - 1})`);
  let text = "";
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw.subarray(0, end));
  } catch {
    fail("not UTF-8");
  }
  try {
    const value = parseJson(text, { uniqueKeys: true, nonFinite: false });
    return isJsonObject(value) ? value : fail("not an object");
  } catch (error) {
    if (error instanceof JsonSyntaxError) return fail(error.message);
    throw error;
  }
}

function readMetadata(file: string, value: JsonValue | undefined): Map<string, string> {
  const out = new Map<string, string>();
  // MLX writes null when it was given no metadata.
  if (value === undefined || value === null) return out;
  const bad = (message: string): never => {
    throw new CheckpointError({ file, check: "metadata", message });
  };
  if (!isJsonObject(value)) return bad("__metadata__ is not an object");
  for (const [key, text] of Object.entries(value)) {
    if (typeof text !== "string") return bad(`__metadata__ key ${JSON.stringify(key)} is not a string`);
    out.set(key, text);
  }
  return out;
}

function readEntry(identity: FileIdentity, dataStart: number, name: string, value: JsonValue | undefined): TensorEntry {
  const { file } = identity;
  const fail = (check: CheckName, message: string): never => {
    throw new CheckpointError({ file, tensor: name.slice(0, NAME_BYTES_MAX), check, message });
  };
  if (name === "") fail("tensor-name", "a tensor has an empty name");
  if (name.includes("\0")) fail("tensor-name", "the name holds a NUL character");
  if (utf8.encode(name).byteLength > NAME_BYTES_MAX)
    fail("tensor-name", `the name is longer than ${NAME_BYTES_MAX} bytes`);

  if (!isJsonObject(value)) return fail("entry", "the header entry is not an object");
  for (const key of Object.keys(value)) {
    if (key !== "dtype" && key !== "shape" && key !== "data_offsets") {
      fail("entry", `unexpected key ${JSON.stringify(key)}`);
    }
  }
  const { dtype, shape, data_offsets: range } = value;
  if (typeof dtype !== "string") return fail("entry", "key dtype is missing or not a string");
  if (!Array.isArray(shape)) return fail("entry", "key shape is missing or not a list");
  if (!Array.isArray(range) || range.length !== 2)
    return fail("entry", "key data_offsets is not a list of two numbers");
  if (!isSafetensorsDtype(dtype)) return fail("dtype", `unknown dtype ${JSON.stringify(dtype)}`);

  const dims = readShape(shape, (message) => fail("shape", message));
  const bits = dims.reduce((product, dim) => product * dim, 1) * dtypeBits(dtype);
  if (bits % 8 !== 0) fail("offsets", `${dtype} ${shapeText(dims)} does not fill whole bytes`);
  const expected = bits / 8;
  const [begin, end] = range;
  if (!isOffset(begin) || !isOffset(end)) return fail("entry", "data_offsets are not non-negative integers");
  if (begin > end) return fail("offsets", `data_offsets [${begin}, ${end}] run backwards`);
  const available = identity.size - dataStart;
  if (end > available) {
    return fail("offsets", `ends at byte ${end} of the data: file is ${end - available} bytes short: download again`);
  }
  if (end - begin !== expected) {
    return fail("offsets", `${dtype} ${shapeText(dims)} needs ${expected} bytes, the header gives it ${end - begin}`);
  }
  return { dtype, shape: dims, offset: dataStart + begin, bytes: expected };
}

function readShape(shape: readonly JsonValue[], fail: (message: string) => never): number[] {
  if (shape.length > DIMS_MAX) fail(`${shape.length} dimensions, at most ${DIMS_MAX} are read`);
  const dims: number[] = [];
  // Zero dimensions are left out of the product: [2^40, 2^40, 0] must not slip through as empty.
  let product = 1;
  for (const dim of shape) {
    if (!isOffset(dim)) return fail(`dimension ${JSON.stringify(dim)} is not a non-negative integer`);
    if (dim > 0) product *= dim;
    dims.push(dim);
  }
  // 64 bits an element at most: the byte count must be exact as well.
  if (product * 8 > Number.MAX_SAFE_INTEGER) fail(`${shapeText(dims)} holds too many elements`);
  return dims;
}

function isOffset(value: JsonValue | undefined): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function shapeText(shape: readonly number[]): string {
  return `[${shape.join(", ")}]`;
}

/** Rows 8 and 9: tensors in order of position cover the data without overlap or hole. Empty tensors are exempt. */
function checkCoverage(identity: FileIdentity, dataStart: number, tensors: ReadonlyMap<string, TensorEntry>): void {
  const sorted = [...tensors].filter(([, entry]) => entry.bytes > 0).sort(([, a], [, b]) => a.offset - b.offset);
  let at = dataStart;
  let previous: string | null = null;
  for (const [name, entry] of sorted) {
    if (entry.offset !== at) {
      const kind = entry.offset < at ? "overlaps" : `leaves a hole of ${entry.offset - at} bytes after`;
      const other = previous === null ? "the header" : `tensor ${JSON.stringify(previous)}`;
      throw new CheckpointError({ file: identity.file, tensor: name, check: "coverage", message: `${kind} ${other}` });
    }
    at += entry.bytes;
    previous = name;
  }
  if (at !== identity.size) {
    const message = `${identity.size - at} bytes after the last tensor${previous === null ? "" : ` ${JSON.stringify(previous)}`} belong to none`;
    throw new CheckpointError({ file: identity.file, check: "coverage", message });
  }
}

function noteOddities(file: string, tensors: ReadonlyMap<string, TensorEntry>, notes: string[]): void {
  let unaligned = 0;
  let wide = 0;
  for (const entry of tensors.values()) {
    if (entry.offset % Math.max(1, dtypeBits(entry.dtype) / 8) !== 0) unaligned++;
    if (entry.dtype === "F64") wide++;
  }
  if (unaligned > 0) notes.push(`${file}: ${unaligned} tensors are not aligned to their element size and are copied`);
  if (wide > 0) notes.push(`${file}: ${wide} F64 tensors are narrowed to float32`);
}
