import { beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { evidenceOf, readEvidence, type TokenEvidence } from "../../src/decoding/token-evidence.ts";
import { type Arm, compareArms, replayCheck, ulp } from "../../src/decoding/verdict.ts";
import { float32Array, scope, uint32Array } from "../../src/mlx/array.ts";
import { astype } from "../../src/mlx/ops.ts";
import { openTestMlx } from "../support/native.ts";

const arm = (label: string, ids: number[], more: Partial<Arm> = {}): Arm => ({
  label,
  ids,
  inexactCaches: false,
  ...more,
});
const sure = (count: number, at = -1, gap = 3): TokenEvidence[] =>
  Array.from({ length: count }, (_, i) => ({ rank: 1, gap: i === at ? gap : 3, top: 12 }));
const float32 = { dtype: "float32" } as const;

describe("verdict", () => {
  test("same tokens", () => {
    expect(compareArms([arm("baseline", [1, 2, 3]), arm("dspark", [1, 2, 3])], float32)).toEqual({
      comparable: true,
      identical: true,
      identicalWhereOverlapping: true,
      reference: "baseline",
      divergences: [],
      misranked: [],
      lossless: true,
      detail: "Every arm produced the same tokens.",
    });
  });

  test("one arm alone, or none, is not comparable", () => {
    expect(compareArms([arm("baseline", [1])], float32)).toMatchObject({ comparable: false, reference: "baseline" });
    expect(compareArms([], float32)).toMatchObject({ comparable: false, identical: false, reference: null });
  });

  test("a shorter text is no divergence", () => {
    const verdict = compareArms([arm("a", [1, 2, 3]), arm("b", [1, 2]), arm("c", [1, 2, 3, 4])], float32);
    expect(verdict).toMatchObject({ identical: false, identicalWhereOverlapping: true, lossless: true });
    expect(verdict.divergences).toMatchObject([
      { arm: 1, firstDiff: 2, lengthOnly: true, referenceToken: 3, armToken: null, kind: null },
      { arm: 2, firstDiff: 3, lengthOnly: true, referenceToken: null, armToken: 4, kind: null },
    ]);
  });

  test("kinds: a tie in either arm, drift where caches may differ, else a fault", () => {
    const ids = [1, 2, 3, 4];
    const other = [1, 2, 9, 9];
    const small = 4 * ulp(12, "bfloat16");
    const kind = (reference: Partial<Arm>, second: Partial<Arm>, dtype: "float32" | "bfloat16" = "bfloat16") =>
      compareArms([arm("a", ids, reference), arm("b", other, second)], { dtype }).divergences[0]?.kind;
    expect(kind({ evidence: sure(4, 2, small) }, { evidence: sure(4) })).toBe("tie");
    expect(kind({ evidence: sure(4) }, { evidence: sure(4, 2, small) })).toBe("tie");
    expect(kind({ evidence: sure(4, 2, small) }, {})).toBe("tie");
    expect(kind({ evidence: sure(4, 2, small * 1.01) }, { evidence: sure(4) })).toBe("fail");
    expect(kind({ evidence: sure(4, 2, small) }, { evidence: sure(4) }, "float32")).toBe("fail");
    expect(kind({ evidence: sure(4, 1, 0) }, { evidence: sure(4) })).toBe("fail");
    expect(kind({ evidence: sure(4) }, { evidence: sure(4), inexactCaches: true })).toBe("drift");
    expect(kind({}, { inexactCaches: true })).toBe("drift");
    expect(kind({}, {})).toBe("fail");
  });

  test("a fault makes the verdict, a tie does not", () => {
    const tie = compareArms([arm("a", [1, 2], { evidence: sure(2, 1, 0) }), arm("b", [1, 3])], float32);
    expect(tie).toMatchObject({ lossless: true, identicalWhereOverlapping: false });
    expect(tie.divergences[0]?.gap).toBe(0);
    const fault = compareArms([arm("a", [1, 2]), arm("b", [1, 3])], float32);
    expect(fault.lossless).toBe(false);
    expect(fault.detail).toContain("b differs from token 1 on: a fault");
  });

  test("a token that is not its target's first choice fails, even where all arms agree, and even in a tie", () => {
    const evidence = [...sure(1), { rank: 2, gap: 0, top: 12 }];
    const verdict = compareArms([arm("a", [1, 2]), arm("b", [1, 2], { evidence })], float32);
    expect(verdict).toMatchObject({ identical: true, lossless: false });
    expect(verdict.misranked).toEqual([{ arm: 1, label: "b", index: 1, token: 2, rank: 2 }]);
    const parted = compareArms([arm("a", [1, 3]), arm("b", [1, 2], { evidence, inexactCaches: true })], float32);
    expect(parted.divergences[0]?.kind).toBe("fail");
  });

  test("margins come from a clean cache over the shared text", () => {
    const asked: unknown[] = [];
    const remeasure = (shared: readonly number[], referenceToken: number, armToken: number) => {
      asked.push([shared, referenceToken, armToken]);
      return { referenceLogit: 7.5, armLogit: 7.25, top2Margin: 0.125 };
    };
    const verdict = compareArms([arm("a", [4, 5, 6]), arm("b", [4, 5, 7, 8]), arm("c", [4, 5])], {
      ...float32,
      remeasure,
    });
    expect(asked).toEqual([[[4, 5], 6, 7]]);
    expect(verdict.divergences[0]).toMatchObject({
      margin: 0.25,
      top2Margin: 0.125,
      logits: [7.5, 7.25],
      approximate: true,
    });
    expect(verdict.divergences[1]).toMatchObject({ lengthOnly: true, approximate: false });
  });

  test("the first difference is the first", () => {
    const ids = fc.array(fc.integer({ min: 0, max: 2 }), { maxLength: 12 });
    fc.assert(
      fc.property(ids, ids, (a, b) => {
        const [divergence] = compareArms([arm("a", a), arm("b", b)], float32).divergences;
        const at = Array.from({ length: Math.max(a.length, b.length) }, (_, i) => a[i] === b[i]).indexOf(false);
        expect(divergence?.firstDiff ?? -1).toBe(at);
        if (divergence !== undefined) expect(divergence.lengthOnly).toBe(at >= Math.min(a.length, b.length));
      }),
    );
  });

  test("ulp of each dtype", () => {
    expect(ulp(1, "float32")).toBe(2 ** -23);
    expect(ulp(-12, "bfloat16")).toBe(2 ** -4);
    expect(ulp(12, "float16")).toBe(2 ** -7);
    expect([ulp(0, "float32"), ulp(Number.NEGATIVE_INFINITY, "float32")]).toEqual([0, 0]);
    const next = new Float32Array([Math.PI, 0]);
    const bits = new Uint32Array(next.buffer);
    bits[1] = (bits[0] as number) + 1;
    expect(ulp(next[0] as number, "float32")).toBe((next[1] as number) - (next[0] as number));
  });
});

describe("replay", () => {
  test("counts equal choices and the largest gap of the others", async () => {
    const fed: (number | null)[] = [];
    const truth = [5, 6, 7, 8];
    const result = await replayCheck([5, 9, 7, 1], (last, committed) => {
      fed.push(last);
      const argmax = truth[fed.length - 1] as number;
      return { argmax, gap: argmax === committed ? 0 : fed.length / 10 };
    });
    expect(fed).toEqual([null, 5, 9, 7]);
    expect(result).toEqual({ tokens: 4, argmaxEqual: 2, maxGapAtMismatch: 0.4 });
  });

  test("nothing committed, nothing checked", async () => {
    const result = await replayCheck([], () => Promise.reject(new Error("not asked")));
    expect(result).toEqual({ tokens: 0, argmaxEqual: 0, maxGapAtMismatch: 0 });
  });
});

describe("evidence", () => {
  beforeAll(openTestMlx);

  test("rank, gap and best logit", () => {
    const rows = scope(() =>
      readEvidence(evidenceOf(float32Array([1, 4, 2.5, 3, 0, -1, 4, 4], [2, 4]), uint32Array([2, 3]))),
    );
    expect(rows).toEqual([
      { rank: 3, gap: 1, top: 4 },
      { rank: 1, gap: 0, top: 4 },
    ]);
  });

  test("of half-width logits: the differences as they stand in the model's dtype", () => {
    const [row] = scope(() =>
      readEvidence(evidenceOf(astype(float32Array([12, 12.05, 3], [1, 3]), "bfloat16"), uint32Array([1]))),
    );
    expect(row).toEqual({ rank: 1, gap: 0.0625, top: 12.0625 });
  });
});
