/** One loaded pair, several ways to decode: what a request may ask for, what it is told, and the checks of its text. */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type EngineClient, EngineError } from "../../src/engine/client.ts";
import { nativeFolder } from "../../src/engine/embedded/files.ts";
import { compareRuns, replayRun } from "../../src/engine/lossless.ts";
import {
  type GenerateRequest,
  NO_SPECULATION,
  type RequestSpeculation,
  type RequestStats,
  type RoundInfo,
  type TokenLogprob,
} from "../../src/engine/protocol.ts";
import { spawnEngine } from "../../src/engine/spawn.ts";
import { drafterRoot, drafterSource, readCase } from "../support/drafter-golden.ts";
import { GREEDY } from "../support/sampling.ts";
import { request } from "./tiny.ts";

setDefaultTimeout(60_000);

const NAME = "dspark_specforge_yarn";
const golden = readCase(NAME);
const CHECK = { sampling: GREEDY, inexactCaches: false };
const promptIds = golden.prompt_ids;
const before = process.env.MLX_DSPARK_CACHE;
const cache = mkdtempSync(join(tmpdir(), "request-speculation-"));
let engine: EngineClient;

beforeAll(async () => {
  process.env.MLX_DSPARK_CACHE = cache;
  engine = spawnEngine(nativeFolder());
  await engine.load({
    model: join(drafterRoot, "target"),
    offline: true,
    kvBits: 0,
    contextWindow: null,
    threads: null,
    maxBatch: 4,
    maxQueue: 8,
    speculation: { ...NO_SPECULATION, mode: "dspark", drafter: drafterSource(NAME), drafterBits: 0, maxDraft: 3 },
  });
});
afterAll(async () => {
  await engine.shutdown(0);
  rmSync(cache, { recursive: true });
  if (before === undefined) delete process.env.MLX_DSPARK_CACHE;
  else process.env.MLX_DSPARK_CACHE = before;
});

interface Told {
  readonly ids: number[];
  readonly rounds: RoundInfo[];
  readonly logprobs: TokenLogprob[];
  readonly firsts: number;
  readonly stats: RequestStats;
}

async function run(speculation?: RequestSpeculation, part: Partial<GenerateRequest> = {}): Promise<Told> {
  const asked = request({
    promptIds,
    maxNewTokens: golden.greedy.max_new_tokens,
    ...(speculation !== undefined && { speculation }),
    ...part,
  });
  const [ids, rounds, logprobs]: [number[], RoundInfo[], TokenLogprob[]] = [[], [], []];
  let firsts = 0;
  for await (const event of engine.generate(asked)) {
    if (event.type === "tokens") {
      ids.push(...event.ids);
      logprobs.push(...(event.logprobs ?? []));
      if (event.round === null) firsts++;
      else rounds.push(event.round);
    }
    if (event.type === "done") return { ids, rounds, logprobs, firsts, stats: event.stats };
  }
  throw new Error("no end");
}

async function reason(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => null,
    (failure: unknown) => failure,
  );
  return error instanceof EngineError ? error.message : String(error);
}

describe("ways to decode", () => {
  test("the loaded mode, lookup and plain steps give the golden text, each in its own way", async () => {
    const [pair, lookup, plain] = await Promise.all([run(), run({ mode: "lookup" }), run({ mode: "baseline" })]);
    for (const { ids } of [pair, lookup, plain]) expect(ids).toEqual([...golden.greedy.baseline]);
    expect([pair.stats.mode, lookup.stats.mode, plain.stats.mode]).toEqual(["dspark", "lookup", "baseline"]);
    expect(pair.rounds.some(({ source }) => source === "drafter")).toBe(true);
    expect(lookup.rounds.some(({ source }) => source === "drafter")).toBe(false);
    expect(plain.rounds.every(({ source, drafted }) => source === "plain" && drafted === 0)).toBe(true);
    expect([pair.stats.cap, lookup.stats.cap, plain.stats.cap]).toEqual([3, 6, null]);
  });

  test("caps: a number, the full block, and the controller's, which reports its estimate", async () => {
    const [one, full, auto] = await Promise.all([
      run({ mode: "pair", maxDraft: 1, lookupDrafts: false }),
      run({ mode: "pair", maxDraft: 0, lookupDrafts: false }),
      run({ mode: "pair", maxDraft: "auto" }),
    ]);
    for (const { ids } of [one, full, auto]) expect(ids).toEqual([...golden.greedy.baseline]);
    expect(Math.max(...one.rounds.map(({ drafted }) => drafted))).toBe(1);
    expect(Math.max(...full.rounds.map(({ drafted }) => drafted))).toBeGreaterThan(3);
    expect(one.stats.acceptance).toBeNull();
    expect(auto.stats.acceptance).toBeGreaterThanOrEqual(0);
    expect(auto.stats.acceptance).toBeLessThanOrEqual(1);
  });

  test("rounds and the first token add up to the completion; drafts and acceptances to the statistics", async () => {
    for (const speculation of [undefined, { mode: "lookup" } as const, { mode: "baseline" } as const]) {
      const { ids, rounds, firsts, stats } = await run(speculation, { maxNewTokens: 40 });
      expect(firsts).toBe(1);
      expect(stats.rounds).toBe(rounds.length);
      expect(stats.acceptLengths.reduce((sum, length) => sum + length, 1)).toBe(ids.length);
      expect(stats.drafted).toBe(rounds.reduce((sum, round) => sum + round.drafted, 0));
      expect(stats.accepted).toBe(rounds.reduce((sum, round) => sum + round.accepted, 0));
      expect(rounds.every(({ ms }) => ms > 0)).toBe(true);
      if (rounds.length >= 32) expect(stats.decayRatio).toBeGreaterThan(0);
      else expect(stats.decayRatio).toBeNull();
    }
  });
});

