/**
 * `tokenizer.json` → the form in which `@huggingface/tokenizers` gives the ids that the Rust library gives.
 * The package reads some pre-tokenizers more loosely than Rust does (blanks and digits by JavaScript's classes, Split
 * always isolated, Metaspace never split); the same meaning is written as Split by a regular expression, which it
 * translates exactly. What it would skip or misread otherwise is refused by name.
 */
import { BYTE_CHARACTERS } from "./byte-alphabet.ts";
import { prependsMetaspace } from "./detokenizer/create.ts";
import { TokenizerError } from "./tokenizer-error.ts";
import { isObject, type Json, type JsonObject, objectOf, objectsOf, stringOf } from "./tokenizer-json.ts";

const NORMALIZERS: ReadonlySet<string> = new Set([
  ...["BertNormalizer", "Precompiled", "Replace", "NFC", "NFD", "NFKC", "NFKD"],
  ...["Strip", "StripAccents", "Lowercase", "Prepend"],
]);

/** GPT-2's split of text into words, as ByteLevel applies it with `use_regex`. */
const GPT2_WORDS = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** The pre-tokenizer without a last step that only spells words in the byte alphabet. */
export interface PreTokenizerPlan {
  readonly config: JsonObject | null;
  /** Words are spelled in the byte alphabet after `config` ran. */
  readonly spellBytes: boolean;
}

/** @throws TokenizerError for a normalizer that is not known. */
export function checkNormalizer(config: JsonObject | null): void {
  if (config === null) return;
  if (config.type === "Sequence") {
    for (const member of objectsOf(config.normalizers)) checkNormalizer(member);
  } else if (!NORMALIZERS.has(stringOf(config.type) ?? "")) {
    throw new TokenizerError(`tokenizer.json: normalizer ${String(config.type)} is not supported`);
  }
}

/** @throws TokenizerError for a pre-tokenizer that is not known or cannot be kept exactly. */
export function planPreTokenizer(config: JsonObject | null): PreTokenizerPlan {
  const steps = config === null ? [] : rewriteSteps(config);
  const last = steps.at(-1);
  const spellBytes = last?.type === "ByteLevel" && last.add_prefix_space === false;
  const kept = spellBytes ? steps.slice(0, -1) : steps;
  return { config: kept.length === 0 ? null : { type: "Sequence", pretokenizers: kept }, spellBytes };
}

/** The steps that `config` stands for. */
function rewriteSteps(config: JsonObject): JsonObject[] {
  switch (config.type) {
    case "Sequence":
      return objectsOf(config.pretokenizers).flatMap(rewriteSteps);
    case "ByteLevel":
      return rewriteByteLevel(config);
    case "Digits":
      return [splitBy(config.individual_digits === true ? String.raw`\p{N}` : String.raw`\p{N}+`)];
    case "Whitespace":
      return [{ ...splitBy(String.raw`\w+|[^\w\s]+`), behavior: "Removed", invert: true }];
    case "WhitespaceSplit":
      return [{ ...splitBy(String.raw`\s+`), behavior: "Removed" }];
    case "Split":
      return [rewriteSplit(config)];
    case "Metaspace":
      return rewriteMetaspace(config);
    case "FixedLength":
      return [config];
    case "Punctuation":
      if (config.behavior === "Contiguous") return [config];
      throw refusal(`Punctuation with behavior ${String(config.behavior ?? "Isolated")}`);
    default:
      throw refusal(String(config.type));
  }
}

function rewriteByteLevel(config: JsonObject): JsonObject[] {
  const addsPrefix = config.add_prefix_space === true;
  if (config.use_regex === false || addsPrefix) return [{ ...config, add_prefix_space: addsPrefix }];
  return [splitBy(GPT2_WORDS), { type: "ByteLevel", add_prefix_space: false, use_regex: false }];
}

function rewriteMetaspace(config: JsonObject): JsonObject[] {
  const replacement = stringOf(config.replacement) ?? "▁";
  const scheme = stringOf(config.prepend_scheme) ?? (prependsMetaspace(config) ? "always" : "never");
  const marks: JsonObject = { type: "Metaspace", replacement, prepend_scheme: scheme, split: false };
  return config.split === false ? [marks] : [marks, splitBy(mergedWithNext(replacement))];
}

