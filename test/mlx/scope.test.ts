/** Lifetime of handles: scopes, keep, free, the growth of their stack, and the exact count of live handles. */
import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { firstInt, free, int32Array, keep, liveArrays, type MlxArray, scope, toInt32 } from "../../src/mlx/array.ts";
import { MlxError } from "../../src/mlx/error.ts";
import { add } from "../../src/mlx/ops.ts";
import { openTestMlx } from "../support/native.ts";

beforeAll(openTestMlx);
afterEach(() => expect(liveArrays()).toBe(0));

function value(n: number): MlxArray {
  return int32Array([n]);
}

describe("scope", () => {
  test("frees what was made in it and returns the body's result", () => {
    const counts = scope(() => {
      value(1);
      value(2);
      return liveArrays();
    });
    expect(counts).toBe(2);
    expect(liveArrays()).toBe(0);
  });

  test("frees on an exception and passes it on", () => {
    expect(() =>
      scope(() => {
        value(1);
        scope(() => {
          value(2);
          throw new RangeError("mine");
        });
      }),
    ).toThrow(new RangeError("mine"));
    expect(liveArrays()).toBe(0);
  });

  test("an inner scope leaves the outer one's handles alone", () => {
    scope(() => {
      const outer = value(7);
      scope(() => value(8));
      expect(liveArrays()).toBe(1);
      expect(firstInt(outer)).toBe(7);
    });
  });

  test("an op outside of a scope is refused and leaks nothing", () => {
    expect(() => value(1)).toThrow(MlxError);
    const kept = scope(() => keep(value(1)));
    expect(() => add(kept, kept)).toThrow("outside of scope()");
    free(kept);
  });
});

describe("keep and free", () => {
  test("a kept handle outlives all scopes until it is freed", () => {
    const kept = scope(() => scope(() => keep(value(3))));
    expect(liveArrays()).toBe(1);
    expect(firstInt(kept)).toBe(3);
    free(kept);
  });

  test("an inner scope may keep an outer scope's handle: everything else lives as long as it should", () => {
    const kept = scope(() => {
      const [a, b, c] = [value(1), value(2), value(3)];
      const taken = scope(() => {
        const inner = value(4);
        expect(firstInt(keep(a))).toBe(1);
        expect(firstInt(keep(b))).toBe(2);
        expect(firstInt(inner)).toBe(4);
        value(5);
        return [a, b];
      });
      expect(firstInt(c)).toBe(3);
      return taken;
    });
    expect(liveArrays()).toBe(2);
    expect(kept.map(firstInt)).toEqual([1, 2]);
    for (const x of kept) free(x);
  });

  test("keep refuses what no scope holds, free what nobody owns; neither changes the count", () => {
    scope(() => {
      const x = value(1);
      expect(() => free(x)).toThrow("not owned");
      keep(x);
      expect(() => keep(x)).toThrow("belongs to no open scope");
      free(x);
      expect(() => free(x)).toThrow("not owned");
      expect(() => keep(x)).toThrow("belongs to no open scope");
    });
  });

  test("data outlives the handle while pending work needs it", () => {
    const result = scope(() => {
      const kept = keep(value(20));
      const sum = add(kept, kept);
      free(kept);
      return firstInt(sum);
    });
    expect(result).toBe(40);
  });
});

test("the slot stack grows past its first size, under an op's own arguments too", () => {
  scope(() => {
    const first = value(1);
    let last = first;
    for (let i = 0; i < 20_000; i++) last = add(first, first);
    expect(liveArrays()).toBe(20_001);
    expect(firstInt(last)).toBe(2);
    scope(() => {
      for (let i = 0; i < 20_000; i++) value(i);
      expect(liveArrays()).toBe(40_001);
    });
    expect(liveArrays()).toBe(20_001);
    expect(firstInt(first)).toBe(1);
    free(keep(first));
    expect(liveArrays()).toBe(20_000);
  });
});

test("random sequences of open, make, keep, free and close against a model", () => {
  type Step = "open" | "close" | "throw" | "make" | "keep" | "free";
  const steps = fc.array(
    fc.tuple(fc.constantFrom<Step>("open", "close", "throw", "make", "make", "keep", "free"), fc.nat()),
    { maxLength: 80 },
  );
  fc.assert(
    fc.property(steps, (sequence) => {
      const owned = new Map<MlxArray, number>();
      const scopes: Map<MlxArray, number>[] = [];
      let at = 0;
      let made = 0;
      // A handle kept out of an outer scope lets an inner one's temporary live until the outer closes: counts are
      // exact where no scope is open.
      const check = () => {
        for (const alive of [...scopes, owned]) for (const [x, n] of alive) expect(firstInt(x)).toBe(n);
        if (scopes.length === 0) expect(liveArrays()).toBe(owned.size);
      };
      const pick = (x: number, from: Map<MlxArray, number>) => [...from.keys()][x % Math.max(from.size, 1)];
      const body = (): void => {
        while (at < sequence.length) {
          const [step, x] = sequence[at++] ?? ["close", 0];
          const open = scopes[x % Math.max(scopes.length, 1)] ?? new Map<MlxArray, number>();
          if (step === "open") {
            scopes.push(new Map());
            try {
              scope(body);
            } catch (error) {
              expect(error).toBe("thrown");
            }
            scopes.pop();
          } else if (step === "close" && scopes.length > 0) return;
          else if (step === "throw" && scopes.length > 0) throw "thrown";
          else if (step === "make" && scopes.length > 0) scopes.at(-1)?.set(value(made), made++);
          else if (step === "keep") {
            const chosen = pick(x >> 4, open);
            if (chosen !== undefined) {
              owned.set(keep(chosen), open.get(chosen) ?? -1);
              open.delete(chosen);
            }
          } else if (step === "free") {
            const chosen = pick(x >> 4, owned);
            if (chosen !== undefined) {
              free(chosen);
              owned.delete(chosen);
            }
          }
          check();
        }
      };
      while (at < sequence.length) body();
      check();
      for (const x of owned.keys()) free(x);
      expect(liveArrays()).toBe(0);
    }),
    { numRuns: 300 },
  );
});

test("values survive the way in and out, whatever the length", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 })), (values) => {
      expect([...scope(() => toInt32(int32Array(values)))]).toEqual(values);
    }),
  );
});
