/** What a GGUF file can hold that we do not run: refused by name before a byte is written, with no folder left. */
import { expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { CheckpointError } from "../../../src/checkpoint/errors.ts";
import { convertGguf } from "../../../src/hub/gguf/convert-gguf.ts";
import { loadArrays } from "../../checkpoint/arrays.ts";
import { put, temporaryFolder } from "../../checkpoint/temporary-folder.ts";
import { readJson } from "./fixtures.ts";
import { f32Tensor, type Keys, type Tensors, tinyGguf } from "./tiny-gguf.ts";

const root = temporaryFolder();
let count = 0;

async function convert(keys: Keys = {}, tensors: Tensors = {}): Promise<string> {
  const file = put(root, `t${count}.gguf`, tinyGguf(keys, tensors));
  const { dir } = await convertGguf(file, path.join(root, "models", `t${count++}`));
  return dir;
}

const typed = (type: number, bytes: number, ...shape: number[]) => ({ shape, type, data: new Uint8Array(bytes) });

test.each<readonly [string, Keys, Tensors, RegExp]>([
  ["architecture", { "general.architecture": { string: "gemma3" } }, {}, /gemma3.*llama, qwen2 and qwen3/],
  ["projector", { "general.type": { string: "mmproj" } }, {}, /mmproj/],
  ["experts", { "llama.expert_count": { u32: 8 } }, {}, /expert_count: 8/],
  ["attention scale", { "llama.attention.scale": { f32: 0.5 } }, {}, /attention\.scale/],
  ["per-layer heads", { "llama.attention.head_count": { ints: [4, 8] } }, {}, /layer to layer/],
  ["partial rotation", { "llama.rope.dimension_count": { u32: 8 } }, {}, /dimension_count/],
  ["value length", { "llama.attention.value_length": { u32: 8 } }, {}, /value_length/],
  [
    "rope scaling",
    { "llama.rope.scaling.type": { string: "longrope" }, "llama.rope.scaling.factor": { f32: 2 } },
    {},
    /longrope/,
  ],
  ["no block_count", { "llama.block_count": undefined }, {}, /block_count.*required/],
  ["no table", {}, { "token_embd.weight": undefined }, /token_embd/],
  ["missing tensor", {}, { "blk.0.ffn_up.weight": undefined }, /blk\.0\.ffn_up\.weight.*missing/],
  ["unknown tensor", {}, { "blk.0.attn_sinks.weight": f32Tensor(4) }, /blk\.0\.attn_sinks\.weight.*llama/],
  ["layer beyond the count", {}, { "blk.1.attn_norm.weight": f32Tensor(64) }, /blk\.1/],
  ["norms of another family", {}, { "blk.0.attn_q_norm.weight": f32Tensor(16) }, /attn_q_norm/],
  ["half of the biases", {}, { "blk.0.attn_q.bias": f32Tensor(64) }, /attn_k\.bias.*missing.*2 more/],
  ["IQ4_XS", {}, { "blk.0.ffn_up.weight": typed(23, 136, 1, 256) }, /IQ4_XS.*not supported.*another quantization/],
  ["MXFP4", {}, { "blk.0.ffn_up.weight": typed(39, 34 * 64, 64, 64) }, /MXFP4/],
  ["three dimensions", {}, { "blk.0.ffn_up.weight": f32Tensor(2, 8, 8) }, /matrix/],
  ["quantized vector", {}, { "output_norm.weight": typed(8, 68, 64) }, /vector of type Q8_0/],
  ["broken heads", {}, { "blk.0.attn_q.weight": f32Tensor(60, 64) }, /whole heads of 16/],
  ["rope_freqs shape", {}, { "rope_freqs.weight": f32Tensor(4) }, /rope_freqs.*F32 \[8\]/],
  ["rope_freqs zero", {}, { "rope_freqs.weight": f32Tensor(8) }, /positive/],
  ["tokenizer model", { "tokenizer.ggml.model": { string: "llama" } }, {}, /tokenizer model "llama"/],
  ["no pre-tokenizer", { "tokenizer.ggml.pre": undefined }, {}, /names no pre-tokenizer/],
  ["unknown pre-tokenizer", { "tokenizer.ggml.pre": { string: "minicpm5" } }, {}, /"minicpm5" is not known/],
  ["more tokens than rows", {}, { "token_embd.weight": f32Tensor(4, 64) }, /5 tokens for 4/],
  ["doubled token", { "tokenizer.ggml.tokens": { strings: ["a", "b", "ab", "a", "c"] } }, {}, /"a" appears twice/],
  ["merge to nowhere", { "tokenizer.ggml.merges": { strings: ["b a"] } }, {}, /"b a"/],
  ["EOS beyond the vocabulary", { "tokenizer.ggml.eos_token_id": { u32: 99 } }, {}, /eos_token_id: 99/],
])("%s", async (_label, keys, tensors, message) => {
  const before = count;
  const error = await convert(keys, tensors).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(CheckpointError);
  expect(String(error)).toMatch(message);
  expect(existsSync(path.join(root, "models", `t${before}`))).toBe(false);
  count++;
});

test("a damaged block leaves nothing behind", async () => {
  const bad = typed(2, 18 * 128, 64, 64);
  bad.data.fill(0xff);
  const error = await convert({}, { "blk.0.ffn_up.weight": bad }).catch((reason: unknown) => reason);
  expect(String(error)).toMatch(/ffn_up.*not finite/);
  count++;
  const models = path.join(root, "models");
  expect(readdirSync(models).filter((name) => name.includes("tmp"))).toEqual([]);
});

test("llama's q and k rows are put in order, biases too, and v is left alone", async () => {
  const dir = await convert(
    {},
    {
      "blk.0.attn_q.bias": f32Tensor(64),
      "blk.0.attn_k.bias": f32Tensor(32),
      "blk.0.attn_v.bias": f32Tensor(32),
      "blk.0.attn_output.bias": f32Tensor(64),
    },
  );
  const arrays = loadArrays(path.join(dir, "model.safetensors"));
  const at = "model.layers.0.self_attn.";
  const head = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];
  expect([...arrays.floats(`${at}q_proj.bias`)]).toEqual(
    [0, 16, 32, 48].flatMap((first) => head.map((i) => first + i)),
  );
  expect([...arrays.floats(`${at}v_proj.bias`)]).toEqual(Array.from({ length: 32 }, (_, i) => i));
  const k = arrays.floats(`${at}k_proj.weight`);
  expect(head.map((_, row) => (k[row * 64] ?? 0) / 64)).toEqual(head);
  expect(readJson(dir, "config.json").attention_bias).toBe(true);
});

