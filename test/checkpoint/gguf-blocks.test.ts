/**
 * GGUF blocks and the quantizer against other programs: `gguf-blocks.safetensors` was decoded by the gguf package, and
 * `affine-g32.safetensors` quantized by mlx.core.quantize (make-fixtures.py beside them).
 */
import { describe, expect, test } from "bun:test";
import path from "node:path";
import fc from "fast-check";
import { quantizeAffine } from "../../src/checkpoint/affine-quantizer.ts";
import { packFiveBits, squeezeNibbles } from "../../src/checkpoint/bit-packing.ts";
import { EXACT_FORMATS } from "../../src/checkpoint/gguf-blocks.ts";
import { DENSE_FORMATS } from "../../src/checkpoint/gguf-dequantize.ts";
import { ggmlType } from "../../src/checkpoint/gguf-types.ts";
import { dequantizeAffine, loadArrays } from "./arrays.ts";

const data = path.join(import.meta.dir, "..", "data", "checkpoint");
const blocks = loadArrays(path.join(data, "gguf-blocks.safetensors"));
const affine = loadArrays(path.join(data, "affine-g32.safetensors"));

const typeOf = (name: string) => {
  for (let id = 0; id < 64; id++) if (ggmlType(id)?.name === name) return ggmlType(id);
  return null;
};

test("five bits and nibbles are one little-endian stream", () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 32, maxLength: 32, max: 31 }), (values) => {
      const words = new Uint32Array(5);
      packFiveBits(values, words, 0);
      const back = Array.from({ length: 32 }, (_, i) => {
        let q = 0;
        for (let b = 0; b < 5; b++) q |= (((words[(i * 5 + b) >> 5] ?? 0) >>> ((i * 5 + b) & 31)) & 1) << b;
        return q;
      });
      expect(back).toEqual([...values]);
    }),
  );
  expect(squeezeNibbles(0xf4f3f2f1 | 0)).toBe(0x4321);
});

describe("blocks", () => {
  test.each([...EXACT_FORMATS])("%s is exact", (name, format) => {
    const raw = blocks.bytes(`${name}.raw`);
    const expected = blocks.floats(`${name}.f32`);
    const groups = expected.length / 32;
    const target = {
      words: new Uint32Array(groups * format.bits),
      scales: new Float32Array(groups),
      biases: new Float32Array(groups),
    };
    format.convert(raw, raw.byteLength / (typeOf(name)?.blockBytes ?? 0), target);
    expect(dequantizeAffine(target.words, target.scales, target.biases, format.bits)).toEqual(expected);
    const halves = (values: Float32Array) => new Float32Array(new Float16Array(values));
    if (format.exactInFloat16) {
      expect(halves(target.scales)).toEqual(target.scales);
      expect(halves(target.biases)).toEqual(target.biases);
    }
  });

  test.each([...DENSE_FORMATS])("%s decodes to the same float32", (name, format) => {
    const raw = blocks.bytes(`${name}.raw`);
    const expected = blocks.floats(`${name}.f32`);
    const out = new Float32Array(expected.length);
    format.dequantize(raw, raw.byteLength / (typeOf(name)?.blockBytes ?? 0), out);
    expect(out).toEqual(expected);
  });
});

describe("affine quantizer", () => {
  test.each([4, 8] as const)("%d bits: words, scales and biases equal MLX's to the bit", (bits) => {
    const values = affine.floats("values");
    const groups = values.length / 32;
    const words = new Uint32Array(groups * bits);
    const scales = new Float32Array(groups);
    const biases = new Float32Array(groups);
    quantizeAffine(values, groups, 32, bits, words, scales, biases);
    expect(scales).toEqual(affine.floats(`s${bits}`));
    expect(biases).toEqual(affine.floats(`b${bits}`));
    expect(words).toEqual(affine.words(`q${bits}`));
  });

  test("error bound: half a step inside, one step at the moved end; the larger end is met exactly", () => {
    const group = fc.array(fc.float({ noNaN: true, min: -8, max: 8 }), { minLength: 32, maxLength: 32 });
    fc.assert(
      fc.property(group, fc.constantFrom(4 as const, 8 as const), (list, bits) => {
        const values = Float32Array.from(list);
        const words = new Uint32Array(bits);
        const scales = new Float32Array(1);
        const biases = new Float32Array(1);
        quantizeAffine(values, 1, 32, bits, words, scales, biases);
        const back = dequantizeAffine(words, scales, biases, bits);
        const step = Math.abs(scales[0] ?? 0);
        const edge = values.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0);
        const isUnique = !values.includes(-edge);
        const tolerance = 1e-6 * Math.max(1, Math.abs(edge));
        for (const [i, v] of values.entries()) {
          const difference = Math.abs((back[i] ?? 0) - v);
          const inside = Math.abs(v - (biases[0] ?? 0)) <= step * ((1 << bits) - 1);
          expect(difference).toBeLessThanOrEqual((inside ? step / 2 : step) + tolerance);
          if (v === edge && isUnique) expect(difference).toBeLessThanOrEqual(Math.max(tolerance, 1e-7 * 255));
        }
      }),
      { numRuns: 500 },
    );
  });

  test("8 bits cost less than 0.6 % of the standard deviation of normal weights", () => {
    let state = 99;
    const uniform = () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return (state + 1) / (2 ** 32 + 1);
    };
    const normal = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
    const values = Float32Array.from({ length: 32 * 512 }, normal);
    const words = new Uint32Array(512 * 8);
    const scales = new Float32Array(512);
    const biases = new Float32Array(512);
    quantizeAffine(values, 512, 32, 8, words, scales, biases);
    const back = dequantizeAffine(words, scales, biases, 8);
    const rms = Math.sqrt(values.reduce((sum, v, i) => sum + ((back[i] ?? 0) - v) ** 2, 0) / values.length);
    expect(rms).toBeLessThan(0.006);
    expect(rms).toBeGreaterThan(0.001);
  });
});
