/**
 * Proposals by every law and kind, over golden drafters: laws and draws belong together, coupled drafts are the target's
 * own draws where the distributions agree, rows of a batch are what they are alone, and rounds leave no handles.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BlockDrafter } from "../../src/drafters/block-drafter.ts";
import type { DrafterSession, ProposalLaw } from "../../src/drafters/drafter.ts";
import { draw } from "../../src/drafters/draw.ts";
import { loadDrafter } from "../../src/drafters/load.ts";
import { coupledWalk, sampledWalk, widenCandidates } from "../../src/drafters/selector.ts";
import { DraftVocabulary } from "../../src/drafters/vocabulary.ts";
import {
  evaluate,
  float32Array,
  free,
  int32Array,
  keep,
  liveArrays,
  type MlxArray,
  scalar,
  scope,
  toFloat32,
  toInt32,
  uint32Array,
} from "../../src/mlx/array.ts";
import { liveCpuObjects } from "../../src/mlx/cpu.ts";
import { divide, log, softmax } from "../../src/mlx/ops.ts";
import { categorical, randomKey, uniform } from "../../src/mlx/random.ts";
import { loadTarget } from "../../src/models/load.ts";
import type { TargetModel } from "../../src/models/target.ts";
import type { Compute } from "../../src/nn/compute.ts";
import { fusedCompute } from "../../src/nn/fused/compute.ts";
import { stockCompute } from "../../src/nn/stock.ts";
import { drafterCases, drafterRoot, drafterSource, readCase, readVectors } from "../support/drafter-golden.ts";
import { openTestMlx } from "../support/native.ts";

const VOCAB = 512;
const STOCK = { compute: stockCompute("float32"), dtype: "float32" } as const;
const GREEDY: ProposalLaw = { kind: "greedy", vocab: VOCAB, bias: null };
const cache = mkdtempSync(join(tmpdir(), "drafters-"));
let target: TargetModel;

setDefaultTimeout(60_000);
beforeAll(() => {
  openTestMlx();
  target = loadTarget(join(drafterRoot, "target"), STOCK.compute, STOCK).model;
});
afterAll(() => {
  target.dispose();
  rmSync(cache, { recursive: true });
  expect(liveArrays()).toBe(0);
});

/** A law without truncation; the keys are made in the open scope. */
function sampled(kind: "rejection" | "coupled", temperature: number, seed: number, count = 16): ProposalLaw {
  return {
    kind,
    vocab: VOCAB,
    bias: null,
    temperature,
    probabilities: (logits) => softmax(divide(logits, scalar(temperature, "float32")), -1),
    keys: Array.from({ length: count }, (_, i) => randomKey(BigInt(seed * 1000 + i))),
  };
}

type Backend = "stock" | "fused";

/** Borrows of the stock target in either case. */
function load(name: string, backend: Backend = "stock"): BlockDrafter {
  const windowTokens = readCase(name).ctx_window ?? 0;
  const choice = backend === "stock" ? STOCK : { compute: fusedCompute(), dtype: null };
  return loadDrafter(drafterSource(name), target, { ...choice, bits: 0, windowTokens, cacheRoot: cache });
}

/** Context rows that stand for a prompt. */
function context(name: string, rows: number): Float32Array {
  const vector = readVectors(join(drafterRoot, name, "vectors.safetensors")).get("ctx_hidden");
  if (vector === undefined) throw new Error("no ctx_hidden");
  return vector.values.subarray(0, rows * 192);
}

function sessionWith(drafter: BlockDrafter, name: string, rows: number): DrafterSession {
  const session = drafter.newSession(256);
  scope(() => session.committed(float32Array(context(name, rows), [rows, 192])));
  evaluate(session.arrays());
  return session;
}

const sums = (q: Float32Array): number[] =>
  Array.from({ length: q.length / VOCAB }, (_, i) => q.subarray(i * VOCAB, (i + 1) * VOCAB).reduce((a, b) => a + b, 0));

const runs = drafterCases.flatMap((name) => [[name, "stock"] as const, [name, "fused"] as const]);

