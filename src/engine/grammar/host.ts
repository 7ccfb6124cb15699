/**
 * The grammar worker's contents: one WASM instance, the model's vocabulary, compiled grammars by key, matchers by row.
 * Any exception out of it means that the instance is lost (structured-output.md §2).
 */
import { type CompiledGrammar, GrammarCompiler, GrammarMatcher, TokenizerInfo } from "@mlc-ai/web-xgrammar";
import { TextTokenizer } from "../../text/index.ts";
import { Counters } from "./counters.ts";
import { RowMatcher, type TokenFacts } from "./matcher.ts";
import type { GrammarSource, RowOpening } from "./messages.ts";
import { TokenFilter } from "./token-filter.ts";
import { MARKERS_MAX, markedVocabulary } from "./vocabulary.ts";

interface Compiled {
  readonly grammar: CompiledGrammar;
  readonly counters: Counters | null;
  readonly markerIds: readonly number[];
}

interface MarkedCompiler {
  readonly compiler: GrammarCompiler;
  readonly markerIds: readonly number[];
}

export class GrammarHost {
  private readonly compilers = new Map<string, MarkedCompiler>();
  private readonly grammars = new Map<string, Compiled>();
  private readonly rows = new Map<number, { readonly matcher: RowMatcher; readonly markerIds: readonly number[] }>();
  private readonly facts: TokenFacts;

  constructor(
    private readonly tokenizer: TextTokenizer,
    private readonly vocabSize: number,
  ) {
    const bytes = Array.from({ length: vocabSize }, (_, id) => tokenizer.tokenBytes(id));
    this.facts = { bytes, filter: new TokenFilter(bytes) };
  }

  /** @throws TokenizerError */
  static async create(dir: string, vocabSize: number): Promise<GrammarHost> {
    return new GrammarHost(await TextTokenizer.load(dir), vocabSize);
  }

  async compile(key: string, { ebnf, markers, counters }: GrammarSource): Promise<void> {
    if (this.grammars.has(key)) return;
    const { compiler, markerIds } = await this.compilerFor(markers);
    const grammar = await compiler.compileGrammar(ebnf);
    this.grammars.set(key, { grammar, counters: counters === null ? null : new Counters(counters), markerIds });
  }

  drop(key: string): void {
    this.grammars.get(key)?.grammar.dispose();
    this.grammars.delete(key);
  }

  async open({ row, key, eosIds, accepted }: RowOpening): Promise<void> {
    const compiled = this.grammars.get(key);
    if (compiled === undefined) throw new RangeError(`grammar ${key} is not compiled`);
    const matcher = await GrammarMatcher.createGrammarMatcher(compiled.grammar, [...eosIds]);
    const rowMatcher = new RowMatcher(matcher, compiled.counters, this.facts);
    this.rows.set(row, { matcher: rowMatcher, markerIds: compiled.markerIds });
    rowMatcher.commit(accepted);
  }

  close(row: number): void {
    this.rows.get(row)?.matcher.dispose();
    this.rows.delete(row);
  }

  matcher(row: number): RowMatcher {
    return this.row(row).matcher;
  }

  /**
   * Ids of the text that must follow. The last one is left out: what comes behind the text may belong to its token. A
   * reserved character is its marker, and ends what comes before it.
   */
  forced(row: number): number[] {
    const { matcher, markerIds } = this.row(row);
    const ids: number[] = [];
    let open = false;
    for (const piece of matcher.forced().split(RESERVED)) {
      const marker = piece.length === 1 ? markerIds[piece.charCodeAt(0) - 1] : undefined;
      if (marker === undefined) ids.push(...this.encode(piece));
      else ids.push(marker);
      if (piece !== "") open = marker === undefined;
    }
    return open ? ids.slice(0, -1) : ids;
  }

  private row(row: number) {
    const found = this.rows.get(row);
    if (found === undefined) throw new RangeError(`row ${row} is not open`);
    return found;
  }

  private encode(text: string): readonly number[] {
    if (text === "") return [];
    const steps = this.tokenizer.encodeInSteps({ token: null, text }, false);
    let step = steps.next();
    while (!step.done) step = steps.next();
    return step.value;
  }

  /** Compiled grammars belong to the vocabulary that they were compiled with. */
  private async compilerFor(markers: readonly string[]): Promise<MarkedCompiler> {
    const name = markers.join("\0");
    const known = this.compilers.get(name);
    if (known !== undefined) return known;
    const { tokens, markerIds } = markedVocabulary(this.tokenizer, this.vocabSize, markers);
    // Without a stop id the engine would guess; each row names its own.
    const info = await TokenizerInfo.createTokenizerInfo([...tokens], "byte_level", false, this.vocabSize, [0]);
    const made = { compiler: await GrammarCompiler.createGrammarCompiler(info, false), markerIds };
    this.compilers.set(name, made);
    return made;
  }
}

/** A reserved character, as a part of its own. */
const RESERVED = new RegExp(`([${String.fromCharCode(1)}-${String.fromCharCode(MARKERS_MAX)}])`);
