/** The streaming writer: what it writes is what the reader accepts, in any order of pieces; nothing else is finished. */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import path from "node:path";
import { readSafetensorsHeader } from "../../src/checkpoint/safetensors-header.ts";
import { plannedBytes, SafetensorsWriter } from "../../src/checkpoint/safetensors-writer.ts";
import { temporaryFolder } from "./temporary-folder.ts";

const dir = temporaryFolder();
const plan = [
  { name: "odd", dtype: "U8", shape: [3] },
  { name: "half", dtype: "F16", shape: [2, 2] },
  { name: "word", dtype: "U32", shape: [2] },
] as const;

test("pieces in any order, all tensors aligned", () => {
  const file = path.join(dir, "a.safetensors");
  const writer = new SafetensorsWriter(file, plan);
  writer.write("half", Uint8Array.of(5, 6, 7, 8), 4);
  writer.write("odd", Uint8Array.of(9, 9, 9));
  writer.write("half", Uint8Array.of(1, 2, 3, 4), 0);
  writer.write("word", Uint8Array.of(1, 1, 1, 1, 2, 2, 2, 2));
  writer.finish();
  const header = readSafetensorsHeader(file);
  expect(header.notes).toEqual([]);
  expect(header.size).toBe(writer.totalBytes);
  const bytes = readFileSync(file);
  const half = header.tensors.get("half");
  expect([...bytes.subarray(half?.offset, (half?.offset ?? 0) + 8)]).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  expect((header.tensors.get("word")?.offset ?? 1) % 4).toBe(0);
});

test("plannedBytes counts sub-byte types", () => {
  expect(plannedBytes({ name: "x", dtype: "F4", shape: [3, 4] })).toBe(6);
});

test("incomplete, oversized, unplanned and doubled tensors are refused", () => {
  const writer = new SafetensorsWriter(path.join(dir, "b.safetensors"), plan);
  expect(() => writer.write("none", new Uint8Array(1))).toThrow(/not planned/);
  expect(() => writer.write("odd", new Uint8Array(4))).toThrow(/more than its 3/);
  expect(() => writer.write("odd", new Uint8Array(2), 2)).toThrow(/more than its 3/);
  writer.write("odd", new Uint8Array(2));
  expect(() => writer.finish()).toThrow(/"word".*0 of its 8|"half"|"odd"/);
  writer.close();
  expect(() => writer.write("half", new Uint8Array(8))).toThrow(/closed/);
  expect(() => new SafetensorsWriter(path.join(dir, "c.safetensors"), [plan[0], plan[0]])).toThrow(/twice/);
  expect(() => new SafetensorsWriter(path.join(dir, "a.safetensors"), plan)).toThrow(/EEXIST/);
});