describe.each(runs)("%s, %s", (name, backend) => {
  test("by the rejection law, q is a distribution over the target's ids that holds every draft", () => {
    const drafter = load(name, backend);
    const session = sessionWith(drafter, name, 30);
    scope(() => {
      const { ids, q, count } = session.propose(int32Array([7]), drafter.maxDraft, sampled("rejection", 0.9, 3));
      expect(count).toBe(drafter.maxDraft);
      if (q === null) throw new Error("no q");
      const law = toFloat32(q);
      for (const sum of sums(law)) expect(sum).toBeCloseTo(1, 4);
      const draft = toInt32(ids);
      for (const [i, id] of draft.entries()) expect(law[i * VOCAB + id] ?? 0).toBeGreaterThan(0);
      // The same keys give the same drafts.
      const again = session.propose(int32Array([7]), drafter.maxDraft, sampled("rejection", 0.9, 3));
      expect([...toInt32(again.ids)]).toEqual([...draft]);
    });
    session.close();
    drafter.dispose();
  });

  test("coupled drafts of a cold law are the greedy ones, and no q is made", () => {
    const drafter = load(name, backend);
    const session = sessionWith(drafter, name, 30);
    scope(() => {
      const greedy = session.propose(int32Array([7]), drafter.maxDraft, GREEDY);
      const coupled = session.propose(int32Array([7]), drafter.maxDraft, sampled("coupled", 1e-4, 5));
      expect([...toInt32(coupled.ids)]).toEqual([...toInt32(greedy.ids)]);
      expect(coupled.q).toBeNull();
      expect(greedy.q).toBeNull();
    });
    session.close();
    drafter.dispose();
  });

  test("a bias that forbids everything but one id is obeyed", () => {
    const drafter = load(name, backend);
    const session = sessionWith(drafter, name, 20);
    scope(() => {
      const first = toInt32(session.propose(int32Array([7]), 1, GREEDY).ids)[0] ?? 0;
      const row = new Float32Array(VOCAB).fill(-1e6);
      row[first] = 0;
      const bias = float32Array(row, [1, VOCAB]);
      const { ids } = session.propose(int32Array([7]), drafter.maxDraft, { ...GREEDY, bias });
      // A selector walks among the best: there the others are still candidates, but never chosen.
      expect(new Set(toInt32(ids))).toEqual(new Set([first]));
    });
    session.close();
    drafter.dispose();
  });

  test("rows of a batch are what they are alone", () => {
    const drafter = load(name, backend);
    const lengths = [30, 5, 37, 1];
    const sessions = lengths.map((rows) => sessionWith(drafter, name, rows));
    scope(() => {
      const rows = sessions.map((session, i) => ({ session, anchor: int32Array([40 + i]), cap: i + 1, law: GREEDY }));
      const together = drafter.propose(rows);
      for (const [i, row] of rows.entries()) {
        const alone = row.session.propose(row.anchor, row.cap, row.law);
        expect(together[i]?.count).toBe(alone.count);
        expect([...toInt32(together[i]?.ids ?? int32Array([]))]).toEqual([...toInt32(alone.ids)]);
        const confidence = together[i]?.confidence ?? null;
        if (confidence === null || alone.confidence === null) {
          expect(confidence).toBe(alone.confidence);
          continue;
        }
        const single = toFloat32(alone.confidence);
        for (const [j, value] of toFloat32(confidence).entries()) expect(value).toBeCloseTo(single[j] ?? 0, 3);
      }
    });
    for (const session of sessions) session.close();
    drafter.dispose();
  });

  test("a cut context is one that never was longer", () => {
    const drafter = load(name, backend);
    const cut = sessionWith(drafter, name, 37);
    cut.trim(34);
    const short = sessionWith(drafter, name, 34);
    scope(() => {
      const drafts = [cut, short].map((session) => [
        ...toInt32(session.propose(int32Array([9]), drafter.maxDraft, GREEDY).ids),
      ]);
      expect(cut.length).toBe(34);
      // DFlash's sliding layers forget what no later block could see, so that a cut one sees less; full ones see all.
      if (drafter.kind === "dspark" || name === "dflash") expect(drafts[0]).toEqual(drafts[1] ?? []);
      else expect(drafts[0]).toHaveLength(drafter.maxDraft);
    });
    cut.close();
    short.close();
    drafter.dispose();
  });

  test("two hundred rounds leave no handle behind", () => {
    const drafter = load(name, backend);
    const session = sessionWith(drafter, name, 30);
    const row = context(name, 2);
    const round = (i: number) => {
      const ids = scope(() => {
        const proposal = session.propose(int32Array([i % VOCAB]), 3, GREEDY);
        return keep(proposal.ids);
      });
      evaluate([ids]);
      free(ids);
      scope(() => session.committed(float32Array(row, [2, 192])));
      evaluate(session.arrays());
    };
    round(0);
    const before = liveArrays();
    for (let i = 1; i < 100; i++) round(i);
    expect(liveArrays()).toBe(before);
    expect(session.length).toBe(230);
    session.close();
    drafter.dispose();
  });
});