describe("checks", () => {
  test("a text that was decoded is what its replay chooses", async () => {
    const { ids } = await run();
    const result = await replayRun(engine, { promptIds, ids }, CHECK);
    expect(result).toMatchObject({ tokens: ids.length, argmaxEqual: ids.length, maxGapAtMismatch: 0, mismatches: [] });
    expect(result.smallestGap).toBeGreaterThan(0);
  });

  test("a seeded sampled text, too, and no other seed's", async () => {
    const sampling = { ...GREEDY, temperature: 1.2, topP: 0.9, presencePenalty: 0.4, seed: "77" };
    const { ids } = await run(undefined, { sampling });
    expect((await replayRun(engine, { promptIds, ids }, { ...CHECK, sampling })).argmaxEqual).toBe(ids.length);
    const other = await replayRun(engine, { promptIds, ids }, { ...CHECK, sampling: { ...sampling, seed: "78" } });
    expect(other.argmaxEqual).toBeLessThan(ids.length);
  });

  test("a foreign token is found, with its rank and its distance", async () => {
    const { ids } = await run();
    const wrong = [...ids];
    wrong[5] = (ids[5] ?? 0) === 3 ? 4 : 3;
    const result = await replayRun(engine, { promptIds, ids: wrong.slice(0, 6) }, CHECK);
    expect(result).toMatchObject({ tokens: 6, argmaxEqual: 5 });
    expect(result.mismatches).toMatchObject([{ index: 5, token: wrong[5], choice: ids[5], kind: "fail" }]);
    expect(result.lossless).toBe(false);
    const excused = await replayRun(engine, { promptIds, ids: wrong.slice(0, 6) }, { ...CHECK, inexactCaches: true });
    expect(excused).toMatchObject({ lossless: true, argmaxEqual: 5, mismatches: [{ kind: "drift" }] });
    expect(result.mismatches[0]?.rank).toBeGreaterThan(1);
    expect(result.maxGapAtMismatch).toBeGreaterThan(0);
    expect(result.maxGapAtMismatch).toBeCloseTo(result.mismatches[0]?.deficit ?? 0, 6);
  });

  test("runs that agree, and one that does not, with its margin", async () => {
    const recorded = async (label: string, speculation: RequestSpeculation) => {
      const { ids, logprobs } = await run(speculation, { topLogprobs: 2 });
      return { label, promptIds, ids, logprobs };
    };
    const plain = await recorded("baseline", { mode: "baseline" });
    const drafted = await recorded("dspark", { mode: "pair" });
    const same = await compareRuns(engine, [plain, drafted], false);
    expect(same).toMatchObject({ comparable: true, identical: true, lossless: true, misranked: [], divergences: [] });

    const ids = [...drafted.ids];
    const token = (ids[4] ?? 0) === 3 ? 4 : 3;
    ids.splice(4, ids.length, token);
    const forged = { label: "forged", promptIds, ids, logprobs: null };
    const verdict = await compareRuns(engine, [plain, drafted, forged], false);
    expect(verdict).toMatchObject({ identical: false, lossless: false });
    const [divergence] = verdict.divergences;
    expect(divergence).toMatchObject({ arm: 2, firstDiff: 4, referenceToken: plain.ids[4], armToken: token });
    expect(divergence?.kind).toBe("fail");
    expect(divergence?.margin).toBeGreaterThan(0);
    expect(divergence?.logits?.[0]).toBeGreaterThan(divergence?.logits?.[1] ?? 0);
  });

  test("checks run beside requests, can be given up, and refuse what they cannot read", async () => {
    const text = Array.from({ length: 64 }, (_, i) => 1 + (i % 7));
    const stop = new AbortController();
    const given = replayRun(engine, { promptIds, ids: text }, { ...CHECK, signal: stop.signal });
    const beside = run({ mode: "baseline" });
    stop.abort();
    expect(await reason(given)).toBe("the check was given up");
    expect((await beside).ids).toEqual([...golden.greedy.baseline]);
    const refused = (part: object) => reason(replayRun(engine, { promptIds, ids: [1], ...part }, CHECK));
    expect(await refused({ promptIds: [] })).toBe("the prompt is empty");
    expect(await refused({ ids: [10_000_000] })).toContain("not in the vocabulary");
    expect(await refused({ ids: new Array(1_000_000).fill(1) })).toContain("too long");
  });

  test("nothing is left behind", async () => {
    await run();
    const first = (await engine.stats()).liveArrays;
    for (let i = 0; i < 3; i++) {
      const { ids } = await run({ mode: "pair", maxDraft: "auto" });
      await replayRun(engine, { promptIds, ids }, CHECK);
    }
    expect((await engine.stats()).liveArrays).toBe(first);
  });
});
