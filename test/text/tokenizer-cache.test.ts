/** The generation cache: bounded, and it keeps what is asked for. */
import { expect, test } from "bun:test";
import { GenerationCache } from "../../src/text/tokenizer-cache.ts";

const kept = (cache: GenerationCache<number>, keys: readonly string[]) =>
  keys.filter((key) => cache.get(key) !== undefined).length;

test("never holds more than its limit", () => {
  const cache = new GenerationCache<number>(10, () => 1);
  const keys = Array.from({ length: 100 }, (_, i) => `k${i}`);
  for (const [i, key] of keys.entries()) cache.set(key, i);
  expect(kept(cache, keys.toReversed())).toBeLessThanOrEqual(10);
  expect(cache.get("k99")).toBe(99);
});

test("what is asked for stays", () => {
  const cache = new GenerationCache<number>(10, () => 1);
  cache.set("hot", 7);
  for (let i = 0; i < 100; i++) {
    cache.set(`cold${i}`, i);
    expect(cache.get("hot")).toBe(7);
  }
  expect(cache.get("cold0")).toBeUndefined();
});

test("an entry that would fill it alone is not kept, and pushes nothing out", () => {
  const cache = new GenerationCache<number>(10, (key) => key.length);
  cache.set("abc", 1);
  cache.set("x".repeat(6), 2);
  expect(cache.get("x".repeat(6))).toBeUndefined();
  expect(cache.get("abc")).toBe(1);
});
