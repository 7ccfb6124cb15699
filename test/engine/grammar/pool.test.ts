/** The grammar workers through their client: compiled once, masks along drafts, refusals, losses with every row at its place. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import type {
  CompiledConstraint,
  CompileOutcome,
  ConstraintSpec,
  RowConstraint,
} from "../../../src/decoding/constraint.ts";
import { ConstraintError } from "../../../src/decoding/constraint.ts";
import { GrammarMeter, type GrammarMetrics } from "../../../src/engine/grammar/metrics.ts";
import { GrammarPool, type PoolOptions } from "../../../src/engine/grammar/pool.ts";
import { textConstraint } from "../../../src/text/index.ts";
import { isLegal } from "../../support/grammar-walk.ts";
import { fixtureTokenizer, tokenizerJson } from "../../text/fixtures.ts";

const tokenizer = fixtureTokenizer("qwen");
const EOS = tokenizer.eosIds[0] ?? -1;
const SIZE = tokenizer.vocabSize;
const WIDTH = Math.ceil(SIZE / 32);

let dir = "";
const pools: GrammarPool[] = [];

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "grammar-pool-"));
  writeFileSync(join(dir, "tokenizer.json"), JSON.stringify(tokenizerJson("qwen")));
});

afterAll(() => {
  for (const pool of pools) pool.close();
  rmSync(dir, { recursive: true });
});

/** A meter for each pool. */
const meters = new WeakMap<GrammarPool, GrammarMeter>();

function newPool(options: Partial<PoolOptions> = {}): GrammarPool {
  const meter = new GrammarMeter();
  const pool = new GrammarPool({ dir, vocabSize: SIZE, patienceMs: 1500, meter, ...options });
  meters.set(pool, meter);
  pools.push(pool);
  return pool;
}

function metricsOf(pool: GrammarPool): GrammarMetrics {
  return (meters.get(pool) ?? new GrammarMeter()).metrics;
}

const SCHEMA = {
  type: "object",
  properties: { name: { type: "string" }, n: { type: "integer" }, more: { type: "array", items: { type: "boolean" } } },
  required: ["name", "n", "more"],
};

function specOf(schema: unknown = SCHEMA): ConstraintSpec {
  const spec = textConstraint({
    format: { kind: "json_schema", schema, strict: true },
    calls: null,
    thoughts: { kind: "none" },
    controlId: () => undefined,
  });
  if (spec === null) throw new Error("no constraint");
  return spec;
}

const raw = (ebnf: string): ConstraintSpec => ({ ...specOf(), ebnf });

function outcome(pool: GrammarPool, spec: ConstraintSpec): Promise<CompileOutcome> {
  return new Promise((resolve) => pool.compile(spec, resolve));
}

async function compiled(pool: GrammarPool, spec = specOf()): Promise<CompiledConstraint> {
  const { compiled: found, error } = await outcome(pool, spec);
  if (found === null) throw error;
  return found;
}

const open = (pool: GrammarPool, grammar: CompiledConstraint): RowConstraint =>
  pool.open(grammar, { eosIds: [EOS], maxNewTokens: 100 });

const ids = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });
const TEXT = '{"name": "Ada L.", "n": -12, "more": [true, false]}';

/** The masks of a row along its text, one at a time. */
function singly(row: RowConstraint, text: readonly number[]): Uint32Array[] {
  return text.map((id) => {
    const words = row.masks([]).words();
    row.commit([id]);
    return words;
  });
}

