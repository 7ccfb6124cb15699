/** The GGUF header: every type of value, and every lie that a file can tell about its sizes. */
import { describe, expect, test } from "bun:test";
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { CheckpointError } from "../../src/checkpoint/errors.ts";
import { readGguf } from "../../src/checkpoint/gguf-container.ts";
import { ggufParts, ggufStem, readGgufSet } from "../../src/checkpoint/gguf-split.ts";
import { type GgufTensorSpec, ggufBytes, ggufString } from "./gguf-writer.ts";
import { put, temporaryFolder } from "./temporary-folder.ts";

const dir = temporaryFolder();
const golden = path.join(import.meta.dir, "..", "data", "golden", "dense", "gguf");
const f32 = (name: string, n = 4): GgufTensorSpec => ({ name, shape: [n], type: 0, data: new Uint8Array(4 * n) });

function refusal(bytes: Uint8Array): CheckpointError {
  const file = put(dir, "bad.gguf", bytes);
  try {
    readGguf(file);
  } catch (error) {
    if (error instanceof CheckpointError) return error;
    throw error;
  }
  throw new Error("the file was accepted");
}

test("values of every type, and tensors in row-major shape", () => {
  const bytes = ggufBytes(
    [
      ["s", { string: "é" }],
      ["u", { u32: 4294967295 }],
      ["i", { i32: -5 }],
      ["big", { u64: 2n ** 63n }],
      ["small", { u64: 7n }],
      ["f", { f32: 0.5 }],
      ["b", { bool: 1 }],
      ["list", { strings: ["a", ""] }],
      ["ints", { ints: [1, -1] }],
    ],
    [{ name: "m", shape: [2, 32], type: 2, data: new Uint8Array(36).fill(1) }, { ...f32("v") }],
  );
  const gguf = readGguf(put(dir, "good.gguf", bytes));
  const { metadata } = gguf;
  expect(metadata.string("s")).toBe("é");
  expect(metadata.int("u")).toBe(4294967295);
  expect(metadata.int("i")).toBe(-5);
  expect(metadata.values.get("big")).toBe(2n ** 63n);
  expect(() => metadata.int("big")).toThrow(/big/);
  expect(metadata.int("small")).toBe(7);
  expect(metadata.number("f")).toBe(0.5);
  expect(metadata.bool("b")).toBe(true);
  expect(metadata.strings("list")).toEqual(["a", ""]);
  expect(metadata.ints("ints")).toEqual([1, -1]);
  expect(() => metadata.uniformInt("ints")).toThrow(/layer/);
  expect(() => metadata.string("absent")).toThrow(/absent.*required/);
  const m = gguf.tensors.get("m");
  expect(m?.shape).toEqual([2, 32]);
  expect(m?.type.name).toBe("Q4_0");
  expect(m?.bytes).toBe(36);
  expect((m?.offset ?? 1) % 32).toBe(0);
  expect(bytes[m?.offset ?? 0]).toBe(1);
});

test("a header larger than one window is read whole", () => {
  const strings = Array.from({ length: 40_000 }, (_, i) => `token number ${i} with some more text in it`);
  const gguf = readGguf(put(dir, "long.gguf", ggufBytes([["t", { strings }]], [f32("v")])));
  expect(gguf.metadata.strings("t")).toEqual(strings);
});

