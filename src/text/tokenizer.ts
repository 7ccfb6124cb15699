/**
 * Text ↔ token ids of one model folder. Invariant: for text without control strings the ids are those of the Rust
 * `tokenizers` library for the whole string; control tokens come out only where `split` found them.
 * Pure and synchronous after loading; words and whole stretches of text already seen are not encoded again.
 */
import { controlTokens } from "./control-tokens.ts";
import { createTokenDecoder, type TokenDecoder } from "./detokenizer/create.ts";
import { Detokenizer, pieceOf, type TokenTable } from "./detokenizer/detokenizer.ts";
import { AddedTokenSplitter, type Part } from "./tokenizer-added.ts";
import { GenerationCache } from "./tokenizer-cache.ts";
import { TokenizerError } from "./tokenizer-error.ts";
import {
  type AddedToken,
  addedTokensOf,
  readTokenizerFiles,
  type SpecialTokens,
  specialTokensOf,
  type TokenizerFiles,
} from "./tokenizer-files.ts";
import { isObject, type JsonObject, numbersOf, objectOf, stringOf } from "./tokenizer-json.ts";
import { EncodingPipeline } from "./tokenizer-pipeline.ts";

export type { Part } from "./tokenizer-added.ts";

export interface TokenizerOptions {
  /** Source of the chat template: the added tokens that it writes are control tokens too. */
  readonly templateText?: string;
}

/** Tokens that end a turn in some family even where no file says so (decoding.md §8). */
const TURN_ENDS = ["<turn|>", "<|tool_response>", "<end_of_turn>", "<|im_end|>", "<|eot|>", "<|endoftext|>", "<eos>"];

/** Characters of text whose ids are kept: the turns of a few long conversations. */
const CACHED_CHARACTERS = 2_000_000;

/** Beyond any vocabulary; a broken file must not make an array of billions. */
const MAX_ID = 0xff_ffff;

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder("utf-8", { ignoreBOM: true });
const NO_BYTES = new Uint8Array(0);

export class TextTokenizer {
  /** Highest id + 1. The model's head may be larger; those ids have no text. */
  readonly vocabSize: number;
  /** Ids that end a generation, ascending. */
  readonly eosIds: readonly number[];
  readonly special: SpecialTokens;
  readonly control: readonly AddedToken[];
  readonly #tokens: readonly (string | undefined)[];
  readonly #added: ReadonlyMap<string, AddedToken>;
  readonly #addedIds: ReadonlySet<number>;
  readonly #controlIds: ReadonlySet<number>;
  readonly #pipeline: EncodingPipeline;
  readonly #decoder: TokenDecoder;
  /** Control tokens and those others that are matched in the text as it stands. */
  readonly #rawSplitter: AddedTokenSplitter;
  readonly #plainSplitter: AddedTokenSplitter;
  readonly #affixes: { readonly before: readonly number[]; readonly after: readonly number[] };
  readonly #stretches = new GenerationCache<readonly number[]>(CACHED_CHARACTERS, (text) => text.length);

  /**
   * Reads a model folder's tokenizer.
   * @throws TokenizerError naming the file or the part that is missing or not supported.
   */
  static async load(dir: string, options: TokenizerOptions = {}): Promise<TextTokenizer> {
    return new TextTokenizer(await readTokenizerFiles(dir), options);
  }

