/**
 * SmolLM2 with schemas, through the real grammar engine: every text that ends is an instance of its schema, the ids are
 * the same in every mode, and a prefix of one where the limit cut it. More of both is in `bench/structured.ts`.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Speculator } from "../../src/decoding/speculator.ts";
import type { EngineError, GenerateEvent } from "../../src/engine/client.ts";
import { nativeFolder } from "../../src/engine/embedded/files.ts";
import { type GenerateRequest, type LoadSpec, NO_SPECULATION } from "../../src/engine/protocol.ts";
import { spawnEngine } from "../../src/engine/spawn.ts";
import { liveArrays } from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { specOf } from "../support/automaton.ts";
import { openTestMlx } from "../support/native.ts";
import { difference, speculator } from "../support/pairs.ts";
import { GREEDY } from "../support/sampling.ts";
import { complaint, SCHEMAS, schemaSpec } from "../support/schemas.ts";
import { smollm2Folder, smollm2Present } from "../support/smollm2.ts";
import { checkStats } from "../support/spec-stats.ts";
import { Structured } from "../support/structured.ts";
import { request } from "./tiny.ts";

setDefaultTimeout(240_000);
const QUESTIONS = [
  "Tell me about Maria Lopez from Madrid.",
  "Is the film good? It was far too long and nobody laughed.",
];

describe.skipIf(!smollm2Present)("SmolLM2 with schemas (needs the GGUF of `make setup`)", () => {
  const folder = mkdtempSync(join(tmpdir(), "smollm2-constraint-"));
  let smollm2: Structured;

  beforeAll(async () => {
    openTestMlx();
    smollm2 = await Structured.open(await smollm2Folder(join(folder, "mlx")));
  });
  afterAll(() => {
    smollm2.close();
    rmSync(folder, { recursive: true });
    expect(liveArrays()).toBe(0);
    expect(liveCpuObjects()).toBe(0);
  });

  async function requests(part: Partial<GenerateRequest> = {}): Promise<[string, GenerateRequest][]> {
    const out: [string, GenerateRequest][] = [];
    for (const [i, content] of QUESTIONS.entries()) {
      const { text } = smollm2;
      const { ids } = await text.encodeChat({ messages: [{ role: "user", content }] });
      for (const [name, schema] of Object.entries(SCHEMAS)) {
        const sampling = i === 0 ? GREEDY : { ...GREEDY, temperature: 0.7, topP: 0.95, seed: "3" };
        const constraint = schemaSpec(schema);
        const all = { promptIds: ids, maxNewTokens: 120, eosIds: text.eosIds, sampling, constraint };
        out.push([name, request({ ...all, ...part })]);
      }
    }
    return out;
  }

  test("every text is an instance of its schema, the same in every mode and beside free rows", async () => {
    const asked = await requests();
    const bound = asked.map(([, each]) => each);
    const free = request({ promptIds: bound[0]?.promptIds ?? [], maxNewTokens: 25, eosIds: smollm2.text.eosIds });
    const plain = await smollm2.run([...bound, free], null, 4);
    for (const [i, { ids, end }] of plain.slice(0, -1).entries()) {
      const [name = ""] = asked[i] ?? [];
      expect(end).toBe("stop");
      expect({ name, complaint: complaint(SCHEMAS[name] ?? {}, smollm2.shown(ids)) }).toEqual({ name, complaint: "" });
    }
    const { drafter } = smollm2.pair;
    const modes: readonly (readonly [Speculator, number])[] = [
      [speculator({ lookup: false }), 1],
      [speculator({ drafter, cap: 3, lookup: true }), 4],
    ];
    let forced = 0;
    let forwards = 0;
    for (const [policy, maxBatch] of modes) {
      const results = await smollm2.run([...bound, free], policy, maxBatch);
      for (const [i, { ids, stats, end }] of results.entries()) {
        expect({ i, difference: difference(ids, plain[i]?.ids ?? []) }).toEqual({ i, difference: "" });
        checkStats({ ids, stats, end, logprobs: [] }, [...bound, free][i] as GenerateRequest);
        forced += stats?.grammar?.forcedTokens ?? 0;
        if (maxBatch === 1) forwards += stats?.targetForwards ?? 0;
      }
    }
    expect(forced).toBeGreaterThan(50);
    // What must follow comes several tokens a forward.
    const tokens = plain.reduce((sum, { ids }) => sum + ids.length, 0);
    expect(tokens / forwards).toBeGreaterThan(1.05);
  });

  test("the limit in the middle of a text is no failure", async () => {
    const asked = (await requests({ maxNewTokens: 5 })).slice(0, 5);
    const results = await smollm2.run(
      asked.map(([, each]) => each),
      speculator({ drafter: smollm2.pair.drafter, lookup: true }),
      4,
    );
    for (const { ids, end } of results) {
      expect(end).toBe("length");
      expect(ids).toHaveLength(5);
      expect(smollm2.shown(ids)[0]).toBe("{");
    }
  });

  describe("on the engine's own thread", () => {
    const spec: LoadSpec = {
      model: join(folder, "mlx"),
      offline: true,
      kvBits: 0,
      contextWindow: null,
      threads: null,
      speculation: NO_SPECULATION,
      maxBatch: 2,
      maxQueue: 8,
    };

    async function ids(events: AsyncIterableIterator<GenerateEvent>): Promise<{ ids: number[]; end: string }> {
      const ids: number[] = [];
      for await (const event of events) {
        if (event.type === "tokens") ids.push(...event.ids);
        if (event.type === "done") return { ids, end: event.reason };
      }
      throw new Error("no end");
    }

    test("idle and busy, given up while it compiles, refused, and behind an engine that was lost", async () => {
      const engine = spawnEngine(nativeFolder());
      try {
        await engine.load(spec);
        const asked = (await requests()).slice(0, 5);
        const [person, verdict] = asked.map(([, each]) => each);
        if (person === undefined || verdict === undefined) throw new Error("no schemas");
        // Nothing runs: the thread rests until the grammar is there.
        const first = await ids(engine.generate(person));
        expect(complaint(SCHEMAS.person ?? {}, smollm2.shown(first.ids))).toBe("");
        const free = request({ promptIds: person.promptIds, maxNewTokens: 200 });
        const busy = ids(engine.generate(free));
        const second = await ids(engine.generate(verdict));
        expect(complaint(SCHEMAS.verdict ?? {}, smollm2.shown(second.ids))).toBe("");
        const leave = new AbortController();
        const third = request({ ...person, id: "ffffff01", constraint: schemaSpec(SCHEMAS.list ?? {}) });
        const given = ids(engine.generate(third, leave.signal));
        leave.abort();
        expect(await given).toEqual({ ids: [], end: "cancelled" });
        const constraint = specOf("root ::= nowhere\n");
        const refused = ids(engine.generate(request({ ...person, id: "ffffff02", constraint })));
        expect(await refused.catch((error: EngineError) => error.kind)).toBe("invalid_request");
        const again = await ids(engine.generate({ ...person, id: "ffffff03" }));
        expect(again).toEqual(first);
        expect((await busy).ids).toHaveLength(200);
        const { grammars, activeRows, queuedRows } = await engine.stats();
        expect([activeRows, queuedRows]).toEqual([0, 0]);
        expect(grammars?.compileSeconds.counts.reduce((sum, n) => sum + n, 0)).toBeGreaterThanOrEqual(2);
      } finally {
        await engine.shutdown(0);
      }
    });
  });
});
