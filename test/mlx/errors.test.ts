/** Errors are MlxErrors with op and shapes, whatever is wrong; none ends the process or leaks a handle. */
import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import {
  concatenate,
  evaluate,
  firstInt,
  float32Array,
  int32Array,
  liveArrays,
  NONE,
  scope,
  toFloat32,
  toInt32,
} from "../../src/mlx/array.ts";
import { MlxError } from "../../src/mlx/error.ts";
import { readTensor } from "../../src/mlx/file.ts";
import { kernelsFingerprint, mlxVersion, openMlx } from "../../src/mlx/native.ts";
import * as ops from "../../src/mlx/ops.ts";
import { openTestMlx, repoRoot } from "../support/native.ts";

beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

function caught(body: () => unknown): MlxError {
  try {
    scope(body);
  } catch (error) {
    if (error instanceof MlxError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

const zeros = (...shape: number[]) => ops.zeros(shape, "float32");

describe("MlxError", () => {
  test("names the op and the shapes that it got", () => {
    const error = caught(() => ops.add(zeros(2, 3), int32Array([1, 2])));
    expect(error.op).toBe("add");
    expect(error.inputs).toEqual(["float32[2,3]", "int32[2]"]);
    expect(error.message).toContain("add(float32[2,3], int32[2]): ");
    expect(error.message).toContain("cannot be broadcast");
  });

  const wrong: readonly (readonly [string, () => unknown])[] = [
    ["subtract", () => ops.subtract(zeros(2), zeros(3))],
    ["matmul", () => ops.matmul(zeros(2, 3), zeros(2, 3))],
    ["addmm", () => ops.addmm(zeros(7), zeros(2, 3), zeros(3, 2))],
    ["where", () => ops.where(zeros(2), zeros(3), zeros(3))],
    ["reshape", () => ops.reshape(zeros(2, 3), [4])],
    ["broadcast_to", () => ops.broadcastTo(zeros(2), [3])],
    ["transpose", () => ops.transpose(zeros(2, 3), [0, 0])],
    ["swapaxes", () => ops.swapaxes(zeros(2), 0, 1)],
    ["expand_dims", () => ops.expandDims(zeros(2), 5)],
    ["slice", () => ops.slice(zeros(2, 3), [0], [1])],
    ["slice_update", () => ops.sliceUpdate(zeros(2, 3), zeros(4, 4), [0, 0], [2, 3])],
    ["take", () => ops.take(zeros(2), int32Array([0]), 3)],
    ["take_along_axis", () => ops.takeAlongAxis(zeros(2, 2), int32Array([0]), 1)],
    ["put_along_axis", () => ops.putAlongAxis(zeros(2, 2), int32Array([0]), zeros(1), 1)],
    ["scatter_add_axis", () => ops.scatterAddAxis(zeros(2, 2), int32Array([0]), zeros(1), 1)],
    ["argmax", () => ops.argmax(zeros(2), 1)],
    ["sum", () => ops.sum(zeros(2), 1)],
    ["softmax", () => ops.softmax(zeros(2), 4)],
    ["sort", () => ops.sort(zeros(2), 4)],
    ["argpartition", () => ops.argpartition(zeros(3), 9, 0)],
    ["topk", () => ops.topk(zeros(3), 9, 0)],
    ["cumsum", () => ops.cumsum(zeros(3), 2)],
    ["rms_norm", () => ops.rmsNorm(zeros(2, 3), zeros(4), 1e-5)],
    ["rope", () => ops.rope(zeros(1, 1, 1, 8), 8, false, null, 1, 0)],
    ["rope_dynamic", () => ops.ropeAt(zeros(2, 1, 1, 8), 8, false, 10, 1, int32Array([1, 2, 3]))],
    [
      "scaled_dot_product_attention",
      () => ops.attention(zeros(1, 3, 1, 8), zeros(1, 2, 1, 8), zeros(1, 2, 1, 8), 1, "none"),
    ],
    ["quantize", () => ops.quantize(zeros(2, 33), 32, 4, "affine")],
    ["quantized_matmul", () => ops.quantizedMatmul(zeros(1, 8), zeros(2, 2), zeros(2, 1), NONE, true, 32, 4, "affine")],
    ["dequantize", () => ops.dequantize(zeros(2, 2), zeros(2, 1), NONE, 32, 4, "affine")],
    ["concatenate", () => concatenate([zeros(2, 2), zeros(3, 3)], 0)],
    ["concatenate", () => concatenate([], 0)],
    ["array", () => float32Array([1, 2, 3], [2, 2])],
    ["first_int", () => firstInt(ops.zeros([0], "int32"))],
  ];
  test.each(wrong)("%s with wrong arguments", (op, body) => {
    const error = caught(body);
    expect(error.op).toBe(op);
    expect(error.message.length).toBeGreaterThan(op.length + 10);
  });

  test("after a thousand failures everything still works", () => {
    scope(() => {
      for (let i = 0; i < 1000; i++) expect(() => ops.add(zeros(2), zeros(3))).toThrow(MlxError);
      expect([...toFloat32(ops.add(float32Array([1]), float32Array([2])))]).toEqual([3]);
    });
  });

  test("an evaluation of nothing is nothing", () => {
    evaluate([]);
  });
});

describe("readTensor", () => {
  const folder = mkdtempSync(join(tmpdir(), "read-tensor-"));
  const file = join(folder, "tensor.bin");
  beforeAll(() => writeFileSync(file, new Uint8Array(Int32Array.of(1, 2, 3, 4).buffer)));
  const removed = () => rmSync(folder, { recursive: true });

  test("reads at an offset", () => {
    expect([...scope(() => toInt32(readTensor(file, 4, [3, 1], "int32")))]).toEqual([2, 3, 4]);
    expect([...scope(() => toInt32(readTensor(file, 16, [0], "int32")))]).toEqual([]);
  });

  test("a file that ends early is an error that says so", () => {
    expect(caught(() => readTensor(file, 8, [3], "int32")).message).toContain("ended 4 bytes early");
    expect(caught(() => readTensor(file, 1 << 20, [1], "int32")).message).toContain("ended 4 bytes early");
  });

  test.each([
    ["negative length", 0, [-1]],
    ["product beyond any file", 0, [2 ** 30, 2 ** 30]],
    ["negative offset", -1, [1]],
    ["no integer", 0.5, [1]],
    ["too many axes", 0, [1, 1, 1, 1, 1, 1, 1, 1, 1]],
  ] as const)("a shape that no file has: %s", (_, offset, shape) => {
    expect(caught(() => readTensor(file, offset, shape, "int32")).op).toBe("read_tensor");
  });

  test("a file that is not there, or a folder", () => {
    expect(caught(() => readTensor(join(folder, "none"), 0, [1], "int32")).message).toContain("No such file");
    expect(caught(() => readTensor(folder, 0, [1], "int32")).op).toBe("read_tensor");
    removed();
  });
});

describe("threads", () => {
  /** Runs module code on another thread and gives what it posts. */
  async function onThread(code: string): Promise<unknown> {
    const folder = mkdtempSync(join(tmpdir(), "mlx-thread-"));
    const file = join(folder, "thread.ts");
    const from = (name: string) => JSON.stringify(join(repoRoot, "src/mlx", name));
    writeFileSync(
      file,
      `import { parentPort } from "node:worker_threads";
       import { int32Array, scope, toInt32 } from ${from("array.ts")};
       import { add } from ${from("ops.ts")};
       import { openMlx } from ${from("native.ts")};
       import { readTensor } from ${from("file.ts")};
       const folder = ${JSON.stringify(join(repoRoot, "build/native"))};
       const tried = (body) => { try { return body(); } catch (error) { return error.name + ": " + error.message; } };
       parentPort.postMessage(${code});`,
    );
    const worker = new Worker(file);
    try {
      return await new Promise((resolve, reject) => {
        worker.on("message", resolve);
        worker.on("error", reject);
      });
    } finally {
      await worker.terminate();
      rmSync(folder, { recursive: true });
    }
  }

  test("a thread that has not opened MLX gets an error from every door", async () => {
    const answers = await onThread(
      `[() => scope(() => int32Array([1])), () => scope(() => add(16, 16)), () => scope(() => readTensor("x", 0, [1], "int32"))]
         .map(tried)`,
    );
    for (const answer of answers as string[])
      expect(answer).toContain("MlxError: mlx(): the native library is not open");
    expect(answers).toBeArrayOfSize(3);
  });

  test("a second thread may open it for itself", async () => {
    const sum = await onThread(`(openMlx(folder), [...scope(() => toInt32(add(int32Array([1]), int32Array([2]))))])`);
    expect(sum).toEqual([3]);
    expect([...scope(() => toInt32(ops.add(int32Array([4]), int32Array([5]))))]).toEqual([9]);
  });

  test("a folder without the libraries is an error that names the file", async () => {
    expect(await onThread(`tried(() => openMlx("/no/such/folder"))`)).toMatch(
      /^MlxError: open\(\): cannot load .no.such/,
    );
  });

  test("opening again changes nothing", () => {
    openMlx("/no/such/folder");
    expect(mlxVersion()).toMatch(/^\d+\.\d+\.\d+$/);
  });
});

test("the kernels' fingerprint is that of the library in use", () => {
  expect(kernelsFingerprint()).toMatch(/^[0-9a-f]{16}$/);
  expect(kernelsFingerprint()).toBe(kernelsFingerprint());
});
