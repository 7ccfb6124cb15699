/** Every form of a mask gives the same choice: argmax, keyed draw and acceptance, whatever the size of the vocabulary. */
import { afterEach, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { Sampler } from "../../src/decoding/sampler.ts";
import {
  ALL_TOKENS,
  allows,
  maskedArgmax,
  maskedLogits,
  masksAlong,
  NoLegalToken,
  type TokenMask,
  tokenMask,
} from "../../src/decoding/token-mask.ts";
import {
  firstInt,
  float32Array,
  int32Array,
  liveArrays,
  scalar,
  scope,
  toFloat32,
  toUint32,
  uint32Array,
} from "../../src/mlx/array.ts";
import { astype, where } from "../../src/mlx/ops.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";
import { randomFrom } from "./cap-traces.ts";

setDefaultTimeout(60_000);
beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

interface Case {
  readonly vocab: number;
  readonly legal: ReadonlySet<number>;
  readonly words: Uint32Array;
  readonly logits: Float32Array;
}

/** Random legal tokens at a density, among them at least one; bits beyond the vocabulary set or clear by chance. */
function caseOf(seed: number, vocab: number, density: number): Case {
  const random = randomFrom(seed);
  const words = new Uint32Array(Math.ceil(vocab / 32));
  const legal = new Set<number>([Math.floor(random() * vocab)]);
  for (let id = 0; id < vocab; id++) if (random() < density) legal.add(id);
  for (const id of legal) words[id >> 5] = (words[id >> 5] ?? 0) | (1 << (id & 31));
  for (let id = vocab; id < 32 * words.length; id++) {
    if (random() < 0.5) words[id >> 5] = (words[id >> 5] ?? 0) | (1 << (id & 31));
  }
  // Few different values: ties are frequent.
  const logits = Float32Array.from({ length: vocab }, () => Math.floor(40 * random()) / 4);
  return { vocab, legal, words, logits };
}

/** All forms that say the same. */
function formsOf({ vocab, legal, words }: Case): TokenMask[] {
  const all = Array.from({ length: vocab }, (_, id) => id);
  return [
    { kind: "allow", ids: Int32Array.from(all.filter((id) => legal.has(id))) },
    { kind: "deny", ids: Int32Array.from(all.filter((id) => !legal.has(id))) },
    { kind: "dense", words },
    ...(legal.size === vocab ? [ALL_TOKENS] : []),
  ];
}

const cases = fc
  .record({
    seed: fc.nat(),
    vocab: fc.oneof(fc.integer({ min: 1, max: 70 }), fc.integer({ min: 71, max: 3000 })),
    density: fc.constantFrom(0, 0.01, 0.3, 0.9, 0.999, 1),
  })
  .map(({ seed, vocab, density }) => caseOf(seed, vocab, density));

describe("the form of a mask", () => {
  test("says exactly what its bits say", () => {
    fc.assert(
      fc.property(cases, ({ vocab, legal, words }) => {
        const mask = tokenMask(words, vocab);
        const chosen = new Set(
          Array.from({ length: vocab }, (_, id) => id).filter((id) => {
            if (mask.kind === "allow") return mask.ids.includes(id);
            if (mask.kind === "deny") return !mask.ids.includes(id);
            return mask.kind === "all" || allows(mask.words, id);
          }),
        );
        expect(chosen).toEqual(new Set(legal));
        for (const id of legal) expect(allows(words, id)).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  test("is a list where one is short, of what may or of what may not come", () => {
    const big = 200_000;
    expect(tokenMask(caseOf(1, big, 0.001).words, big).kind).toBe("allow");
    expect(tokenMask(caseOf(2, big, 0.999).words, big).kind).toBe("deny");
    expect(tokenMask(caseOf(3, big, 0.5).words, big).kind).toBe("dense");
    expect(tokenMask(caseOf(4, big, 1).words, big)).toEqual(ALL_TOKENS);
  });

  test("nothing legal is an error, also when only bits beyond the vocabulary are set", () => {
    expect(() => tokenMask(new Uint32Array(2), 40)).toThrow(NoLegalToken);
    expect(() => tokenMask(Uint32Array.of(0, -1 << 8), 40)).toThrow("no legal token");
    expect(tokenMask(Uint32Array.of(0, -1 << 7), 40)).toEqual({ kind: "allow", ids: Int32Array.of(39) });
  });

  test("of a draft end where nothing is legal, and the first of them must not be such a place", () => {
    const [some, none, all] = [
      [4, 0],
      [0, -1 << 8],
      [-1, -1],
    ] as const;
    const along = (...rows: readonly (readonly number[])[]) => masksAlong(Uint32Array.from(rows.flat()), 2, 40);
    const allow = { kind: "allow", ids: Int32Array.of(2) } as const;
    expect(along(some, all, some)).toEqual([allow, ALL_TOKENS, allow]);
    expect(along(some, all, none, some)).toEqual([allow, ALL_TOKENS]);
    expect(() => along(none, some)).toThrow(NoLegalToken);
  });
});

/** The expression that shifts on the device: the definition that all forms are held to. */
function reference({ words, vocab, logits }: Case): Float32Array {
  return scope(() => {
    const bits = Uint32Array.from({ length: vocab }, (_, id) => ((words[id >> 5] as number) >>> (id & 31)) & 1);
    const legal = astype(uint32Array(bits, [1, vocab]), "bool");
    return toFloat32(where(legal, float32Array(logits, [1, vocab]), scalar(Number.NEGATIVE_INFINITY, "float32")));
  });
}

describe("every form", () => {
  test("masks the same logits and has the same argmax, the first of equals", () => {
    fc.assert(
      fc.property(cases, (each) => {
        const { vocab, legal, logits } = each;
        const wanted = reference(each);
        const first = [...legal].sort((a, b) => (logits[b] ?? 0) - (logits[a] ?? 0) || a - b)[0] ?? -1;
        for (const mask of formsOf(each)) {
          scope(() => {
            const row = float32Array(logits, [1, vocab]);
            expect(toFloat32(maskedLogits(row, [mask]))).toEqual(wanted);
            expect([...toUint32(maskedArgmax(row, [mask]))]).toEqual([first]);
            const half = astype(row, "bfloat16");
            expect([...toUint32(maskedArgmax(half, [mask]))]).toEqual([first]);
          });
        }
      }),
      { numRuns: 200 },
    );
  });

  test("rows of different forms stand beside each other", () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 400 }), fc.nat(), (vocab, seed) => {
        const rows = [0.01, 0.5, 0.99, 1].map((density, i) => caseOf(seed + i, vocab, density));
        const masks = rows.map((each, i) => formsOf(each)[i] ?? ALL_TOKENS);
        scope(() => {
          const logits = float32Array(
            rows.flatMap((each) => [...each.logits]),
            [rows.length, vocab],
          );
          const wanted = rows.map((each) =>
            firstInt(maskedArgmax(float32Array(reference(each), [1, vocab]), [ALL_TOKENS])),
          );
          expect([...toUint32(maskedArgmax(logits, masks))]).toEqual(wanted);
          expect([...toFloat32(maskedLogits(logits, masks))]).toEqual(rows.flatMap((each) => [...reference(each)]));
        });
      }),
      { numRuns: 100 },
    );
  });

  const law = fc.record({
    temperature: fc.constantFrom(0, 0.6, 1.4),
    topP: fc.constantFrom(1, 0.8),
    topK: fc.constantFrom(0, 5),
    minP: fc.constantFrom(0, 0.1),
    presencePenalty: fc.constantFrom(0, 1.5),
    seed: fc.nat().map(String),
  });

  test("gives the same sampled token, a legal one", () => {
    fc.assert(
      fc.property(cases, law, (each, part) => {
        const drawn = formsOf(each).map((mask) => {
          const sampler = new Sampler({ ...GREEDY, ...part }, each.vocab, []);
          const ids = [0, 1, 2].map((index) =>
            scope(() => firstInt(sampler.choose(float32Array(each.logits, [1, each.vocab]), index, mask))),
          );
          sampler.dispose();
          return ids;
        });
        for (const ids of drawn) expect(ids).toEqual(drawn[0] ?? []);
        for (const id of drawn[0] ?? []) expect(each.legal.has(id)).toBe(true);
      }),
      { numRuns: 150 },
    );
  });

  test("a block of drafts is accepted as the single choices would be", () => {
    fc.assert(
      fc.property(fc.nat(), fc.integer({ min: 3, max: 90 }), law, (seed, vocab, part) => {
        const rows = [0.2, 0.7, 0.5].map((density, i) => caseOf(seed + i, vocab, density));
        const single = new Sampler({ ...GREEDY, ...part }, vocab, []);
        const ids = rows.map((each, index) =>
          scope(() =>
            firstInt(single.choose(float32Array(each.logits, [1, vocab]), index, tokenMask(each.words, vocab))),
          ),
        );
        single.dispose();
        const block = new Sampler({ ...GREEDY, ...part }, vocab, []);
        scope(() => {
          const logits = float32Array(
            rows.flatMap((each) => [...each.logits]),
            [3, vocab],
          );
          const masks = rows.map((each) => tokenMask(each.words, vocab));
          const draft = int32Array(ids.slice(0, 2));
          const { accepted, tokens } = block.accept(logits, draft, null, 0, { masks, refused: null });
          expect(firstInt(accepted)).toBe(2);
          expect([...toUint32(tokens)]).toEqual(ids);
        });
        block.dispose();
      }),
      { numRuns: 150 },
    );
  });
});
