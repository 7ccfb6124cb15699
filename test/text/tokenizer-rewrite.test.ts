/** The rewritten pre-tokenizers split text as Rust's do: by Unicode's classes, and with Split's merging behaviors. */
import { describe, expect, test } from "bun:test";
import { Tokenizer } from "@huggingface/tokenizers";
import type { JsonObject } from "../../src/text/tokenizer-json.ts";
import { planPreTokenizer } from "../../src/text/tokenizer-rewrite.ts";

function words(config: JsonObject | null, text: string): string[] {
  const plan = planPreTokenizer(config);
  const model = { type: "BPE", vocab: {}, merges: [] };
  const rest = { model, normalizer: null, post_processor: null, decoder: null, added_tokens: [] };
  const tokenizer = new Tokenizer({ ...rest, pre_tokenizer: plan.config }, {});
  return tokenizer.pre_tokenizer?.pre_tokenize(text, { section_index: 0 }) ?? [text];
}

const split = (pattern: JsonObject, behavior: string): JsonObject => ({
  type: "Split",
  pattern,
  behavior,
  invert: false,
});

describe("words", () => {
  const cases: readonly [string, JsonObject | null, string, string[]][] = [
    ["none", null, "a b", ["a b"]],
    ["GPT-2's words", { type: "ByteLevel", add_prefix_space: false }, "don't  go 12", ["don", "'t", " ", " go", " 12"]],
    ["U+FEFF is no blank", { type: "ByteLevel", add_prefix_space: false }, "!\ufeff!", ["!\ufeff!"]],
    ["U+0085 is one", { type: "ByteLevel", add_prefix_space: false }, "!\u0085!", ["!", "\u0085", "!"]],
    ["ByteLevel without words", { type: "ByteLevel", add_prefix_space: false, use_regex: false }, "a b", ["a b"]],
    ["each digit", { type: "Digits", individual_digits: true }, "x٣4½y", ["x", "٣", "4", "½", "y"]],
    ["runs of digits", { type: "Digits", individual_digits: false }, "x٣4½y", ["x", "٣4½", "y"]],
    ["Whitespace", { type: "Whitespace" }, "né+ 你", ["né", "+", "你"]],
    ["WhitespaceSplit", { type: "WhitespaceSplit" }, "a\u00a0b\ufeff c", ["a", "b\ufeff", "c"]],
    ["merged with previous", split({ String: " " }, "MergedWithPrevious"), " a b  c", [" ", "a ", "b ", " ", "c"]],
    ["merged with next", split({ String: "-" }, "MergedWithNext"), "a-b--c-", ["a", "-b", "-", "-c", "-"]],
    ["contiguous", split({ String: "." }, "Contiguous"), "a..b", ["a", "..", "b"]],
    ["removed", split({ Regex: "\\s+" }, "Removed"), "a  b", ["a", "b"]],
    ["Metaspace", { type: "Metaspace", replacement: "▁" }, "a  b", ["▁a", "▁", "▁b"]],
    ["Metaspace, old form", { type: "Metaspace", replacement: "▁", add_prefix_space: false }, "a b", ["a", "▁b"]],
    ["Metaspace, whole", { type: "Metaspace", prepend_scheme: "first", split: false }, "a b", ["▁a▁b"]],
  ];
  test.each(cases)("%s", (_name, config, text, expected) => {
    expect(words(config, text)).toEqual(expected);
  });

  test("a sequence runs in order", () => {
    const pretokenizers = [
      { type: "Digits", individual_digits: true },
      { type: "ByteLevel", add_prefix_space: false },
    ];
    expect(words({ type: "Sequence", pretokenizers }, "a 12")).toEqual(["a", " ", "1", "2"]);
  });
});

test("only a last ByteLevel without a prefix blank is left to the pipeline", () => {
  const bytes = { type: "ByteLevel", add_prefix_space: false, use_regex: false };
  expect(planPreTokenizer(bytes)).toEqual({ config: null, spellBytes: true });
  expect(planPreTokenizer({ ...bytes, add_prefix_space: true }).spellBytes).toBe(false);
  const order = { type: "Sequence", pretokenizers: [bytes, { type: "Digits", individual_digits: true }] };
  expect(planPreTokenizer(order).spellBytes).toBe(false);
});
