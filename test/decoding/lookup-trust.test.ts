import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { LookupTrust } from "../../src/decoding/lookup-trust.ts";

/** Rounds that cost `fixed` and so much for each draft. */
const linear =
  (fixed: number, each: number) =>
  (drafts: number): number =>
    fixed + each * drafts;

const outcome = fc
  .nat({ max: 32 })
  .chain((drafted) => fc.tuple(fc.constant(drafted + 1), fc.nat({ max: drafted + 1 })));
const history = fc.array(outcome, { maxLength: 30 });
const after = (outcomes: readonly (readonly [number, number])[]) => {
  const trust = new LookupTrust();
  for (const [drafted, accepted] of outcomes) trust.update(drafted, accepted);
  return trust;
};

describe("the chance that a match goes on", () => {
  test("is a probability, higher for longer matches and after drafts that stood", () => {
    fc.assert(
      fc.property(history, fc.integer({ min: 3, max: 40 }), (outcomes, matched) => {
        const trust = after(outcomes);
        const chance = trust.chance(matched);
        expect(chance).toBeGreaterThan(0);
        expect(chance).toBeLessThan(1);
        expect(trust.chance(matched + 1)).toBeGreaterThanOrEqual(chance);
        expect(after([...outcomes, [32, 32]]).chance(matched)).toBeGreaterThan(
          after([...outcomes, [32, 0]]).chance(matched),
        );
      }),
    );
  });

  test("forgets: what a text did long ago is outweighed by its last drafts", () => {
    const bad = Array.from({ length: 20 }, () => [6, 0] as const);
    const good = Array.from({ length: 6 }, () => [6, 6] as const);
    const turned = after([...bad, ...good]).chance(3);
    expect(after(bad).chance(3)).toBeLessThan(0.65);
    expect(turned).toBeGreaterThan(after(bad).chance(3) + 0.2);
    expect(turned).toBeGreaterThan(0.85);
  });
});

describe("the length of a draft", () => {
  test("is the best of all, and none where nothing beats the alternative", () => {
    let none = 0;
    let inner = 0;
    fc.assert(
      fc.property(
        history,
        fc.integer({ min: 3, max: 40 }),
        fc.integer({ min: 1, max: 32 }),
        fc.double({ min: 0.5, max: 2, noNaN: true }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (outcomes, matched, available, fixed, each) => {
          const trust = after(outcomes);
          const price = linear(fixed, each);
          const gains = Array.from({ length: available }, (_, i) => {
            const chance = trust.chance(matched);
            const tokens = Array.from({ length: i + 2 }, (_, k) => chance ** k).reduce((sum, p) => sum + p, 0);
            return tokens / price(i + 1);
          });
          const length = trust.worth(matched, available, price, 1);
          if (length === 0) {
            none++;
            expect(Math.max(...gains)).toBeLessThanOrEqual(1 + 1e-9);
          } else {
            if (length < available) inner++;
            expect(gains[length - 1]).toBeCloseTo(Math.max(...gains), 9);
            expect(gains[length - 1]).toBeGreaterThan(1);
          }
        },
      ),
      { numRuns: 1000, seed: 1 },
    );
    expect(none).toBeGreaterThan(25);
    expect(inner).toBeGreaterThan(20);
  });

  test("is the whole proposal where rows are free, however badly the text did", () => {
    fc.assert(
      fc.property(history, fc.integer({ min: 1, max: 32 }), (outcomes, available) => {
        expect(after(outcomes).length(3, available, () => 1, 0.9)).toBe(available);
      }),
    );
  });

  test("refused seven times in a row, the eighth is a short probe", () => {
    const trust = new LookupTrust();
    const lengths = Array.from({ length: 24 }, () => trust.length(3, 6, linear(1, 10), 1));
    expect(lengths).toEqual([...Array(7).fill(0), 3, ...Array(7).fill(0), 3, ...Array(7).fill(0), 3]);
    expect(Array.from({ length: 8 }, () => trust.length(3, 1, linear(1, 10), 1)).at(-1)).toBe(1);
  });

  test("a text that begins to repeat itself is drafted at length soon", () => {
    const trust = after(Array.from({ length: 12 }, () => [6, 0] as const));
    const price = linear(1, 0.18);
    const drafted: number[] = [];
    for (let match = 3, chances = 0; chances < 40; chances++, match++) {
      const length = trust.length(match, 32, price, 1);
      if (length === 0) continue;
      drafted.push(length);
      trust.update(length, length);
    }
    expect(drafted.length).toBeGreaterThan(30);
    expect(Math.max(...drafted)).toBeGreaterThan(8);
  });
});
