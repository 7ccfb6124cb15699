/** The formulas of the roofline with worked numbers, and the verdict's rules one by one. */
import { describe, expect, test } from "bun:test";
import { baselineOf, ceilingAt } from "../../src/machine/roofline.ts";
import { type VerdictFacts, verdictOf } from "../../src/machine/verdict.ts";

const READ = { activeBytes: 8e9, kvBytesPerToken: 65_536 };

describe("ceilings", () => {
  test("bandwidth over what a token reads", () => {
    expect(ceilingAt(0, READ, 273)).toEqual({ context: 0, bytes_per_token: 8e9, ceiling_tps: 34.13 });
    const deep = ceilingAt(32_768, READ, 273);
    expect(deep.bytes_per_token).toBe(8e9 + 32_768 * 65_536);
    expect(deep.ceiling_tps).toBe(26.9);
    expect(ceilingAt(0, READ, null).ceiling_tps).toBeNull();
    expect(ceilingAt(0, { activeBytes: 0, kvBytesPerToken: 0 }, 273).ceiling_tps).toBeNull();
  });

  test("a plain step at 512 tokens against it", () => {
    expect(baselineOf(40, READ, 273)).toEqual({ step_ms: 40, achieved_gb_s: 200.84, mbu: 0.736 });
    expect(baselineOf(40, READ, null).mbu).toBeNull();
  });
});

describe("verdict", () => {
  const facts: VerdictFacts = {
    ...{ mbu: null, speculates: false, decodeTps: null, ceilingTps: null, acceptLength: null, pressure: "normal" },
    ...{ swapGrowthBytes: null, contextTokens: null, contextWindow: 4096, activeIsEstimate: false },
  };
  const level = (part: Partial<VerdictFacts>) => verdictOf({ ...facts, ...part }).level;

  test("nothing measured is information", () => {
    expect(verdictOf(facts)).toEqual({ level: "info", headline: "not measured yet", findings: [], levers: [] });
  });

  test.each([
    [0.75, null, "healthy"],
    [0.74, null, "ok"],
    [0.5, null, "ok"],
    [0.49, null, "attention"],
    [0.2, 201, "ok"],
    [0.2, 200, "attention"],
  ] as const)("a step that uses %p of the bandwidth, at %p tok/s: %s", (mbu, decodeTps, expected) => {
    expect(level({ mbu, decodeTps })).toBe(expected);
  });

  test.each([
    [1.05, 3, "delivers", 0],
    [0.9, 3, "on a par", 0],
    [0.5, 1.5, "in spite of", 1],
    [0.5, 2.5, "in spite of", 0],
  ])("speculation at %p of the ceiling with %p a round: %s", (ratio, acceptLength, text, levers) => {
    const { findings, levers: help } = verdictOf({
      ...{ ...facts, mbu: 0.8, speculates: true, decodeTps: 100 * ratio, ceilingTps: 100, acceptLength },
    });
    expect(findings.join()).toContain(text);
    expect(help).toHaveLength(levers);
  });

  test("pressure and swap are problems, pressure first and with its lever", () => {
    for (const pressure of ["warn", "critical"] as const) {
      const verdict = verdictOf({ ...facts, mbu: 0.9, pressure });
      expect(verdict.level).toBe("problem");
      expect(verdict.findings[0]).toContain(pressure);
      expect(verdict.levers[0]).toStartWith("free memory");
    }
    expect(level({ mbu: 0.9, swapGrowthBytes: 65 * 2 ** 20 })).toBe("problem");
    expect(level({ mbu: 0.9, swapGrowthBytes: 64 * 2 ** 20 })).toBe("healthy");
    expect(level({ pressure: "unknown" })).toBe("info");
  });

  test("a context that is nearly full needs attention", () => {
    expect(level({ mbu: 0.9, contextTokens: 3687 })).toBe("attention");
    expect(level({ mbu: 0.9, contextTokens: 3600 })).toBe("healthy");
  });
});
