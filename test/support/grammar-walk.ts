/**
 * A model of random logits under a real grammar: any legal token may come, so what it writes shows all that the grammar
 * allows. Chosen with some favour for closers, or no text would come to an end.
 */
import { GrammarHost } from "../../src/engine/grammar/host.ts";
import type { GrammarSource } from "../../src/engine/grammar/messages.ts";
import type { TextTokenizer } from "../../src/text/index.ts";

export interface WalkOptions {
  readonly seed: number;
  /** Text that the model begins with, as far as it is legal. */
  readonly begins?: string;
  /** Text that it tries to write now and then once it is late: a closing tag that chance would not spell. */
  readonly ends?: string;
  readonly eosId: number;
  readonly tokensMax?: number;
}

export interface Walk {
  readonly ids: readonly number[];
  readonly text: string;
  /** It came to an end of its own. */
  readonly ended: boolean;
  /** Of each mask, in ms. */
  readonly maskMs: readonly number[];
}

/** Tokens between two tries of `ends`. */
const ENDS_EVERY = 8;
/** Tokens after which only closers are chosen where there are any. */
const PATIENCE = 60;

export class GrammarWalker {
  readonly host: GrammarHost;
  private readonly closers: readonly number[];
  private readonly width: number;
  private rows = 0;

  constructor(readonly tokenizer: TextTokenizer) {
    const size = tokenizer.vocabSize;
    this.host = new GrammarHost(tokenizer, size);
    this.width = Math.ceil(size / 32);
    const texts = Array.from({ length: size }, (_, id) => tokenizer.tokenText(id));
    this.closers = texts.flatMap((text, id) => (/^["}\]')>,]+$|^<\/|^-?[0-9]$/.test(text) ? [id] : []));
  }

  async walk(
    source: GrammarSource,
    { seed, begins = "", ends = "", eosId, tokensMax = 500 }: WalkOptions,
  ): Promise<Walk> {
    const key = source.ebnf + source.markers.join();
    await this.host.compile(key, source);
    const row = this.rows++;
    await this.host.open({ row, key, eosIds: [eosId], accepted: [] });
    const matcher = this.host.matcher(row);
    const random = generator(seed);
    const mask = new Uint32Array(this.width);
    const ids: number[] = [];
    const maskMs: number[] = [];
    const script = this.tokenizer.encode(begins, { addSpecialTokens: false });
    let ended = false;
    while (ids.length < tokensMax && !ended) {
      const started = performance.now();
      await matcher.masks([], 0, () => mask, 1);
      maskMs.push(performance.now() - started);
      if (script.length === 0 && ids.length > PATIENCE && ids.length % ENDS_EVERY === 0)
        script.push(...this.spell(ends));
      const wanted = script.shift();
      const id = wanted !== undefined && isLegal(mask, wanted) ? wanted : this.choose(mask, ids.length, random, eosId);
      if (id === null) throw new Error(`no legal token behind ${JSON.stringify(this.text(ids))}`);
      if (id === eosId) ended = true;
      else {
        ids.push(id);
        matcher.commit([id]);
      }
    }
    this.host.close(row);
    return { ids, text: this.text(ids), ended, maskMs };
  }

  private choose(mask: Uint32Array, length: number, random: () => number, eosId: number): number | null {
    const isLate = length > PATIENCE;
    if (isLegal(mask, eosId) && random() < (isLate ? 0.9 : 0.25)) return eosId;
    if (random() < (isLate ? 0.95 : 0.4)) {
      const legal = this.closers.filter((id) => isLegal(mask, id));
      const closer = legal[Math.floor(random() * legal.length)];
      if (closer !== undefined) return closer;
    }
    const size = this.tokenizer.vocabSize;
    const from = Math.floor(random() * size);
    for (let i = 0; i < size; i++) {
      // A step that has no factor in common with the size visits every id.
      const id = (from + i * 7919) % size;
      if (isLegal(mask, id)) return id;
    }
    return null;
  }

  private spell(text: string): readonly number[] {
    return text === "" ? [] : this.tokenizer.encode(text, { addSpecialTokens: false });
  }

  private text(ids: readonly number[]): string {
    const detokenizer = this.tokenizer.detokenizer({ atTextStart: false });
    return ids.map((id) => detokenizer.push(id)).join("") + detokenizer.flush();
  }
}

export function isLegal(mask: Uint32Array, id: number): boolean {
  return (((mask[id >> 5] ?? 0) >>> (id & 31)) & 1) === 1;
}

/** Numbers in [0, 1). Source: mulberry32. */
export function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = Math.imul(state ^ (state >>> 15), state | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
  };
}