describe.each(["stock", "fused"] as const)("a head over the first 100 ids, %s", (backend) => {
  const limit = 100;
  let limited: BlockDrafter;
  let whole: BlockDrafter;
  beforeAll(() => {
    const dir = join(cache, `limited-${backend}`);
    cpSync(drafterSource("dspark_native"), dir, { recursive: true });
    const file = join(dir, "config.json");
    const config = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    writeFileSync(file, JSON.stringify({ ...config, draft_id_limit: limit }));
    const choice = backend === "stock" ? STOCK : { compute: fusedCompute(), dtype: null };
    limited = loadDrafter(dir, target, { ...choice, bits: 0 });
    whole = load("dspark_native", backend);
  });
  afterAll(() => {
    limited.dispose();
    whole.dispose();
  });

  test("drafts are the best of those ids, by the walk and by one op", () => {
    expect(limited.draftVocab).toBe(limit);
    const [own, all] = [limited, whole].map((drafter) => sessionWith(drafter, "dspark_native", 30));
    scope(() => {
      const row = new Float32Array(VOCAB).fill(Number.NEGATIVE_INFINITY).fill(0, 0, limit);
      for (let anchor = 0; anchor < VOCAB; anchor += 31) {
        const at = int32Array([anchor]);
        const bias = float32Array(row, [1, VOCAB]);
        const wanted = [...toInt32(all?.propose(at, 7, { ...GREEDY, bias }).ids ?? at)];
        expect([...toInt32(own?.propose(at, 7, GREEDY).ids ?? at)]).toEqual(wanted);
        const zeros = float32Array(new Float32Array(VOCAB), [1, VOCAB]);
        expect([...toInt32(own?.propose(at, 7, { ...GREEDY, bias: zeros }).ids ?? at)]).toEqual(wanted);
      }
    });
    own?.close();
    all?.close();
  });

  test("laws have the target's width and no mass on other ids", () => {
    const session = sessionWith(limited, "dspark_native", 30);
    scope(() => {
      const { q } = session.propose(int32Array([7]), 7, sampled("rejection", 1, 3));
      const law = toFloat32(q ?? scalar(0, "float32"));
      expect(law).toHaveLength(7 * VOCAB);
      for (const sum of sums(law)) expect(sum).toBeCloseTo(1, 4);
      for (let i = 0; i < 7; i++)
        expect(law.subarray(i * VOCAB + limit, (i + 1) * VOCAB).every((x) => x === 0)).toBe(true);
    });
    session.close();
  });
});

test("a session without the first rows drafts from what it has, at the right position", () => {
  const drafter = load("dflash2");
  const late = drafter.newSession(256, 100);
  expect(late.length).toBe(100);
  scope(() => {
    expect(toInt32(late.propose(int32Array([3]), 7, GREEDY).ids)).toHaveLength(7);
    late.committed(float32Array(context("dflash2", 3), [3, 192]));
    expect(late.length).toBe(103);
    expect(toInt32(late.propose(int32Array([3]), 7, GREEDY).ids)).toHaveLength(7);
  });
  late.close();
  drafter.dispose();
});

test.each([0, 3, 9, 15])("a load that fails after %i blocks leaves nothing behind", (blocks) => {
  const before = [liveArrays(), liveCpuObjects()];
  for (const inner of [STOCK.compute, fusedCompute()]) {
    let left = blocks;
    const limited =
      <A extends unknown[], B>(make: (...parts: A) => B) =>
      (...parts: A): B => {
        if (left-- <= 0) throw new Error("out of memory");
        return make(...parts);
      };
    const { embedding, linear, norm, projectionAdd, feedForward, contextAttention } = inner;
    const compute: Compute = {
      ...inner,
      embedding: limited(embedding),
      linear: limited(linear),
      norm: limited(norm),
      projectionAdd: limited(projectionAdd),
      feedForward: limited(feedForward),
      contextAttention: contextAttention === null ? null : limited(contextAttention),
    };
    for (const name of ["dspark_gemma4", "dspark_native"]) {
      left = blocks;
      const load = () => loadDrafter(drafterSource(name), target, { compute, dtype: null, bits: 4 });
      expect(load).toThrow("out of memory");
      expect([liveArrays(), liveCpuObjects()]).toEqual(before);
    }
  }
});

test("foreign sessions and empty drafts are refused", () => {
  const drafter = load("dflash");
  const other = load("dflash2");
  const session = other.newSession(64);
  scope(() => {
    const row = { session, anchor: int32Array([1]), cap: 1, law: GREEDY };
    expect(() => drafter.propose([row])).toThrow("another drafter");
    expect(() => other.propose([{ ...row, cap: 0 }])).toThrow("a draft of 0");
    expect(() => session.propose(row.anchor, 1, { ...sampled("coupled", 1, 1, 0) })).toThrow("0 keys");
  });
  session.close();
  other.dispose();
  drafter.dispose();
});

