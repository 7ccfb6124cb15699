/** Every rule of a safetensors header by a file that breaks it, and random damage that must never do more than throw. */
import { describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type CheckName, CheckpointError } from "../../src/checkpoint/errors.ts";
import { readSafetensorsHeader } from "../../src/checkpoint/safetensors-header.ts";
import { put, safetensorsBytes, temporaryFolder, tinySafetensors } from "./temporary-folder.ts";

const dir = temporaryFolder();

function refusal(bytes: string | Uint8Array): CheckpointError {
  const file = put(dir, "model.safetensors", bytes);
  try {
    readSafetensorsHeader(file);
  } catch (error) {
    if (error instanceof CheckpointError) return error;
    throw error;
  }
  throw new Error("the file was accepted");
}

const entry = (dtype: unknown, shape: unknown, begin: unknown, end: unknown) => ({
  dtype,
  shape,
  data_offsets: [begin, end],
});

test("a sound file gives absolute positions, metadata and shapes", () => {
  const header = { __metadata__: { format: "mlx" }, b: entry("F16", [2, 2], 8, 16), a: entry("F32", [2], 0, 8) };
  const bytes = safetensorsBytes(header, new Uint8Array(16));
  const read = readSafetensorsHeader(put(dir, "sound.safetensors", bytes));
  expect(read.size).toBe(bytes.byteLength);
  expect(read.dataStart).toBe(bytes.byteLength - 16);
  expect(read.metadata.get("format")).toBe("mlx");
  expect(read.tensors.get("a")).toEqual({ dtype: "F32", shape: [2], offset: read.dataStart, bytes: 8 });
  expect(read.tensors.get("b")).toEqual({ dtype: "F16", shape: [2, 2], offset: read.dataStart + 8, bytes: 8 });
});

test("scalars, empty tensors, null metadata and trailing spaces are accepted", () => {
  const header = JSON.stringify({ __metadata__: null, s: entry("F32", [], 0, 4), z: entry("F32", [0, 7], 4, 4) });
  const read = readSafetensorsHeader(put(dir, "odd.safetensors", safetensorsBytes(`${header}   `, new Uint8Array(4))));
  expect(read.tensors.get("s")?.bytes).toBe(4);
  expect(read.tensors.get("z")?.shape).toEqual([0, 7]);
});

test("a tensor called __proto__ is a tensor", () => {
  const raw = '{"__proto__":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}';
  const read = readSafetensorsHeader(put(dir, "proto.safetensors", safetensorsBytes(raw, new Uint8Array(1))));
  expect([...read.tensors.keys()]).toEqual(["__proto__"]);
});

test("unaligned tensors and F64 are notes, not errors", () => {
  const header = { a: entry("U8", [1], 0, 1), b: entry("F64", [1], 1, 9) };
  const read = readSafetensorsHeader(put(dir, "notes.safetensors", safetensorsBytes(header, new Uint8Array(9))));
  expect(read.notes.join("\n")).toContain("F64");
  expect(read.notes.join("\n")).toContain("aligned");
});