function rewriteSplit(config: JsonObject): JsonObject {
  const behavior = stringOf(config.behavior) ?? "";
  if (behavior === "Isolated" || behavior === "Removed") return config;
  const literal = stringOf(objectOf(config.pattern)?.String);
  if (literal === null || [...literal].length !== 1 || config.invert === true) throw refusal(`Split ${behavior}`);
  switch (behavior) {
    case "MergedWithNext":
      return splitBy(mergedWithNext(literal));
    case "MergedWithPrevious":
      return splitBy(`[^${escapeInClass(literal)}]*${escapeLiteral(literal)}|[^${escapeInClass(literal)}]+`);
    case "Contiguous":
      return splitBy(`${escapeLiteral(literal)}+`);
    default:
      throw refusal(`Split ${behavior}`);
  }
}

function mergedWithNext(literal: string): string {
  return `${escapeLiteral(literal)}[^${escapeInClass(literal)}]*|[^${escapeInClass(literal)}]+`;
}

function splitBy(regex: string): JsonObject {
  return { type: "Split", pattern: { Regex: regex }, behavior: "Isolated", invert: false };
}

function escapeLiteral(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);
}

function escapeInClass(text: string): string {
  return text.replace(/[\\^\]\-[&]/g, String.raw`\$&`);
}

function refusal(what: string): TokenizerError {
  return new TokenizerError(`tokenizer.json: pre-tokenizer ${what} is not supported`);
}

/**
 * The model, unable to build the strings in `removed`: no merge leads to one, no Unigram entry is one. (A BPE vocabulary
 * keeps its entries; the pipeline forgets their ids, so that a whole word is not taken for one either.)
 * @throws TokenizerError for other models than BPE, Unigram and WordPiece.
 */
export function rewriteModel(config: JsonObject | null, removed: ReadonlySet<string>): JsonObject {
  const type = stringOf(config?.type) ?? (config && Array.isArray(config.merges) ? "BPE" : null);
  if (config !== null && type === "Unigram" && Array.isArray(config.vocab)) {
    const vocab: readonly Json[] = config.vocab;
    return { ...config, type, vocab: vocab.map((entry) => hideEntry(entry, removed)) };
  }
  if (config !== null && (type === "BPE" || type === "WordPiece") && isObject(config.vocab)) {
    return type === "BPE" ? { ...config, type, merges: keptMerges(config.merges, removed) } : config;
  }
  throw new TokenizerError(`tokenizer.json: model ${type ?? "without a type"} is not supported`);
}

/** An id is a place in the list, so the entry stays, under a string that no well-formed text contains. */
function hideEntry(entry: Json, removed: ReadonlySet<string>): Json {
  if (!Array.isArray(entry)) return entry;
  const [token, ...rest]: readonly Json[] = entry;
  return typeof token === "string" && removed.has(token) ? [`\ud800${token}`, ...rest] : entry;
}

function keptMerges(merges: unknown, removed: ReadonlySet<string>): readonly Json[] {
  const entries: readonly Json[] = Array.isArray(merges) ? merges : [];
  const lengths = new Set([...removed].map((token) => token.length));
  const leadsToRemoved = (entry: Json): boolean => {
    const [left, right] = typeof entry === "string" ? entry.split(" ", 2) : Array.isArray(entry) ? entry : [];
    if (typeof left !== "string" || typeof right !== "string") return false;
    return lengths.has(left.length + right.length) && removed.has(left + right);
  };
  return entries.some(leadsToRemoved) ? entries.filter((entry) => !leadsToRemoved(entry)) : entries;
}

/**
 * The bytes that a byte-level vocabulary has no token for, as a pattern over spelled words; null when it has all 256.
 * (SmolLM2 lacks 21: control characters and bytes that only begin planes without characters.)
 */
export function missingBytes(vocab: ReadonlyMap<string, number>): RegExp | null {
  const missing = BYTE_CHARACTERS.filter((character) => !vocab.has(character));
  return missing.length === 0 ? null : new RegExp(`[${missing.map(escapeInClass).join("")}]`, "g");
}