describe("coupling", () => {
  const logits = (): MlxArray => float32Array([0.3, 1.2, -0.4, 0.9, 0.1, 2, -1, 0.5], [1, 8]);
  const law = (key: bigint): ProposalLaw => ({
    kind: "coupled",
    vocab: 8,
    bias: null,
    temperature: 1,
    probabilities: (x) => softmax(x, -1),
    keys: [randomKey(key)],
  });

  test("equal distributions draw equal tokens, also through a reduced vocabulary that holds all the mass", () => {
    const ids = scope(() => keep(uint32Array([1, 3, 5])));
    const reduced = new DraftVocabulary(3, ids, 8);
    const whole = new DraftVocabulary(8, null, 8);
    for (let key = 0n; key < 200n; key++) {
      scope(() => {
        const own = categorical(log(softmax(logits(), -1)), -1, randomKey(key));
        expect([...toInt32(draw(logits(), 0, law(key), null, whole).id)]).toEqual([...toInt32(own)]);
        const some = float32Array([1.2, 0.9, 2], [1, 3]);
        const restricted = reduced.widen(softmax(some, -1), 8, 0);
        const wanted = categorical(log(restricted), -1, randomKey(key));
        expect([...toInt32(draw(some, 0, law(key), null, reduced).id)]).toEqual([...toInt32(wanted)]);
      });
    }
    reduced.dispose();
    whole.dispose();
  });

  test("the selector's walk draws what a target with its distribution draws", () => {
    for (let seed = 0n; seed < 100n; seed++) {
      scope(() => {
        const ids = int32Array([4, 2, 7, 1, 0, 6], [2, 3]);
        const scores = float32Array(
          Array.from({ length: 18 }, (_, i) => Math.sin(i * 1.7) * 2),
          [2, 3, 3],
        );
        const keys = [randomKey(seed), randomKey(seed + 1000n)];
        const at = (slot: number) => {
          const key = keys[slot];
          if (key === undefined) throw new Error("no key");
          return key;
        };
        const walk = [...toInt32(coupledWalk(ids, scores, 0.7, at, 8).ids)];
        let before = 0;
        for (const [slot, id] of walk.entries()) {
          const row = toFloat32(scores).subarray((slot * 3 + before) * 3, (slot * 3 + before) * 3 + 3);
          const own = toInt32(ids).subarray(slot * 3, slot * 3 + 3);
          const q = softmax(divide(float32Array(row, [1, 3]), scalar(0.7, "float32")), -1);
          const wide = widenCandidates(int32Array(own, [1, 3]), q, 8);
          expect(toInt32(categorical(log(wide), -1, at(slot)))[0]).toBe(id);
          before = own.indexOf(id);
        }
      });
    }
  });
});

test("sampled walks follow their own law: chi-square over 20,000 walks", () => {
  const scores = [
    [0.5, 1.5, -0.5],
    [1, 0, 0.5],
    [-1, 0.2, 0.9],
    [0, 0, 1.2],
  ];
  // Slot 0 starts from candidate 0; slot 1 from whichever was drawn.
  const table = float32Values([scores[0], scores[0], scores[0], scores[1], scores[2], scores[3]]);
  const p = (row: readonly number[] | undefined) => {
    const e = (row ?? []).map((x) => Math.exp(x / 0.8));
    return e.map((x) => x / e.reduce((a, b) => a + b, 0));
  };
  const counts = new Array<number>(9).fill(0);
  const runs = 20_000;
  const batch = 500;
  for (let at = 0; at < runs / batch; at++) {
    scope(() => {
      const u = toFloat32(uniform([batch, 2], randomKey(BigInt(77 + at))));
      for (let i = 0; i < batch; i++) {
        const pair = scope(() => {
          const walk = sampledWalk(
            int32Array([0, 1, 2, 0, 1, 2], [2, 3]),
            float32Array(table, [2, 3, 3]),
            0.8,
            float32Array(u.subarray(2 * i, 2 * i + 2)),
          );
          return toInt32(walk.ids);
        });
        const cell = (pair[0] ?? 0) * 3 + (pair[1] ?? 0);
        counts[cell] = (counts[cell] ?? 0) + 1;
      }
    });
  }
  const first = p(scores[0]);
  let chi = 0;
  for (let a = 0; a < 3; a++) {
    for (const [b, q] of p(scores[a + 1]).entries()) {
      const wanted = runs * (first[a] ?? 0) * q;
      chi += ((counts[a * 3 + b] ?? 0) - wanted) ** 2 / wanted;
    }
  }
  // 8 degrees of freedom: the 99.99 % point.
  expect(chi).toBeLessThan(31.8);
}, 60_000);

function float32Values(rows: readonly (readonly number[] | undefined)[]): number[] {
  return rows.flatMap((row) => [...(row ?? [])]);
}
