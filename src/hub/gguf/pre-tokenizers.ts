/**
 * The pre-tokenizers that GGUF names in `tokenizer.ggml.pre`, as regular expressions for tokenizer.json. Every alternative
 * is spelled with explicit letter cases, so that it means the same in JavaScript, Rust and C++.
 * Source: the table in models-dense.md §8.5.
 */

export interface PreTokenizer {
  /** Applied one after the other; each match becomes a piece, and so does the text between matches. */
  readonly splits: readonly string[];
  /** A piece that is in the vocabulary is taken whole, without merging. */
  readonly ignoreMerges: boolean;
  /** Whether a BOS token is put in front when the file does not say. */
  readonly addBos: boolean;
}

const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;
const contractions = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]";
const qwen = (digits: string) =>
  String.raw`${contractions}|[^\r\n\p{L}\p{N}]?\p{L}+|${digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;

const PLAIN = { ignoreMerges: false, addBos: false };
const single: PreTokenizer = { splits: [String.raw`\p{N}`, GPT2], ...PLAIN };
const gpt2: PreTokenizer = { splits: [GPT2], ...PLAIN };
const qwen2: PreTokenizer = { splits: [qwen(String.raw`\p{N}`)], ...PLAIN };
const llama3: PreTokenizer = { splits: [qwen(String.raw`\p{N}{1,3}`)], ignoreMerges: true, addBos: true };

const BY_NAME: ReadonlyMap<string, PreTokenizer> = new Map([
  ...["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva"].map((n) => [n, single] as const),
  ...["gpt-2", "mpt", "olmo", "jais", "trillion"].map((n) => [n, gpt2] as const),
  ...["qwen2", "stablelm2", "hunyuan", "solar-open", "deepseek-r1-qwen"].map((n) => [n, qwen2] as const),
  ...["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2"].map((n) => [n, llama3] as const),
]);

/** The pre-tokenizer of this name, or null when it is unknown. */
export function preTokenizer(name: string): PreTokenizer | null {
  return BY_NAME.get(name) ?? null;
}

export function knownPreTokenizers(): string[] {
  return [...BY_NAME.keys()];
}
