/** A model folder's weights as one table: which files count, what an index may say, and what must go together. */
import { describe, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { CheckpointError } from "../../src/checkpoint/errors.ts";
import { openCheckpoint, readTensorBytes } from "../../src/checkpoint/safetensors-set.ts";
import { put, type TinyTensor, temporaryFolder, tinySafetensors } from "./temporary-folder.ts";

const root = temporaryFolder();
let count = 0;

function folder(files: Readonly<Record<string, string | Uint8Array>>): string {
  const dir = path.join(root, `m${count++}`);
  mkdirSync(dir);
  for (const [name, bytes] of Object.entries(files)) put(dir, name, bytes);
  return dir;
}

function refusal(dir: string, drafter = false): CheckpointError {
  try {
    openCheckpoint(dir, { drafter });
  } catch (error) {
    if (error instanceof CheckpointError) return error;
    throw error;
  }
  throw new Error("the folder was accepted");
}

const f32 = (n: number): TinyTensor => ({ dtype: "F32", shape: [n], bytes: 4 * n });
const INDEX = "model.safetensors.index.json";
const index = (weight_map: Record<string, unknown>, total_size?: number) =>
  JSON.stringify({ metadata: { total_size }, weight_map });

describe("which files", () => {
  test("a single file", () => {
    const checkpoint = openCheckpoint(folder({ "model.safetensors": tinySafetensors({ a: f32(1) }) }));
    expect([...checkpoint.tensors.keys()]).toEqual(["a"]);
  });

  test("model*.safetensors before others; consolidated, adapter and fp32 copies never", () => {
    const one = tinySafetensors({ a: f32(1) });
    const dir = folder({
      "model-00001-of-00002.safetensors": one,
      "vision.safetensors": tinySafetensors({ b: f32(1) }),
    });
    expect([...openCheckpoint(dir).tensors.keys()]).toEqual(["a"]);
    const others = folder({
      "weights.safetensors": one,
      "consolidated.safetensors": one,
      "adapter_model.safetensors": one,
      "model.fp32.safetensors": one,
    });
    expect(openCheckpoint(others).files.map((f) => path.basename(f.file))).toEqual(["weights.safetensors"]);
  });

  test("a drafter takes every *.safetensors", () => {
    const dir = folder({
      "model.safetensors": tinySafetensors({ a: f32(1) }),
      "head.safetensors": tinySafetensors({ b: f32(2) }),
    });
    expect([...openCheckpoint(dir, { drafter: true }).tensors.keys()].sort()).toEqual(["a", "b"]);
    expect([...openCheckpoint(dir).tensors.keys()]).toEqual(["a"]);
  });

  test("none, and only pytorch_model.bin", () => {
    expect(refusal(folder({})).message).toContain("no *.safetensors");
    expect(refusal(folder({ "pytorch_model.bin": "x" })).message).toContain("pytorch_model.bin");
  });
});

describe("the index", () => {
  const a = tinySafetensors({ a: f32(1) });
  const b = tinySafetensors({ b: f32(2) });

  test("shards are merged and located", () => {
    const dir = folder({
      "m-1.safetensors": a,
      "m-2.safetensors": b,
      [INDEX]: index({ a: "m-1.safetensors", b: "m-2.safetensors" }, 12),
    });
    const checkpoint = openCheckpoint(dir);
    expect(checkpoint.tensors.get("b")?.file).toBe(path.join(dir, "m-2.safetensors"));
    expect(checkpoint.notes).toEqual([]);
  });

  test("total_size that differs, and tensors that it does not name, are notes", () => {
    const dir = folder({
      "m-1.safetensors": tinySafetensors({ a: f32(1), x: f32(1) }),
      [INDEX]: index({ a: "m-1.safetensors" }, 5),
    });
    const { notes, tensors } = openCheckpoint(dir);
    expect(notes.some((note) => note.includes("total_size"))).toBe(true);
    expect(notes.some((note) => note.includes("not in the index"))).toBe(true);
    expect(tensors.has("x")).toBe(true);
  });

  test("it decides between two files that hold one tensor; without it that is an error", () => {
    const files = { "model-1.safetensors": a, "model-2.safetensors": a };
    const dir = folder({ ...files, [INDEX]: index({ a: "model-2.safetensors" }) });
    expect(openCheckpoint(dir).tensors.get("a")?.file).toBe(path.join(dir, "model-2.safetensors"));
    const error = refusal(folder(files));
    expect(error.tensor).toBe("a");
    expect(error.message).toContain("model-1.safetensors");
    expect(error.message).toContain("model-2.safetensors");
  });

  test("missing shard and missing tensor, with how many more", () => {
    const dir = folder({
      "m-1.safetensors": a,
      [INDEX]: index({ a: "m-1.safetensors", b: "m-2.safetensors", c: "m-3.safetensors" }),
    });
    expect(refusal(dir).message).toMatch(/m-2\.safetensors.*missing.*1 more/);
    const other = folder({
      "m-1.safetensors": a,
      [INDEX]: index({ a: "m-1.safetensors", b: "m-1.safetensors", c: "m-1.safetensors" }),
    });
    expect(refusal(other).message).toMatch(/"b".*1 more/);
  });

  test.each([
    ["not JSON", "{"],
    ["no weight_map", "{}"],
    ["empty map", '{"weight_map":{}}'],
    ["parent folder", index({ a: "../m-1.safetensors" })],
    ["absolute", index({ a: "/etc/passwd" })],
    ["subfolder", index({ a: "sub/m.safetensors" })],
    ["backslash", index({ a: "sub\\m.safetensors" })],
    ["number", index({ a: 3 })],
  ])("refused: %s", (_label, text) => {
    expect(refusal(folder({ "m-1.safetensors": a, [INDEX]: text })).check).toBe("index");
  });
});

describe("what belongs together", () => {
  const u32 = (...shape: number[]): TinyTensor => ({ dtype: "U32", shape, bytes: 4 * shape.reduce((x, y) => x * y) });
  const f16 = (...shape: number[]): TinyTensor => ({ dtype: "F16", shape, bytes: 2 * shape.reduce((x, y) => x * y) });
  const u8 = (...shape: number[]): TinyTensor => ({ dtype: "U8", shape, bytes: shape.reduce((x, y) => x * y) });
  const model = (tensors: Record<string, TinyTensor>) => folder({ "model.safetensors": tinySafetensors(tensors) });

  test("affine and floating-point triples", () => {
    openCheckpoint(model({ "p.weight": u32(4, 8), "p.scales": f16(4, 2), "p.biases": f16(4, 2) }));
    openCheckpoint(model({ "p.weight": u32(4, 8), "p.scales": u8(4, 4) }));
  });

  test.each([
    ["biases alone", { "p.weight": f16(4), "p.biases": f16(4, 2) }],
    ["no weight", { "p.scales": f16(4, 2), "p.biases": f16(4, 2) }],
    ["no biases", { "p.weight": u32(4, 8), "p.scales": f16(4, 2) }],
    ["biases of another shape", { "p.weight": u32(4, 8), "p.scales": f16(4, 2), "p.biases": f16(4, 1) }],
    ["scales of other rows", { "p.weight": u32(4, 8), "p.scales": f16(2, 2), "p.biases": f16(2, 2) }],
    ["float weight", { "p.weight": f16(4, 8), "p.scales": f16(4, 2), "p.biases": f16(4, 2) }],
    ["impossible width", { "p.weight": u32(4, 7), "p.scales": f16(4, 2), "p.biases": f16(4, 2) }],
    ["uint8 scales with biases", { "p.weight": u32(4, 8), "p.scales": u8(4, 2), "p.biases": f16(4, 2) }],
  ])("refused: %s", (_label, tensors) => {
    const error = refusal(model(tensors));
    expect(error.check).toBe("triple");
    expect(error.tensor).toStartWith("p.");
  });

  test("8-bit floats only beside their scales", () => {
    const fp8: TinyTensor = { dtype: "F8_E4M3", shape: [4], bytes: 4 };
    openCheckpoint(model({ "p.weight": u8(4, 8), "p.weight_scale": { dtype: "F8_E4M3", shape: [4, 1], bytes: 4 } }));
    expect(refusal(model({ "p.weight": fp8 })).check).toBe("dtype");
  });
});

test("bytes are read only from the file that was checked", () => {
  const dir = folder({ "model.safetensors": tinySafetensors({ a: f32(2), b: f32(1) }) });
  const checkpoint = openCheckpoint(dir);
  expect(readTensorBytes(checkpoint, "b")).toEqual(new Uint8Array(4));
  expect(() => readTensorBytes(checkpoint, "c")).toThrow(CheckpointError);
  rmSync(path.join(dir, "model.safetensors"));
  writeFileSync(path.join(dir, "model.safetensors"), tinySafetensors({ a: f32(2), b: f32(1), c: f32(9) }));
  expect(() => readTensorBytes(checkpoint, "b")).toThrow(/changed/);
});
