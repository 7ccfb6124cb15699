/** Generations of the library on a tiny model: events and results, cancelling, errors, options, the pair's end. */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  CancelledError,
  compare,
  DisposedError,
  EngineError,
  type GenerationEvent,
  generate,
  listModels,
  loadPair,
  lookupGenerate,
  type Pair,
  RequestError,
  speculativeGenerate,
  version,
} from "../../src/index.ts";
import { loadTiny, TINY } from "./tiny-pair.ts";

setDefaultTimeout(60_000);

const before = process.env.MLX_DSPARK_CACHE;
const cache = mkdtempSync(join(tmpdir(), "library-"));
let pair: Pair;
beforeAll(async () => {
  process.env.MLX_DSPARK_CACHE = cache;
  pair = await loadTiny();
});
afterAll(async () => {
  await pair.dispose();
  rmSync(cache, { recursive: true });
  if (before === undefined) delete process.env.MLX_DSPARK_CACHE;
  else process.env.MLX_DSPARK_CACHE = before;
});

const PROMPT = { tokens: [1, 2, 3, 4, 5] };
const LONG = { maxNewTokens: 1900, ignoreEos: true } as const;

async function eventsOf(events: AsyncIterable<GenerationEvent>): Promise<GenerationEvent[]> {
  const all: GenerationEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

/** Not `expect().rejects`: it would wait without letting the engine's messages in. */
async function failure(work: PromiseLike<unknown>): Promise<unknown> {
  return work.then(
    () => null,
    (error: unknown) => error,
  );
}

describe("the pair", () => {
  test("says what was loaded", () => {
    expect(pair.target).toMatchObject({ name: "llama-f32", dir: TINY, modelType: "llama" });
    expect(pair).toMatchObject({ mode: "lookup", drafter: null, disposed: false });
    expect(pair.target.contextWindow).toBeGreaterThan(0);
    expect(pair.backend).toStartWith("cpu");
    expect(version).toMatch(/^\d+\.\d+\.\d+/);
  });

  test("an unknown option is named with its neighbour; a model that is not there is an EngineError", async () => {
    expect(() => loadPair(TINY, { maxDrafts: 3 } as object)).toThrow(
      new TypeError("unknown option 'maxDrafts'; did you mean 'maxDraft'?"),
    );
    expect(await failure(loadPair("/nowhere/at/all", { offline: true }))).toBeInstanceOf(EngineError);
    const gone = AbortSignal.abort(new Error("not wanted"));
    expect(await failure(loadPair(TINY, { signal: gone }))).toEqual(new Error("not wanted"));
  });

  test("the registry lists what is known and what is here", async () => {
    const { known, installed } = await listModels();
    expect(known[0]).toMatchObject({ id: "smollm2-135m" });
    expect(Array.isArray(installed)).toBe(true);
  });
});

describe("events and results", () => {
  test("ids of the texts are the result's, rounds and the first token add up", async () => {
    const generation = speculativeGenerate(pair, PROMPT, { maxNewTokens: 60, ignoreEos: true });
    const events = await eventsOf(generation);
    const result = await generation;
    const texts = events.flatMap((event) => (event.type === "text" ? [event] : []));
    expect(texts.map(({ text }) => text).join("")).toBe(result.text);
    const silent = new Set(pair.tokenizer.eosIds);
    expect(texts.flatMap(({ tokenIds }) => tokenIds)).toEqual([...result.tokenIds].filter((id) => !silent.has(id)));
    const rounds = events.flatMap((event) => (event.type === "round" ? [event] : []));
    expect(rounds.map(({ index }) => index)).toEqual(rounds.map((_, i) => i));
    expect(rounds.reduce((sum, { committed }) => sum + committed, 1)).toBe(60);
    expect(events[0]).toMatchObject({ type: "start", promptTokens: 5 });
    expect(events.at(-1)).toEqual({ type: "end", result });
    expect(result).toMatchObject({ finishReason: "length", stopString: null, logprobs: null });
    expect(result.stats).toMatchObject({ mode: "lookup", completionTokens: 60, promptTokens: 5, cap: 6 });
    expect(result.stats.meanAcceptLength).toBeGreaterThan(1);
  });

  test("all ways give the same tokens, and the check agrees", async () => {
    const options = { maxNewTokens: 40, ignoreEos: true };
    const [plain, drafted, lookup] = await Promise.all([
      generate(pair, PROMPT, options),
      speculativeGenerate(pair, PROMPT, { ...options, verifyLossless: true }),
      lookupGenerate(pair, PROMPT, { ...options, longDraft: 6 }),
    ]);
    expect(drafted.tokenIds).toEqual(plain.tokenIds);
    expect(lookup.tokenIds).toEqual(plain.tokenIds);
    expect([plain.stats.mode, drafted.stats.mode, lookup.stats.mode]).toEqual(["baseline", "lookup", "lookup"]);
    expect(drafted.stats.lossless).toEqual({ tokens: 40, argmaxEqual: 40, maxGapAtMismatch: 0 });
    expect(plain.stats.lossless).toBeNull();
  });

  test("the same seed, the same tokens, in every mode; the seed is reported", async () => {
    const options = { maxNewTokens: 24, temperature: 1.3, ignoreEos: true };
    const one = await generate(pair, PROMPT, { ...options, seed: 7 });
    const two = await speculativeGenerate(pair, PROMPT, { ...options, seed: 7n });
    const other = await generate(pair, PROMPT, options);
    expect(two.tokenIds).toEqual(one.tokenIds);
    expect(two.stats.seed).toBe(7n);
    const again = await generate(pair, PROMPT, { ...options, seed: other.stats.seed });
    expect(again.tokenIds).toEqual(other.tokenIds);
  });

  test("logprobs: an entry for each token, the chosen one first in greedy decoding", async () => {
    const { logprobs, tokenIds } = await generate(pair, PROMPT, { maxNewTokens: 6, logprobs: 3, ignoreEos: true });
    expect(logprobs?.map(({ tokenId }) => tokenId)).toEqual([...tokenIds]);
    for (const { tokenId, logprob, top, bytes } of logprobs ?? []) {
      expect(top.length).toBe(3);
      expect(top[0]).toEqual({ tokenId, logprob });
      expect(bytes).toEqual(pair.tokenizer.tokenBytes(tokenId));
    }
  });

  test("a stop string ends the text before itself", async () => {
    const { text } = await generate(pair, PROMPT, { maxNewTokens: 40, ignoreEos: true });
    const stop = text.slice(10, 13);
    const cut = await speculativeGenerate(pair, PROMPT, { maxNewTokens: 40, ignoreEos: true, stop });
    expect(cut).toMatchObject({ text: text.slice(0, text.indexOf(stop)), finishReason: "stop", stopString: stop });
  });

  test("text() gives the text; one iteration only", async () => {
    const generation = generate(pair, { prompt: "abc" }, { maxNewTokens: 12 });
    let text = "";
    for await (const piece of generation.text()) text += piece;
    expect(text).toBe((await generation).text);
    expect(await failure(generation.text().next())).toEqual(new Error("a generation can be iterated once"));
  });

  test("inputs: a message, raw text, ids, messages", async () => {
    const chat = await pair.encodeChat([{ role: "user", content: "hi" }]);
    const counts = await Promise.all(
      ["hi", { prompt: "hi" }, { tokens: [1, 2] }, { messages: [{ role: "user" as const, content: "hi" }] }].map(
        async (input) => (await generate(pair, input, { maxNewTokens: 1 })).stats.promptTokens,
      ),
    );
    const raw = pair.tokenizer.encode("hi", { addSpecialTokens: true }).length;
    expect(counts).toEqual([chat.length, raw, 2, chat.length]);
  });
});

describe("ends", () => {
  test("cancel: what was committed, as a result", async () => {
    const generation = speculativeGenerate(pair, PROMPT, LONG);
    for await (const event of generation.text()) if (event.length > 0) break;
    const result = await generation;
    expect(result.finishReason).toBe("cancelled");
    expect(result.tokenIds.length).toBeLessThan(1900);
    const early = generate(pair, "hello", LONG);
    early.cancel();
    expect(await early).toMatchObject({ finishReason: "cancelled" });
  });

  test("an aborted signal: the platform's reasons as CancelledError with the part, one's own as it is", async () => {
    const stop = new AbortController();
    const generation = generate(pair, PROMPT, { ...LONG, signal: stop.signal });
    setTimeout(() => stop.abort(), 30);
    const error = await failure(generation);
    expect(error).toBeInstanceOf(CancelledError);
    expect((error as CancelledError).partial?.finishReason).toBe("cancelled");
    const mine = new Error("enough");
    const custom = new AbortController();
    const other = generate(pair, PROMPT, { ...LONG, signal: custom.signal });
    setTimeout(() => custom.abort(mine), 30);
    expect(await failure(other)).toBe(mine);
    expect(await failure(generate(pair, PROMPT, { signal: AbortSignal.abort() }))).toBeInstanceOf(CancelledError);
  });

  test("wrong options throw at once, what the engine refuses rejects", async () => {
    expect(() => generate(pair, PROMPT, { temperatur: 1 } as object)).toThrow(TypeError);
    expect(() => generate(pair, PROMPT, { maxDraft: 3 } as object)).toThrow(TypeError);
    expect(() => generate(pair, PROMPT, { temperature: 3 })).toThrow(TypeError);
    expect(() => generate(pair, PROMPT, { maxNewTokens: 0 })).toThrow(TypeError);
    expect(() => generate(pair, PROMPT, { stop: "" })).toThrow(TypeError);
    expect(() => speculativeGenerate(pair, PROMPT, { verifyLossless: true, temperature: 1 })).toThrow(TypeError);
    const empty = await failure(generate(pair, { tokens: [] }));
    expect(empty).toBeInstanceOf(RequestError);
    expect(empty).toMatchObject({ message: "the prompt is empty", status: 400, code: null });
    const long = await failure(generate(pair, { tokens: new Array<number>(5000).fill(1) }));
    expect(long).toMatchObject({ name: "RequestError", status: 400, code: "context_length_exceeded" });
  });

  test("an error that nobody awaits stays quiet until it is asked for", async () => {
    const lost: unknown[] = [];
    const listen = (error: unknown) => lost.push(error);
    process.on("unhandledRejection", listen);
    const generation = generate(pair, { tokens: [] });
    await Bun.sleep(50);
    process.off("unhandledRejection", listen);
    expect(lost).toEqual([]);
    expect(await failure(generation.result())).toBeInstanceOf(RequestError);
  });

  test("compare: the verdict over the arms, and modes that the pair does not have", async () => {
    const verdict = await compare(pair, PROMPT, [{ mode: "baseline" }, { mode: "lookup" }], { maxNewTokens: 30 });
    expect(verdict).toMatchObject({ comparable: true, identical: true, lossless: true, divergences: [] });
    expect(verdict.runs.map(({ stats }) => stats.mode)).toEqual(["baseline", "lookup"]);
    expect(await failure(compare(pair, PROMPT, [{ mode: "dspark" }]))).toMatchObject({
      message: "mode 'dspark' is not available with the loaded model (have: baseline, lookup)",
    });
  });
});

describe("the end of a pair", () => {
  test("running generations are cancelled, later ones refused, twice is once", async () => {
    await using other = await loadTiny();
    const running = speculativeGenerate(other, PROMPT, LONG);
    for await (const piece of running.text()) if (piece !== "") break;
    const waiting = generate(other, PROMPT, LONG);
    await other.dispose();
    expect((await running).finishReason).toBe("cancelled");
    expect((await waiting).finishReason).toBe("cancelled");
    expect(other.disposed).toBe(true);
    expect(() => generate(other, PROMPT)).toThrow(DisposedError);
    expect(await failure(other.stats())).toBeInstanceOf(DisposedError);
    await other.dispose();
  });

  test("a program ends by itself while its pair is idle", async () => {
    const program = `
      const { loadPair, generate } = await import(${JSON.stringify(join(import.meta.dir, "../../src/index.ts"))});
      const pair = await loadPair(${JSON.stringify(TINY)}, { offline: true });
      const { tokenIds } = await generate(pair, { tokens: [1, 2, 3] }, { maxNewTokens: 4, ignoreEos: true });
      console.log(tokenIds.length, pair.disposed);`;
    const child = Bun.spawn([process.execPath, "-e", program], { stdout: "pipe", stderr: "pipe" });
    const code = await Promise.race([child.exited, Bun.sleep(30_000)]);
    if (code === undefined) child.kill("SIGKILL");
    expect(await new Response(child.stdout).text()).toBe("4 false\n");
    expect(code).toBe(0);
  });
});
