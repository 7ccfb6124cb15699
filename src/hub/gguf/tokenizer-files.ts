/**
 * The tokenizer inside a GGUF file → tokenizer.json and tokenizer_config.json (byte-level BPE only), and the ids for
 * generation_config.json. Ids are the file's array indices and never change. Source: models-dense.md §8.5.
 */
import { CheckpointError } from "../../checkpoint/errors.ts";
import type { GgufMetadata } from "../../checkpoint/gguf-metadata.ts";
import { knownPreTokenizers, type PreTokenizer, preTokenizer } from "./pre-tokenizers.ts";

export interface TokenizerFiles {
  /** Content of tokenizer.json. */
  readonly tokenizer: Readonly<Record<string, unknown>>;
  /** Content of tokenizer_config.json, with the chat template. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Content of generation_config.json. */
  readonly generation: Readonly<Record<string, unknown>>;
  readonly notes: readonly string[];
}

const CONTROL = 3;
const USER_DEFINED = 4;
const key = (name: string) => `tokenizer.ggml.${name}`;

/**
 * @param vocabSize rows of the embedding table: no id may reach it
 * @throws CheckpointError for tokenizer models and pre-tokenizers that we do not know, by name
 */
export function tokenizerFiles(meta: GgufMetadata, vocabSize: number, file: string): TokenizerFiles {
  const error = (message: string) => new CheckpointError({ file, check: "tokenizer", message });
  const model = meta.string(key("model"));
  if (model !== "gpt2") {
    throw error(
      `tokenizer model ${JSON.stringify(model)} is not supported (byte-level BPE, "gpt2", is); use the safetensors version`,
    );
  }
  const pre = readPreTokenizer(meta, error);
  const tokens = meta.strings(key("tokens"));
  if (tokens.length > vocabSize) throw error(`has ${tokens.length} tokens for ${vocabSize} embedding rows`);
  const vocab: Record<string, number> = Object.create(null);
  for (const [id, token] of tokens.entries()) {
    if (token in vocab) throw error(`token ${JSON.stringify(token)} appears twice (ids ${vocab[token]} and ${id})`);
    vocab[token] = id;
  }
  const id = (name: string) => readId(meta, name, tokens.length);
  const bos = id("bos_token_id");
  const eos = id("eos_token_id");
  const addBos = meta.bool(key("add_bos_token"), pre.addBos) && bos !== null;
  const addEos = meta.bool(key("add_eos_token"), false) && eos !== null;
  const text = (token: number | null) => (token === null ? undefined : tokens[token]);
  const template = chatTemplate(meta);
  const eosIds = [...new Set([eos, id("eot_token_id")].filter((token) => token !== null))];
  return {
    tokenizer: {
      version: "1.0",
      truncation: null,
      padding: null,
      added_tokens: addedTokens(meta, tokens),
      normalizer: null,
      pre_tokenizer: preTokenizerJson(pre),
      post_processor: postProcessor(addBos ? text(bos) : undefined, addEos ? text(eos) : undefined, vocab),
      decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
      model: {
        type: "BPE",
        dropout: null,
        unk_token: null,
        continuing_subword_prefix: null,
        end_of_word_suffix: null,
        fuse_unk: false,
        byte_fallback: false,
        ignore_merges: pre.ignoreMerges,
        vocab,
        merges: readMerges(meta, vocab, error),
      },
    },
    config: {
      tokenizer_class: "PreTrainedTokenizerFast",
      clean_up_tokenization_spaces: false,
      add_bos_token: addBos,
      add_eos_token: addEos,
      bos_token: text(bos),
      eos_token: text(eos),
      unk_token: text(id("unknown_token_id")),
      pad_token: text(id("padding_token_id")),
      ...(template === null ? {} : { chat_template: template }),
    },
    generation: {
      ...(bos === null ? {} : { bos_token_id: bos }),
      ...(eosIds.length === 0 ? {} : { eos_token_id: eosIds }),
    },
    notes: template === null ? ["the file holds no chat template: only plain completions will work"] : [],
  };
}