describe("a row", () => {
  test("gives along a draft what it gives token by token, and stays where it is", async () => {
    const pool = newPool();
    const grammar = await compiled(pool);
    using one = open(pool, grammar);
    using other = open(pool, grammar);
    const text = ids(TEXT);
    const expected = singly(one, text);
    expect(one.masks([EOS]).kept).toBe(1);
    for (const at of [0, 3, 7]) {
      const draft = text.slice(at, at + 5);
      for (const _ of [1, 2]) {
        const { kept, words, width } = other.masks(draft);
        expect([kept, width]).toEqual([draft.length, WIDTH]);
        const rows = words();
        for (let i = 0; i < draft.length; i++) {
          expect([...rows.slice(i * WIDTH, (i + 1) * WIDTH)]).toEqual([...(expected[at + i] ?? [])]);
        }
      }
      other.commit(text.slice(at, at === 0 ? 3 : at === 3 ? 7 : text.length));
    }
    expect(other.ended).toBe(false);
    other.commit([EOS]);
    expect([other.ended, other.forced()]).toEqual([true, []]);
  });

  test("cuts a draft at its first illegal token; an EOS that is legal ends it", async () => {
    const pool = newPool();
    using row = open(pool, await compiled(pool));
    const text = ids(TEXT);
    const wrong = row.masks([...text.slice(0, 4), EOS, ...text.slice(4)]);
    expect([wrong.kept, wrong.words().length]).toEqual([4, 5 * WIDTH]);
    const whole = row.masks([...text, EOS, ...text]);
    expect(whole.kept).toBe(text.length + 1);
    const behindEos = whole.words().slice(-WIDTH);
    expect(behindEos.every((word) => word === 0xffff_ffff)).toBe(true);
    expect(row.stats()).toMatchObject({ cutDrafts: 2, maskedRows: 5 + text.length + 2 });
  });

  test("has masks without a bit where nothing may follow, and they are no error", async () => {
    const pool = newPool();
    // No token spells a reserved byte.
    using row = open(pool, await compiled(pool, raw('root ::= "a\\u0008" | "b"')));
    const [a, b] = ["a", "b"].map((text) => ids(text)[0] ?? -1) as [number, number];
    const { kept, words } = row.masks([a, b]);
    expect(kept).toBe(1);
    const rows = words();
    expect([a, b].map((id) => isLegal(rows, id))).toEqual([true, true]);
    expect(rows.subarray(WIDTH)).toEqual(new Uint32Array(WIDTH));
    row.commit([a]);
    expect(row.masks([b]).kept).toBe(0);
    expect(row.masks([]).words()).toEqual(new Uint32Array(WIDTH));
    expect(metricsOf(pool).restarts).toBe(0);
  });

  test("takes drafts that are longer than one answer has room for", async () => {
    const pool = newPool();
    using row = open(pool, await compiled(pool, specOf({ type: "array", items: { type: "null" } })));
    const draft = ids(`[${"null, ".repeat(120)}null]`);
    expect(draft.length).toBeGreaterThan(200);
    const { kept, words } = row.masks(draft);
    expect(kept).toBe(draft.length);
    const rows = words();
    using other = open(pool, await compiled(pool, specOf({ type: "array", items: { type: "null" } })));
    for (const [i, mask] of singly(other, draft).entries())
      expect([...rows.slice(i * WIDTH, (i + 1) * WIDTH)]).toEqual([...mask]);
  });

  test("proposes what must follow, short of the last token", async () => {
    const pool = newPool();
    using row = open(pool, await compiled(pool));
    const forced = row.forced();
    const text = forced.map((id) => tokenizer.tokenText(id)).join("");
    expect(text.length).toBeGreaterThan(0);
    expect('{"name": "'.startsWith(text)).toBe(true);
    expect(row.masks(forced).kept).toBe(forced.length);
    row.commit(ids('{"name": "A'));
    expect(row.forced()).toEqual([]);
  });

  test("denies every control token, in a thousand states", async () => {
    const pool = newPool();
    using row = open(pool, await compiled(pool));
    const control = tokenizer.control.map(({ id }) => id).filter((id) => id !== EOS);
    const text = ids(`{"name": "${"Some words. ".repeat(400)}", "n": 1, "more": []}`);
    let states = 0;
    for (let at = 0; at < text.length && states < 1000; at += 32) {
      const rows = row.masks(text.slice(at, at + 32)).words();
      for (let i = 0; i < rows.length; i += WIDTH, states++) {
        const mask = rows.subarray(i, i + WIDTH);
        for (const id of control) expect(isLegal(mask, id)).toBe(false);
      }
      row.commit(text.slice(at, at + 32));
    }
    expect(states).toBeGreaterThan(800);
  });
});