test("scaling, BOS, turn ends and named templates", async () => {
  const dir = await convert({
    "llama.rope.scaling.type": { string: "yarn" },
    "llama.rope.scaling.factor": { f32: 4 },
    "llama.rope.scaling.original_context_length": { u32: 32 },
    "tokenizer.ggml.add_bos_token": { bool: 1 },
    "tokenizer.ggml.eot_token_id": { u32: 2 },
    "tokenizer.chat_template": { string: "plain" },
    "tokenizer.chat_templates": { strings: ["tool_use"] },
    "tokenizer.chat_template.tool_use": { string: "tools" },
  });
  expect(readJson(dir, "config.json").rope_scaling).toEqual({
    type: "yarn",
    rope_type: "yarn",
    factor: 4,
    original_max_position_embeddings: 32,
  });
  expect(readJson(dir, "generation_config.json").eos_token_id).toEqual([3, 2]);
  const config = readJson(dir, "tokenizer_config.json");
  expect(config.chat_template).toEqual([
    { name: "default", template: "plain" },
    { name: "tool_use", template: "tools" },
  ]);
  const { added_tokens, post_processor } = readJson(dir, "tokenizer.json");
  const added = added_tokens as { content: string; special: boolean }[];
  expect(added.map(({ content, special }) => [content, special])).toEqual([
    ["<|end|>", true],
    ["<note>", false],
  ]);
  const single = (post_processor as { single: { SpecialToken?: { id: string } }[] }).single;
  expect(single[0]?.SpecialToken?.id).toBe("<|end|>");
  expect(single).toHaveLength(2);
});

test("BOS is added where the file says so, and by default for llama3's pre-tokenizer alone", async () => {
  const addBos = async (keys: Keys) => readJson(await convert(keys), "tokenizer_config.json").add_bos_token;
  expect(await addBos({})).toBe(false);
  expect(await addBos({ "tokenizer.ggml.pre": { string: "llama-bpe" } })).toBe(true);
  expect(
    await addBos({ "tokenizer.ggml.pre": { string: "llama-bpe" }, "tokenizer.ggml.add_bos_token": { bool: 0 } }),
  ).toBe(false);
  expect(await addBos({ "tokenizer.ggml.add_bos_token": { bool: 1 } })).toBe(true);
});

test("a tokenizer without a template is said in the notes", async () => {
  const file = put(root, "silent.gguf", tinyGguf());
  const dir = path.join(root, "models", "silent");
  const { notes } = await convertGguf(file, dir);
  expect(notes.join()).toContain("no chat template");
  expect((await convertGguf(file, dir)).notes).toEqual(notes);
});