type MakeError = (message: string) => CheckpointError;

function readPreTokenizer(meta: GgufMetadata, error: MakeError): PreTokenizer {
  const name = meta.string(key("pre"), null);
  const known = knownPreTokenizers().join(", ");
  if (name === null)
    throw error(`names no pre-tokenizer (${key("pre")}): its text would be split wrongly; known ones: ${known}`);
  const pre = preTokenizer(name);
  if (pre === null) throw error(`pre-tokenizer ${JSON.stringify(name)} is not known (${known} are)`);
  return pre;
}

function readId(meta: GgufMetadata, name: string, count: number): number | null {
  const id = meta.int(key(name), null);
  // 2^32-1 is how writers say "none".
  if (id === null || id === 0xffffffff || id === -1) return null;
  if (id < 0 || id >= count) meta.fail(key(name), `${id} is not one of the ${count} tokens`);
  return id;
}

function readMerges(meta: GgufMetadata, vocab: Readonly<Record<string, number>>, error: MakeError): [string, string][] {
  return meta.strings(key("merges")).map((merge) => {
    const at = merge.indexOf(" ", 1);
    const left = merge.slice(0, at);
    const right = merge.slice(at + 1);
    if (at < 0 || !(left in vocab) || !(right in vocab) || !(left + right in vocab)) {
      throw error(`merge ${JSON.stringify(merge)} does not join two tokens into a third`);
    }
    return [left, right];
  });
}

function addedTokens(meta: GgufMetadata, tokens: readonly string[]): Record<string, unknown>[] {
  const types = meta.ints(key("token_type"), []);
  const out: Record<string, unknown>[] = [];
  for (const [id, content] of tokens.entries()) {
    const type = types[id];
    if ((type !== CONTROL && type !== USER_DEFINED) || content === "") continue;
    const special = type === CONTROL;
    out.push({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special });
  }
  return out;
}

function preTokenizerJson(pre: PreTokenizer): Record<string, unknown> {
  const splits = pre.splits.map((regex) => ({
    type: "Split",
    pattern: { Regex: regex },
    behavior: "Isolated",
    invert: false,
  }));
  const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
  return { type: "Sequence", pretokenizers: [...splits, bytes] };
}

function postProcessor(
  bos: string | undefined,
  eos: string | undefined,
  vocab: Readonly<Record<string, number>>,
): Record<string, unknown> {
  if (bos === undefined && eos === undefined) {
    return { type: "ByteLevel", add_prefix_space: true, trim_offsets: false, use_regex: true };
  }
  const sequence = (id: "A" | "B", type: number) => {
    const special = (token: string | undefined) =>
      token === undefined ? [] : [{ SpecialToken: { id: token, type_id: type } }];
    return [...special(bos), { Sequence: { id, type_id: type } }, ...special(eos)];
  };
  const tokens = [bos, eos].filter((token) => token !== undefined);
  return {
    type: "TemplateProcessing",
    single: sequence("A", 0),
    pair: [...sequence("A", 0), ...sequence("B", 1)],
    special_tokens: Object.fromEntries(tokens.map((id) => [id, { id, ids: [vocab[id]], tokens: [id] }])),
  };
}

/** One template is a string; named ones are the list that transformers writes. */
function chatTemplate(meta: GgufMetadata): string | { name: string; template: string }[] | null {
  const main = meta.string("tokenizer.chat_template", null);
  const names = meta.strings("tokenizer.chat_templates", []);
  const named = names.filter((name) => meta.has(`tokenizer.chat_template.${name}`));
  if (named.length === 0) return main;
  const list = named.map((name) => ({ name, template: meta.string(`tokenizer.chat_template.${name}`) }));
  return main === null ? list : [{ name: "default", template: main }, ...list];
}
