/**
 * Text without added tokens → ids: normalizer, pre-tokenizer and model of `@huggingface/tokenizers`, called step by
 * step, so that control tokens can be kept out of it and a word's ids remembered. The model here does not know the
 * control tokens at all.
 */
import { Tokenizer } from "@huggingface/tokenizers";
import { toByteAlphabet } from "./byte-alphabet.ts";
import { AddedTokenSplitter } from "./tokenizer-added.ts";
import { GenerationCache } from "./tokenizer-cache.ts";
import { TokenizerError } from "./tokenizer-error.ts";
import type { AddedToken } from "./tokenizer-files.ts";
import { type JsonObject, objectOf } from "./tokenizer-json.ts";
import { checkNormalizer, missingBytes, planPreTokenizer, rewriteModel } from "./tokenizer-rewrite.ts";

/** Words remembered (text.md: 10,000 pre-tokens); longer words are rare and not worth their memory. */
const CACHED_WORDS = 10_000;
const CACHED_WORD_LENGTH = 256;
/** About a millisecond of words that were not seen before (3 µs each on two cores of an x86 server). */
const WORDS_PER_STEP = 300;

export class EncodingPipeline {
  readonly #tokenizer: Tokenizer;
  readonly #ids: ReadonlyMap<string, number>;
  readonly #unk: number | undefined;
  readonly #spellBytes: boolean;
  /** Bytes without a token. Rust drops them before it merges, so that their neighbours can meet; so do we. */
  readonly #dropped: RegExp | null;
  readonly #normalizedTokens: AddedTokenSplitter;
  readonly #words = new GenerationCache<readonly number[]>(CACHED_WORDS, () => 1);

  /**
   * @param json `tokenizer.json`.
   * @param control tokens that this pipeline must never give.
   * @param plain the other added tokens; those that are matched after normalizing are matched here.
   * @throws TokenizerError naming what is not supported.
   */
  constructor(json: JsonObject, control: readonly AddedToken[], plain: readonly AddedToken[]) {
    const normalizer = objectOf(json.normalizer);
    checkNormalizer(normalizer);
    const plan = planPreTokenizer(objectOf(json.pre_tokenizer));
    const model = rewriteModel(objectOf(json.model), new Set(control.map((token) => token.content)));
    this.#spellBytes = plan.spellBytes;
    this.#tokenizer = build({
      ...json,
      normalizer,
      pre_tokenizer: plan.config,
      model,
      decoder: null,
      added_tokens: [],
    });
    const built = this.#tokenizer.model;
    if (built === null) throw new TokenizerError("tokenizer.json has no model");
    for (const token of control) built.tokens_to_ids.delete(token.content);
    this.#ids = built.tokens_to_ids;
    // An unknown piece of a user's text must not become a control token, not even where that is the unk token.
    const unk = built.unk_token_id;
    this.#unk = control.some((token) => token.id === unk) ? undefined : unk;
    const dropsUnknown = plan.spellBytes && this.#unk === undefined;
    this.#dropped = dropsUnknown ? missingBytes(this.#ids) : null;
    const normalized = plain.filter((token) => token.normalized);
    this.#normalizedTokens = new AddedTokenSplitter(
      new Map(normalized.map((token) => [this.#normalize(token.content), token])),
    );
  }

  /** The id of a string of the model's own vocabulary. */
  idOf(token: string): number | undefined {
    return this.#ids.get(token);
  }

  /**
   * Encodes `text`, pausing between words: each `next()` does a small piece of work.
   * @param atTextStart nothing stands before this text in the whole (matters to Metaspace "first").
   */
  *encode(text: string, atTextStart: boolean): Generator<undefined, number[]> {
    const ids: number[] = [];
    let index = atTextStart ? 0 : 1;
    let words = 0;
    for (const part of this.#normalizedTokens.split(this.#normalize(text), () => true)) {
      if (part.token !== null) ids.push(part.token.id);
      else {
        for (const word of this.#split(part.text, index)) {
          for (const id of this.#wordIds(word)) ids.push(id);
          if (++words % WORDS_PER_STEP === 0) yield;
        }
      }
      index++;
    }
    return ids;
  }

  /** Ids that the post-processor puts before and after a text. */
  affixes(idOf: (token: string) => number | undefined): { before: number[]; after: number[] } {
    const text = "\0";
    const tokens = this.#tokenizer.post_processor?.post_process([text], null, true).tokens ?? [text];
    const at = tokens.indexOf(text);
    const toIds = (list: string[]) => list.map((token) => idOf(token)).filter((id) => id !== undefined);
    return { before: toIds(tokens.slice(0, at)), after: toIds(tokens.slice(at + 1)) };
  }

  #normalize(text: string): string {
    return this.#tokenizer.normalizer?.normalize(text) ?? text;
  }

  #split(text: string, index: number): string[] {
    return this.#tokenizer.pre_tokenizer?.pre_tokenize(text, { section_index: index }) ?? [text];
  }

  #wordIds(word: string): readonly number[] {
    const known = this.#words.get(word);
    if (known !== undefined) return known;
    const spelled = this.#spell(word);
    const ids: number[] = [];
    for (const token of this.#tokenizer.model?._call([spelled]) ?? []) {
      const id = this.#ids.get(token) ?? this.#unk;
      if (id !== undefined) ids.push(id);
    }
    if (word.length < CACHED_WORD_LENGTH) this.#words.set(word, ids);
    return ids;
  }

  #spell(word: string): string {
    if (!this.#spellBytes) return word;
    const spelled = toByteAlphabet(word);
    return this.#dropped === null ? spelled : spelled.replace(this.#dropped, "");
  }
}

function build(json: JsonObject): Tokenizer {
  const complete = { post_processor: null, ...json };
  try {
    return new Tokenizer(complete, { clean_up_tokenization_spaces: false });
  } catch (error) {
    throw new TokenizerError(`tokenizer.json: ${error instanceof Error ? error.message : String(error)}`);
  }
}
