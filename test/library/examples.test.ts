/** The examples of the library's documentation, run on the pair that is part of the program. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { CancelledError, compare, generate, loadPair, type Pair, speculativeGenerate } from "../../src/index.ts";

setDefaultTimeout(120_000);

let pair: Pair;
beforeAll(async () => {
  pair = await loadPair("smollm2-135m", { offline: true });
});
afterAll(() => pair.dispose());

test("1 one answer", async () => {
  const r = await speculativeGenerate(pair, "What is the capital of France?", { maxNewTokens: 24 });
  const shown = [r.text, `${r.stats.meanAcceptLength.toFixed(2)} tokens per forward`];
  expect(shown[0]).toContain("Paris");
  expect(shown[1]).toMatch(/^\d\.\d\d tokens per forward$/);
  expect(pair).toMatchObject({ mode: "dspark", drafter: { name: "smollm2-135m-dspark", kind: "dspark" } });
});

test("2 stream, and see drafts", async () => {
  const [texts, rounds]: [string[], string[]] = [[], []];
  for await (const e of speculativeGenerate(pair, "Count to ten.", { maxNewTokens: 40, maxDraft: 3 })) {
    if (e.type === "text") texts.push(e.text);
    if (e.type === "round") rounds.push(`[${e.accepted}/${e.drafted} ${e.source}]`);
  }
  expect(texts.join("").length).toBeGreaterThan(10);
  expect(rounds.some((round) => /^\[\d\/\d drafter\]$/.test(round))).toBe(true);
});

test("3 chat, cancelled after a while", async () => {
  const messages = [
    { role: "system", content: "You write long stories." },
    { role: "user", content: "Tell one." },
  ] as const;
  const g = speculativeGenerate(
    pair,
    { messages },
    { maxNewTokens: 2000, ignoreEos: true, signal: AbortSignal.timeout(400) },
  );
  try {
    await g;
    expect.unreachable();
  } catch (e) {
    expect(e).toBeInstanceOf(CancelledError);
    if (e instanceof CancelledError) expect(e.partial?.tokenIds.length ?? 0).toBeLessThan(2000);
  }
});

test("5 is it lossless here?", async () => {
  const v = await compare(
    pair,
    "Write a sorting function.",
    [{ mode: "baseline" }, { mode: "dspark" }, { mode: "lookup" }],
    {
      maxNewTokens: 48,
    },
  );
  expect([v.identical, v.divergences]).toEqual([true, []]);
});

test("6 several prompts in one batch", async () => {
  const prompts = ["Name a colour.", "Name a fruit.", "Name a river."];
  const answers = await Promise.all(
    prompts.map((p) => speculativeGenerate(pair, p, { seed: 7, temperature: 0.8, maxNewTokens: 12 })),
  );
  const alone = await speculativeGenerate(pair, prompts[1] ?? "", { seed: 7, temperature: 0.8, maxNewTokens: 12 });
  expect(answers[1]?.text).toBe(alone.text);
});

test("7 tokens in, tokens out, no template", async () => {
  const tokens = pair.tokenizer.encode("Once upon a time", { addSpecialTokens: true });
  const { tokenIds } = await generate(pair, { tokens }, { maxNewTokens: 16 });
  expect(tokenIds.length).toBe(16);
});
