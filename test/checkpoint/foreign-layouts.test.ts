/** Weights that other tools packed, against their values: AWQ (packed by numpy) and NVFP4 (the drafters' golden set). */
import { describe, expect, test } from "bun:test";
import path from "node:path";
import fc from "fast-check";
import { repackAwq } from "../../src/checkpoint/awq-repack.ts";
import { decodeFloats, encodeFloats, toBfloat16 } from "../../src/checkpoint/float-bytes.ts";
import { decodeNvfp4 } from "../../src/checkpoint/nvfp4-decode.ts";
import { dequantizeAffine, loadArrays } from "./arrays.ts";

const data = path.join(import.meta.dir, "..", "data", "checkpoint");

describe("AWQ", () => {
  const awq = loadArrays(path.join(data, "awq.safetensors"));
  const qweight = awq.words("qweight");
  const scales = awq.bytes("scales");
  const qzeros = awq.words("qzeros");

  test.each([
    ["with zero points", qzeros, "values"],
    ["without: 8", null, "values_no_zeros"],
  ])("%s", (_label, zeros, key) => {
    const triple = repackAwq({ qweight, scales, qzeros: zeros, dtype: "F16" }, 128, 24, 32);
    const values = dequantizeAffine(
      triple.weight,
      decodeFloats(triple.scales, "F16"),
      decodeFloats(triple.biases, "F16"),
      4,
    );
    const expected = awq.floats(key);
    // The bias -zero · scale is rounded to float16: half of 2^-10 of at most 15 · 0.02.
    const worst = values.reduce((most, v, i) => Math.max(most, Math.abs(v - (expected[i] ?? Number.NaN))), 0);
    expect(worst).toBeLessThan(0.3 * 2 ** -11 + 1e-6);
  });

  test("arrays of other sizes are refused", () => {
    const tensors = { qweight, scales, qzeros, dtype: "F16" } as const;
    expect(() => repackAwq(tensors, 128, 32, 32)).toThrow(RangeError);
    expect(() => repackAwq(tensors, 128, 24, 48)).toThrow(RangeError);
  });
});

describe("NVFP4", () => {
  const nvfp4 = loadArrays(path.join(data, "nvfp4.safetensors"));

  test("equals the golden bfloat16 values", () => {
    const scale2 = nvfp4.floats("scale_2")[0] ?? 0;
    const bits = decodeNvfp4(nvfp4.bytes("weight"), nvfp4.bytes("scale"), scale2);
    const values = decodeFloats(new Uint8Array(bits.buffer), "BF16");
    expect(values).toEqual(nvfp4.floats("dequantized"));
  });

  test("sizes that do not belong together", () => {
    expect(() => decodeNvfp4(new Uint8Array(16), new Uint8Array(1), 1)).toThrow(/need 2 scales, found 1/);
  });
});

test("bfloat16 is the nearest value, ties to even", () => {
  fc.assert(
    fc.property(fc.float({ noNaN: true, noDefaultInfinity: true }), (x) => {
      const bits = toBfloat16(Float32Array.of(x))[0] ?? 0;
      const value = (half: number) => new Float32Array(Uint32Array.of(half << 16).buffer)[0] ?? Number.NaN;
      const distance = (half: number) => Math.abs(value(half) - x);
      if (!Number.isFinite(value(bits))) return;
      for (const other of [bits - 1, bits + 1]) {
        if ((other & 0x7fff) > 0x7f7f || other < 0 || other >> 15 !== bits >> 15) continue;
        expect(distance(bits)).toBeLessThanOrEqual(distance(other));
        if (distance(bits) === distance(other)) expect(bits % 2).toBe(0);
      }
    }),
  );
  expect(toBfloat16(Float32Array.of(Number.NaN, Infinity, 1))).toEqual(Uint16Array.of(0x7fc0, 0x7f80, 0x3f80));
  const there = (dtype: "F32" | "F16" | "BF16") => decodeFloats(encodeFloats(Float32Array.of(0.5, -2), dtype), dtype);
  for (const dtype of ["F32", "F16", "BF16"] as const) expect(there(dtype)).toEqual(Float32Array.of(0.5, -2));
});