  /** @throws TokenizerError naming the part that is not supported. */
  constructor(files: TokenizerFiles, { templateText = "" }: TokenizerOptions = {}) {
    const json = files.tokenizer;
    const added = addedTokensOf(files);
    const special = specialTokensOf(files);
    this.special = special;
    this.#decoder = createTokenDecoder(objectOf(json.decoder));
    const unk = unkOf(objectOf(json.model));
    const emittedUnk = this.#decoder.byteLevel ? null : unk;
    this.control = controlTokens(added, { special, emittedUnk, templateText });
    this.#controlIds = new Set(this.control.map((token) => token.id));
    const plain = added.filter((token) => !this.#controlIds.has(token.id));
    this.#pipeline = new EncodingPipeline(json, this.control, plain);

    this.#tokens = tokensById(objectOf(json.model), added);
    this.vocabSize = this.#tokens.length;
    this.#added = new Map(added.map((token) => [token.content, token]));
    this.#addedIds = new Set(added.map((token) => token.id));
    const rawPlain = plain.filter((token) => !token.normalized);
    this.#plainSplitter = new AddedTokenSplitter(byContent(rawPlain));
    this.#rawSplitter = new AddedTokenSplitter(byContent([...this.control, ...rawPlain]));
    this.#affixes = this.#pipeline.affixes((token) => this.tokenId(token));
    this.eosIds = this.#findEos(files, unk);
  }

  /**
   * Encodes `text` as a raw prompt: control strings in it become control tokens. Lone surrogates count as U+FFFD.
   * @param addSpecialTokens add what the tokenizer's post-processor puts around a text (BOS, mostly).
   */
  encode(text: string, { addSpecialTokens }: { addSpecialTokens: boolean }): number[] {
    const ids = this.encodeParts(this.split(text.toWellFormed()));
    return addSpecialTokens ? [...this.#affixes.before, ...ids, ...this.#affixes.after] : ids;
  }

  /** Cuts `text` at control tokens: longest first, from left to right. Joined, the parts' tokens and texts are it. */
  split(text: string): Part[] {
    return this.#rawSplitter.split(text, (token) => this.#controlIds.has(token.id));
  }

  /** Ids of one whole text, given as `split` cuts it; control strings inside a part's text are text. */
  encodeParts(parts: readonly Part[]): number[] {
    const ids: number[] = [];
    for (const [index, part] of parts.entries()) {
      const steps = this.encodeInSteps(part, index === 0);
      let step = steps.next();
      while (!step.done) step = steps.next();
      for (const id of step.value) ids.push(id);
    }
    return ids;
  }

  /**
   * Ids of one part, pausing inside long ones: each `next()` does a small piece of work.
   * @param atTextStart nothing of the whole text stands before this part.
   */
  *encodeInSteps(part: Part, atTextStart: boolean): Generator<undefined, readonly number[]> {
    if (part.token !== null) return [part.token.id];
    const key = atTextStart ? `^${part.text}` : `-${part.text}`;
    const known = this.#stretches.get(key);
    if (known !== undefined) return known;
    const ids: number[] = [];
    let first = atTextStart;
    for (const piece of this.#plainSplitter.split(part.text, () => true)) {
      if (piece.token !== null) ids.push(piece.token.id);
      else for (const id of yield* this.#pipeline.encode(piece.text, first)) ids.push(id);
      first = false;
    }
    this.#stretches.set(key, ids);
    return ids;
  }

  /** The id whose token is exactly `token`, added tokens first. */
  tokenId(token: string): number | undefined {
    return this.#added.get(token)?.id ?? this.#pipeline.idOf(token);
  }

  /** Whether an id of a caller may be used in a prompt. */
  hasId(id: number): boolean {
    return Number.isInteger(id) && id >= 0 && id < this.vocabSize;
  }

  /** The bytes that the token stands for, which may be a part of a character; empty for ids without a token. */
  tokenBytes(id: number): Uint8Array {
    const token = this.#tokens[id];
    if (token === undefined) return NO_BYTES;
    const piece = pieceOf(this.#decoder, token, { added: this.#addedIds.has(id), first: false });
    return typeof piece === "string" ? ENCODER.encode(piece) : piece;
  }

  /** The token's text standing alone; bytes that are no whole character show as U+FFFD. */
  tokenText(id: number): string {
    return DECODER.decode(this.tokenBytes(id));
  }

  /** @param atTextStart see `Detokenizer`; false for completions. */
  detokenizer({ atTextStart }: { atTextStart: boolean }): Detokenizer {
    const table: TokenTable = { token: (id) => this.#tokens[id], isAdded: (id) => this.#addedIds.has(id) };
    return new Detokenizer(table, this.#decoder, { atTextStart });
  }

  #findEos(files: TokenizerFiles, unk: string | null): number[] {
    const ids = new Set(numbersOf(files.generationConfig.eos_token_id).filter((id) => this.hasId(id)));
    const eos = this.special.eos === null ? undefined : this.tokenId(this.special.eos);
    if (eos !== undefined) ids.add(eos);
    const unkName = this.special.unk ?? unk;
    const unkId = unkName === null ? undefined : this.tokenId(unkName);
    for (const name of TURN_ENDS) {
      const id = this.tokenId(name);
      if (id !== undefined && id !== unkId) ids.add(id);
    }
    return [...ids].sort((a, b) => a - b);
  }
}

function byContent(tokens: readonly AddedToken[]): ReadonlyMap<string, AddedToken> {
  return new Map(tokens.map((token) => [token.content, token]));
}

/** The model's own unk token: BPE and WordPiece name it, Unigram gives its place. */
function unkOf(model: JsonObject | null): string | null {
  if (Array.isArray(model?.vocab) && typeof model.unk_id === "number") {
    const entry: unknown = model.vocab[model.unk_id];
    return Array.isArray(entry) ? stringOf(entry[0]) : null;
  }
  return stringOf(model?.unk_token);
}

function tokensById(model: JsonObject | null, added: readonly AddedToken[]): (string | undefined)[] {
  const tokens: (string | undefined)[] = [];
  const vocab = model?.vocab;
  if (Array.isArray(vocab)) {
    const entries: readonly unknown[] = vocab;
    for (const entry of entries) tokens.push((Array.isArray(entry) && stringOf(entry[0])) || undefined);
  } else if (isObject(vocab)) {
    for (const [token, id] of Object.entries(vocab)) {
      if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id > MAX_ID) {
        throw new TokenizerError(`tokenizer.json: the vocabulary gives ${JSON.stringify(token)} no usable id`);
      }
      tokens[id] = token;
    }
  }
  for (const { id, content } of added) tokens[id] = content;
  return tokens;
}
