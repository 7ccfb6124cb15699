/**
 * The header of a GGUF file (versions 2 and 3, little-endian): typed metadata and tensor places. Only the header is
 * read, through a window; every tensor that is returned lies inside the file and overlaps no other.
 * Rules: models-dense.md §8.1 and the GGUF line of hub.md §10.
 */
import { type CheckName, CheckpointError } from "./errors.ts";
import { GgufMetadata, type GgufValue } from "./gguf-metadata.ts";
import { type GgmlType, ggmlType } from "./gguf-types.ts";
import { type FileIdentity, withFile } from "./positional-read.ts";
import { WindowReader } from "./window-reader.ts";

export interface GgufTensor {
  readonly name: string;
  readonly type: GgmlType;
  /** Row-major shape (the file's dimensions reversed). */
  readonly shape: readonly number[];
  readonly file: string;
  /** Absolute byte position in the file. */
  readonly offset: number;
  readonly bytes: number;
}

export interface GgufFile extends FileIdentity {
  readonly version: number;
  readonly alignment: number;
  readonly metadata: GgufMetadata;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

const COUNT_MAX = 1_000_000;
const ARRAY_ELEMENTS_MAX = 10_000_000;
const DIMS_MAX = 4;
const MAGIC = 0x46554747;

/** @throws CheckpointError naming the file and what is wrong with it */
export function readGguf(file: string): GgufFile {
  return withFile(file, (fd, identity) => {
    const error = (message: string, check: CheckName = "gguf", tensor?: string) =>
      new CheckpointError({ file, check, message, tensor });
    if (identity.size < 24) throw error(`has only ${identity.size} bytes, not a GGUF file`);
    const reader = new WindowReader(fd, file, identity.size);
    if (reader.u32() !== MAGIC) throw error("does not begin with GGUF");
    const version = reader.u32();
    if (version === 0x02000000 || version === 0x03000000)
      throw error("is big-endian; only little-endian files are read");
    if (version !== 2 && version !== 3) throw error(`has version ${version}; versions 2 and 3 are read`);
    const tensorCount = reader.size();
    const keyCount = reader.size();
    if (tensorCount > COUNT_MAX || keyCount > COUNT_MAX) {
      throw error(`declares ${tensorCount} tensors and ${keyCount} keys; at most ${COUNT_MAX} are read`);
    }

    const values = new Map<string, GgufValue>();
    for (let i = 0; i < keyCount; i++) {
      const key = reader.string();
      if (key === "" || values.has(key)) throw error(`metadata key ${JSON.stringify(key)} is empty or appears twice`);
      values.set(key, readValue(reader, key, reader.u32(), error));
    }
    const metadata = new GgufMetadata(file, values);
    const alignment = metadata.int("general.alignment", 32);
    if (alignment < 1 || alignment > 65536 || (alignment & (alignment - 1)) !== 0) {
      throw error(`general.alignment ${alignment} is not a power of two up to 65536`);
    }
    const infos = Array.from({ length: tensorCount }, () => readInfo(reader, error));
    const dataStart = Math.ceil(reader.position / alignment) * alignment;
    const tensors = new Map<string, GgufTensor>();
    for (const { name, type, shape, relative } of infos) {
      if (tensors.has(name)) throw error("appears twice", "tensor-name", name);
      if (relative % alignment !== 0) throw error(`offset ${relative} is not aligned to ${alignment}`, "offsets", name);
      const bytes = (shape.reduce((a, b) => a * b, 1) / type.blockElements) * type.blockBytes;
      const end = dataStart + relative + bytes;
      if (end > identity.size) {
        throw error(`file is ${end - identity.size} bytes short: download again`, "offsets", name);
      }
      tensors.set(name, { name, type, shape, file, offset: dataStart + relative, bytes });
    }
    checkOverlap(tensors, error);
    return { ...identity, version, alignment, metadata, tensors };
  });
}

type MakeError = (message: string, check?: CheckName, tensor?: string) => CheckpointError;

interface TensorInfo {
  readonly name: string;
  readonly type: GgmlType;
  readonly shape: readonly number[];
  readonly relative: number;
}

function readInfo(reader: WindowReader, error: MakeError): TensorInfo {
  const name = reader.string();
  if (name === "" || name.includes("\0"))
    throw error("a tensor has an empty name or one with NUL", "tensor-name", name);
  const dims = reader.u32();
  if (dims < 1 || dims > DIMS_MAX) throw error(`has ${dims} dimensions; 1 to ${DIMS_MAX} are read`, "shape", name);
  const fastestFirst = Array.from({ length: dims }, () => reader.size());
  const product = fastestFirst.reduce((a, b) => a * b, 1);
  if (fastestFirst.includes(0) || product * 8 > Number.MAX_SAFE_INTEGER) {
    throw error(`dimensions [${fastestFirst}] are empty or too large`, "shape", name);
  }
  const id = reader.u32();
  const type = ggmlType(id);
  if (type === null) throw error(`has the unknown tensor type ${id}`, "gguf-type", name);
  if ((fastestFirst[0] ?? 0) % type.blockElements !== 0) {
    throw error(`rows of ${fastestFirst[0]} elements are not whole ${type.name} blocks`, "shape", name);
  }
  return { name, type, shape: fastestFirst.reverse(), relative: reader.size() };
}

function checkOverlap(tensors: ReadonlyMap<string, GgufTensor>, error: MakeError): void {
  let previous: GgufTensor | null = null;
  for (const tensor of [...tensors.values()].sort((a, b) => a.offset - b.offset)) {
    if (previous !== null && tensor.offset < previous.offset + previous.bytes) {
      throw error(`overlaps ${JSON.stringify(previous.name)}`, "coverage", tensor.name);
    }
    previous = tensor;
  }
}

function readValue(reader: WindowReader, key: string, type: number, error: MakeError): GgufValue {
  if (type !== 9) return readScalar(reader, key, type, error);
  const elementType = reader.u32();
  const count = reader.size();
  if (count > ARRAY_ELEMENTS_MAX)
    throw error(`metadata key ${key}: ${count} elements; at most ${ARRAY_ELEMENTS_MAX} are read`);
  // The smallest element has one byte: a count beyond the file is a lie, seen before anything is allocated.
  if (count > reader.remaining) throw error(`metadata key ${key}: ${count} elements do not fit into the file`);
  if (elementType === 9) throw error(`metadata key ${key}: arrays of arrays are not read`);
  const out: (string | number | bigint | boolean)[] = [];
  for (let i = 0; i < count; i++) out.push(readScalar(reader, key, elementType, error));
  return out;
}

function readScalar(
  reader: WindowReader,
  key: string,
  type: number,
  error: MakeError,
): string | number | bigint | boolean {
  switch (type) {
    case 0:
      return reader.u8();
    case 1:
      return (reader.u8() << 24) >> 24;
    case 2:
      return reader.u16();
    case 3:
      return (reader.u16() << 16) >> 16;
    case 4:
      return reader.u32();
    case 5:
      return reader.u32() | 0;
    case 6:
      return reader.f32();
    case 7:
      return readBool(reader.u8(), key, error);
    case 8:
      return reader.string();
    case 10:
      return narrow(reader.u64());
    case 11:
      return narrow(BigInt.asIntN(64, reader.u64()));
    case 12:
      return reader.f64();
    default:
      throw error(`metadata key ${key}: unknown value type ${type}`);
  }
}

function readBool(byte: number, key: string, error: MakeError): boolean {
  if (byte > 1) throw error(`metadata key ${key}: ${byte} is not a boolean`);
  return byte === 1;
}

/** 64-bit integers are numbers where that is exact, else bigint. */
function narrow(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}
