import { expect, spyOn, test } from "bun:test";
import fc from "fast-check";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import { LookupCosts } from "../../src/decoding/lookup-costs.ts";
import type { SettledRound } from "../../src/decoding/round.ts";
import type { Row } from "../../src/decoding/row.ts";
import { Speculator } from "../../src/decoding/speculator.ts";

const curves = new CostCurves({
  verify: { 1: 10, 2: 12, 9: 30, 33: 100 },
  drafter: 0,
  overhead: 1,
  depthSlope: { 1: 0.001, 33: 0.01 },
});

test("each length is priced as it was timed, lengths that were not as the others, plain steps by themselves", () => {
  const scale = fc.double({ min: 0.5, max: 2, noNaN: true });
  const property = fc.property(scale, scale, scale, fc.integer({ min: 0, max: 4000 }), (plain, short, long, depth) => {
    const costs = new LookupCosts(curves);
    for (let i = 0; i < 200; i++) {
      costs.learnPlain(plain * curves.roundMs(0, depth), depth);
      costs.learnDraft(1, short * curves.lookupMs(1, depth), depth);
      costs.learnDraft(32, long * curves.lookupMs(32, depth), depth);
    }
    const near = (ms: number, expected: number) => expect(Math.abs(ms / expected - 1)).toBeLessThan(0.02);
    near(costs.plainMs(1000), plain * curves.roundMs(0, 1000));
    near(costs.draftMs(1, 1000), short * curves.lookupMs(1, 1000));
    near(costs.draftMs(32, 1000), long * curves.lookupMs(32, 1000));
    const between = costs.draftMs(8, 1000) / curves.lookupMs(8, 1000);
    expect(between).toBeGreaterThan(0.99 * Math.min(short, long));
    expect(between).toBeLessThan(1.01 * Math.max(short, long));
  });
  fc.assert(property, { numRuns: 100 });
});

test("few rounds of a length are not believed against the others", () => {
  const costs = new LookupCosts(curves);
  for (let i = 0; i < 50; i++) costs.learnDraft(8, curves.lookupMs(8), 512);
  for (let i = 0; i < 3; i++) costs.learnDraft(2, 1.9 * curves.lookupMs(2), 512);
  expect(costs.draftMs(2, 512)).toBeLessThan(1.3 * curves.lookupMs(2));
  costs.learnDraft(2, 1.9 * curves.lookupMs(2), 512);
  expect(costs.draftMs(2, 512)).toBeGreaterThan(1.5 * curves.lookupMs(2));
});

test("a length that was found too dear is judged as the others again after 32 rounds of theirs", () => {
  const costs = new LookupCosts(curves);
  for (let i = 0; i < 8; i++) costs.learnDraft(2, 1.9 * curves.lookupMs(2), 512);
  for (let i = 0; i < 32; i++) costs.learnDraft(8, curves.lookupMs(8), 512);
  expect(costs.draftMs(2, 512)).toBeGreaterThan(1.5 * curves.lookupMs(2));
  for (let i = 0; i < 30; i++) costs.learnDraft(8, curves.lookupMs(8), 512);
  expect(costs.draftMs(2, 512)).toBeLessThan(1.2 * curves.lookupMs(2));
  // And what is timed now counts alone.
  for (let i = 0; i < 8; i++) costs.learnDraft(2, 0.8 * curves.lookupMs(2), 512);
  expect(costs.draftMs(2, 512)).toBeLessThan(0.9 * curves.lookupMs(2));
});

test("a row drafts by lookup for as long as the rounds that it timed pay", () => {
  const clock = spyOn(performance, "now");
  try {
    let now = 0;
    clock.mockImplementation(() => now);
    const options = { drafter: null, cap: 0, curves, lookup: true, longDraft: 32, confidenceThreshold: 0 };
    const speculator = new Speculator(options);
    const text = Array.from({ length: 64 }, (_, i) => i % 16);
    const drafting = speculator.newRow(text, 200);
    const limits = { maxNew: 100 };
    const row = { tokens: text, committed: 0, limits, drafting, constraint: null } as unknown as Row;
    const source = () => speculator.plan(row).source;
    const timed = (factor: number) => {
      now += 10;
      speculator.settledPlain([]);
      now += factor * curves.lookupMs(8, text.length);
      const settled = { row, ids: [], source: "lookup", drafted: 8, accepted: 8 };
      speculator.settledRounds([settled as unknown as SettledRound]);
    };
    expect(source()).toBe("lookup");
    // Nine tokens of which all stand, in 31 ms: 90 is what plain steps would take.
    for (let i = 0; i < 60; i++) timed(0.9);
    expect(source()).toBe("lookup");
    for (let i = 0; i < 200; i++) timed(3.9);
    expect(source()).toBe("plain");
    for (let i = 0; i < 96; i++) {
      now += 60;
      speculator.settledPlain([{ row, id: i % 16, foreseen: null }]);
    }
    expect(source()).toBe("lookup");
  } finally {
    clock.mockRestore();
  }
});