describe("compiling", () => {
  test("happens once for one grammar, and is told of those who wait together", async () => {
    const pool = newPool();
    const [first, second] = await Promise.all([compiled(pool), compiled(pool)]);
    expect([first?.cached, second?.cached]).toEqual([false, false]);
    expect((await compiled(pool)).cached).toBe(true);
    expect(metricsOf(pool)).toMatchObject({ restarts: 0, cacheHits: 1 });
    expect(metricsOf(pool).compileSeconds.counts.reduce((a, b) => a + b)).toBe(1);
  });

  test("of what the engine refuses is the client's fault, with the engine's reason; rows beside it go on", async () => {
    const pool = newPool({ workersMax: 1 });
    using row = open(pool, await compiled(pool));
    const text = ids(TEXT);
    row.commit(text.slice(0, 5));
    const { error } = await outcome(pool, raw("root ::= nowhere"));
    expect(error?.kind).toBe("invalid_request");
    expect(error?.message).toContain('"nowhere" is not defined');
    expect(row.masks(text.slice(5)).kept).toBe(text.length - 5);
    expect(metricsOf(pool).restarts).toBe(1);
  });

  test("more refusals than an instance survives leave it healthy", async () => {
    const pool = newPool();
    for (let i = 0; i < 40; i++) expect((await outcome(pool, raw(`root ::= nowhere${i}`))).compiled).toBeNull();
    using row = open(pool, await compiled(pool));
    expect(row.masks(ids(TEXT)).kept).toBe(ids(TEXT).length);
  }, 60_000);

  test("that takes too long is given up", async () => {
    const pool = newPool({ compileMsMax: 700 });
    const long = `root ::= ${'[a-z]? "x"? '.repeat(2000)}`;
    const { error } = await outcome(pool, raw(long));
    expect(error).toEqual(new ConstraintError("invalid_request", "schema takes too long to compile"));
    expect(await outcome(pool, specOf())).toMatchObject({ error: null });
  }, 30_000);

  test("keeps 64 grammars, and those in use", async () => {
    const pool = newPool();
    const oldest = await compiled(pool, specOf({ const: "oldest" }));
    using row = open(pool, oldest);
    oldest[Symbol.dispose]();
    (await compiled(pool, specOf({ const: "second" })))[Symbol.dispose]();
    for (let i = 0; i < 64; i++) (await compiled(pool, specOf({ const: `value ${i}` })))[Symbol.dispose]();
    expect((await compiled(pool, specOf({ const: "oldest" }))).cached).toBe(true);
    expect((await compiled(pool, specOf({ const: "second" }))).cached).toBe(false);
    expect(row.masks(ids('"oldest"')).kept).toBe(ids('"oldest"').length);
  }, 30_000);

  test("goes to a worker whose rows it does not hold up", async () => {
    const pool = newPool({ workersMax: 2 });
    using row = open(pool, await compiled(pool));
    row.masks([]).words();
    // Some seconds of work, if it were let.
    const slow = outcome(pool, raw(`root ::= ${'[a-z]? "x"? '.repeat(2000)}`));
    await Bun.sleep(300);
    const started = performance.now();
    for (let i = 0; i < 20; i++) row.masks([]).words();
    expect(performance.now() - started).toBeLessThan(1000);
    pool.close();
    expect((await slow).error?.message).toContain("ended");
  }, 30_000);
});

describe("a lost worker", () => {
  test("is started anew in the middle of texts: the same masks follow", async () => {
    const workers: Worker[] = [];
    const pool = newPool({ onWorker: (worker) => workers.push(worker) });
    const grammar = await compiled(pool);
    using one = open(pool, grammar);
    using other = open(pool, grammar);
    const text = ids(TEXT);
    const expected = singly(one, text);
    for (const [i, id] of text.entries()) {
      if (i === 4 || i === 9) void workers.at(-1)?.terminate();
      expect([...other.masks([id]).words().slice(0, WIDTH)]).toEqual([...(expected[i] ?? [])]);
      other.commit([id]);
    }
    expect(metricsOf(pool).restarts).toBeGreaterThanOrEqual(2);
  }, 30_000);

  test("fails the row whose grammar kills it twice, and no other", async () => {
    const pool = newPool({ workersMax: 1 });
    using good = open(pool, await compiled(pool));
    using bad = open(pool, await compiled(pool, specOf({ type: "null" })));
    const ask = () => bad.masks([]).words();
    ask();
    // An id beyond the vocabulary is one thing that the engine does not survive.
    expect(() => {
      for (let i = 0; i < 3; i++) {
        bad.commit([SIZE + 100_000]);
        ask();
      }
    }).toThrow(ConstraintError);
    expect(good.masks(ids(TEXT)).kept).toBe(ids(TEXT).length);
  }, 30_000);

  test("that cannot read the model's tokenizer says so", async () => {
    const pool = new GrammarPool({ dir: join(dir, "nowhere"), vocabSize: SIZE });
    pools.push(pool);
    const { error } = await outcome(pool, specOf());
    expect(error?.kind).toBe("internal");
    expect(error?.message).toContain("tokenizer.json");
  }, 30_000);
});