describe("what is refused, and as what", () => {
  const good = entry("F32", [2], 0, 8);
  const data = new Uint8Array(8);
  const one = (value: unknown) => safetensorsBytes({ "model.w": value }, data);
  const rows: readonly (readonly [label: string, bytes: string | Uint8Array, check: CheckName, message: RegExp])[] = [
    ["empty file", "", "file", /empty/],
    ["LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "file", /only the pointer/],
    ["nine bytes", "123456789", "file", /9 bytes/],
    ["header length beyond 100 MB", Buffer.from("ffffffffffffffff00000000", "hex"), "header-length", /above/],
    [
      "header length beyond the file",
      safetensorsBytes({ a: good }, data).subarray(0, 30),
      "header-length",
      /truncated/,
    ],
    ["not JSON", safetensorsBytes("{ nonsense }", data), "header-json", /position/],
    ["array", safetensorsBytes("[]", data), "header-json", /'\{'/],
    ["leading blank", safetensorsBytes(' {"a":1}', data), "header-json", /position 0/],
    ["trailing newline", safetensorsBytes(`${JSON.stringify({ a: good })}\n`, data), "header-json", /spaces/],
    ["bad UTF-8", withLength(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])), "header-json", /UTF-8/],
    [
      "duplicate key",
      safetensorsBytes(`{"a":${JSON.stringify(good)},"a":${JSON.stringify(good)}}`, data),
      "header-json",
      /twice/,
    ],
    ["metadata list", safetensorsBytes({ __metadata__: [], a: good }, data), "metadata", /object/],
    ["metadata number", safetensorsBytes({ __metadata__: { n: 1 }, a: good }, data), "metadata", /"n"/],
    ["entry is a number", one(7), "entry", /object/],
    ["no dtype", one({ shape: [2], data_offsets: [0, 8] }), "entry", /dtype/],
    ["no shape", one({ dtype: "F32", data_offsets: [0, 8] }), "entry", /shape/],
    ["no offsets", one({ dtype: "F32", shape: [2] }), "entry", /data_offsets/],
    ["three offsets", one({ dtype: "F32", shape: [2], data_offsets: [0, 4, 8] }), "entry", /data_offsets/],
    ["extra key", one({ ...good, stride: 1 }), "entry", /stride/],
    ["unknown dtype", one(entry("C64", [1], 0, 8)), "dtype", /C64/],
    ["negative dim", one(entry("F32", [-2], 0, 8)), "shape", /-2/],
    ["fraction", one(entry("F32", [1.5], 0, 8)), "shape", /1\.5/],
    ["nine dims", one(entry("F32", [1, 1, 1, 1, 1, 1, 1, 1, 2], 0, 8)), "shape", /9 dimensions/],
    ["product overflow", one(entry("U8", [2 ** 40, 2 ** 40, 0], 0, 0)), "shape", /too many/],
    ["half a byte", one(entry("F4", [15], 0, 8)), "offsets", /whole bytes/],
    ["backwards", one(entry("F32", [2], 8, 0)), "offsets", /backwards/],
    ["past the end", one(entry("F32", [3], 0, 12)), "offsets", /4 bytes short: download again/],
    ["size differs", one(entry("F32", [1], 0, 8)), "offsets", /needs 4 bytes/],
    ["negative offset", one(entry("F32", [2], -8, 0)), "entry", /integers/],
    [
      "overlap",
      safetensorsBytes({ a: entry("F32", [1], 0, 4), b: entry("F32", [1], 2, 6) }, data.subarray(0, 6)),
      "coverage",
      /overlaps tensor "a"/,
    ],
    [
      "hole",
      safetensorsBytes({ a: entry("F32", [1], 0, 4), b: entry("F32", [1], 5, 9) }, new Uint8Array(9)),
      "coverage",
      /hole of 1 bytes/,
    ],
    ["not at 0", one(entry("F32", [1], 4, 8)), "coverage", /header/],
    ["bytes left over", one(entry("F32", [1], 0, 4)), "coverage", /4 bytes after/],
    ["empty name", safetensorsBytes({ "": good }, data), "tensor-name", /empty/],
    ["NUL in a name", safetensorsBytes({ "a\0": good }, data), "tensor-name", /NUL/],
    ["long name", safetensorsBytes({ ["é".repeat(257)]: good }, data), "tensor-name", /512/],
  ];
  test.each(rows)("%s", (_label, bytes, check, message) => {
    const error = refusal(bytes);
    expect(error.check).toBe(check);
    expect(error.message).toMatch(message);
    expect(error.message).toContain("model.safetensors");
  });

  test("the message names the tensor", () => {
    expect(refusal(one(entry("F32", [3], 0, 12))).tensor).toBe("model.w");
  });

  test("a folder and a missing file", () => {
    const folder = path.join(dir, "folder.safetensors");
    mkdirSync(folder);
    expect(() => readSafetensorsHeader(folder)).toThrow(CheckpointError);
    expect(() => readSafetensorsHeader(path.join(dir, "absent"))).toThrow(CheckpointError);
  });
});

function withLength(json: Buffer): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.byteLength));
  return Buffer.concat([length, json, Buffer.alloc(8)]);
}

test("10,000 random mutations: refused as a CheckpointError, or still sound", () => {
  const base = tinySafetensors({
    "model.a.weight": { dtype: "F32", shape: [2, 3], bytes: 24 },
    "model.b.weight": { dtype: "F16", shape: [4], bytes: 8 },
    "model.c.scales": { dtype: "U8", shape: [5], bytes: 5 },
  });
  const random = generator(1);
  const file = path.join(dir, "fuzz.safetensors");
  let accepted = 0;
  for (let round = 0; round < 10_000; round++) {
    writeFileSync(file, mutate(base, random));
    try {
      const header = readSafetensorsHeader(file);
      accepted++;
      let end = header.dataStart;
      for (const tensor of [...header.tensors.values()].sort((a, b) => a.offset - b.offset)) {
        if (tensor.bytes === 0) continue;
        expect(tensor.offset).toBe(end);
        end += tensor.bytes;
      }
      expect(end).toBe(header.size);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
    }
  }
  // Some mutations only rename a tensor: were none accepted, the fuzzer would test nothing but the first check.
  expect(accepted).toBeGreaterThan(100);
  expect(accepted).toBeLessThan(9_000);
}, 60_000);

/** Deterministic pseudo-random integers below n (mulberry32). */
function generator(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

const TOKENS = [
  "0",
  "-1",
  "1e999",
  "null",
  "[]",
  "{}",
  '"',
  ",",
  ":",
  "9007199254740993",
  "NaN",
  "\\u0000",
  "[[[[[[",
  " ",
];

function mutate(base: Buffer, random: (n: number) => number): Buffer {
  let bytes = Buffer.from(base);
  for (let i = 0; i <= random(3); i++) {
    const at = random(bytes.byteLength);
    switch (random(6)) {
      case 0:
        bytes[at] = random(256);
        break;
      case 1:
        bytes = bytes.subarray(0, at);
        break;
      case 2:
        bytes[random(8)] = random(256);
        break;
      case 3: {
        // A digit of the header becomes another one.
        const digit = bytes.subarray(8).findIndex((b, k) => k >= at && b >= 0x30 && b <= 0x39);
        if (digit >= 0) bytes[8 + digit] = 0x30 + random(10);
        break;
      }
      case 4: {
        const token = Buffer.from(TOKENS[random(TOKENS.length)] ?? "");
        const header = Buffer.concat([bytes.subarray(8, at), token, bytes.subarray(Math.max(8, at))]);
        const length = Buffer.alloc(8);
        length.writeBigUInt64LE(BigInt(Math.max(0, header.byteLength - 37)));
        bytes = Buffer.concat([length, header]);
        break;
      }
      default:
        bytes = Buffer.concat([bytes, Buffer.alloc(random(4))]);
    }
    if (bytes.byteLength === 0) return bytes;
  }
  return bytes;
}