describe("refused", () => {
  const one = ggufBytes([["k", { u32: 1 }]], [f32("v")]);
  const patched = (at: number, hex: string) => {
    const out = Buffer.from(one);
    Buffer.from(hex, "hex").copy(out, at);
    return out;
  };
  const raw = (hex: string) => ({ raw: Buffer.from(hex, "hex") });
  test.each<readonly [string, Uint8Array, RegExp]>([
    ["short", one.subarray(0, 20), /20 bytes/],
    ["magic", patched(0, "58585858"), /GGUF/],
    ["version 1", ggufBytes([], [], 1), /version 1/],
    ["big-endian", patched(4, "00000003"), /big-endian/],
    ["too many tensors", patched(8, "ffffff7f00000000"), /at most/],
    ["absurd count", patched(16, "ffffffffffffffff"), /absurd/],
    ["string beyond the file", patched(24, "ffffff0000000000"), /exceeds the file/],
    ["truncated header", ggufBytes([["k", { string: "x".repeat(200) }]], []).subarray(0, 100), /exceeds|truncated/],
    [
      "key twice",
      ggufBytes(
        [
          ["k", { u32: 1 }],
          ["k", { u32: 2 }],
        ],
        [],
      ),
      /twice/,
    ],
    ["unknown value type", ggufBytes([["k", raw("63000000")]], [f32("v")]), /unknown value type 99/],
    ["array of arrays", ggufBytes([["k", raw("09000000090000000100000000000000")]], [f32("v")]), /arrays of arrays/],
    [
      "array longer than the file",
      ggufBytes([["k", raw("0900000000000000ffff000000000000")]], [f32("v")]),
      /do not fit/,
    ],
    ["array above 10^7", ggufBytes([["k", raw("0900000000000000ffffffff00000000")]], [f32("v")]), /at most/],
    ["boolean 2", ggufBytes([["k", { bool: 2 }]], [f32("v")]), /boolean/],
    ["alignment 24", ggufBytes([["general.alignment", { u32: 24 }]], [f32("v")]), /alignment/],
    ["tensor twice", ggufBytes([], [f32("v"), f32("v")]), /twice/],
    ["five dims", ggufBytes([], [{ ...f32("v"), shape: [1, 1, 1, 1, 4] }]), /5 dimensions/],
    ["zero dim", ggufBytes([], [{ ...f32("v"), shape: [0] }]), /empty/],
    ["unknown type", ggufBytes([], [{ ...f32("v"), type: 77 }]), /type 77/],
    ["broken block", ggufBytes([], [{ ...f32("v"), shape: [33], type: 2 }]), /Q4_0 blocks/],
    ["unaligned", ggufBytes([], [{ ...f32("v"), offset: 4 }]), /aligned/],
    ["past the end", ggufBytes([], [{ ...f32("v"), shape: [400] }]), /bytes short/],
    ["overlap", ggufBytes([], [f32("a", 16), { ...f32("b", 8), offset: 32 }]), /overlaps "a"/],
    ["bad UTF-8", ggufBytes([["k", raw("080000000100000000000000ff")]], [f32("v")]), /UTF-8/],
  ])("%s", (_label, bytes, message) => {
    expect(refusal(bytes).message).toMatch(message);
  });

  test("a string helper that is not itself wrong", () => {
    expect(ggufString("ab").toString("hex")).toBe("02000000000000006162");
  });
});

describe("split models", () => {
  const part = (no: number, count: number, tensor: string) =>
    ggufBytes(
      [
        ["split.no", { u32: no }],
        ["split.count", { u32: count }],
        ["only", { u32: no }],
      ],
      [f32(tensor)],
    );

  test("any part leads to the whole", () => {
    const names = ["M-00001-of-00002.gguf", "M-00002-of-00002.gguf"];
    put(dir, names[0] ?? "", part(0, 2, "a"));
    const second = put(dir, names[1] ?? "", part(1, 2, "b"));
    const set = readGgufSet(second);
    expect(ggufParts(second).map((file) => path.basename(file))).toEqual(names);
    expect(ggufStem(second)).toBe("M");
    expect([...set.tensors.keys()]).toEqual(["a", "b"]);
    expect(set.metadata.int("only")).toBe(0);
    expect(set.tensors.get("b")?.file).toBe(second);
  });

  test("missing, foreign and doubled parts", () => {
    const alone = put(dir, "N-00002-of-00003.gguf", part(1, 3, "b"));
    expect(() => readGgufSet(alone)).toThrow(/N-00001-of-00003\.gguf.*missing.*2 of 3/);
    put(dir, "O-00001-of-00002.gguf", part(0, 2, "a"));
    const wrong = put(dir, "O-00002-of-00002.gguf", part(0, 2, "b"));
    expect(() => readGgufSet(wrong)).toThrow(/part 1 of 2.*2 of 2/);
    writeFileSync(wrong, part(1, 2, "a"));
    expect(() => readGgufSet(wrong)).toThrow(/another part/);
  });
});

test("2,000 random mutations of a real header never do more than throw", () => {
  const source = path.join(golden, "qwen3-q4.gguf");
  expect(existsSync(source)).toBe(true);
  const base = readFileSync(source);
  const file = path.join(dir, "fuzz.gguf");
  copyFileSync(source, file);
  let state = 12345;
  const random = (n: number) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
  let refused = 0;
  for (let round = 0; round < 2_000; round++) {
    const bytes = Buffer.from(base.subarray(0, random(20) === 0 ? random(base.byteLength) : base.byteLength));
    for (let i = 0; i <= random(3); i++) {
      // Mostly in the counts and the tensor table, where damage hurts.
      const at = random(3) === 0 ? random(64) : random(12_000);
      if (at < bytes.byteLength) bytes[at] = random(2) === 0 ? 0xff : random(256);
    }
    writeFileSync(file, bytes);
    try {
      const gguf = readGguf(file);
      for (const tensor of gguf.tensors.values()) expect(tensor.offset + tensor.bytes).toBeLessThanOrEqual(gguf.size);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      refused++;
    }
  }
  expect(refused).toBeGreaterThan(200);
}, 60_000);
