import { describe, expect, test } from "bun:test";
import { type CalibrationWork, calibrate, calibrationPlan, fallbackCap } from "../../src/decoding/calibrate.ts";
import { costsOf } from "../../src/decoding/calibration-store.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";

const PLAN = calibrationPlan({ maxCap: 4, maxBatch: 1, wholeBlock: false, depths: [4096, 16384] });

/** A machine whose work only moves its clock. `disturb` changes the ms of a piece of work. */
class FakeMachine implements CalibrationWork {
  clock = 0;
  readonly visits: string[] = [];

  constructor(private readonly disturb: (name: string, ms: number, visit: number) => number = (_, ms) => ms) {}

  readonly now = (): number => this.clock;

  private work(name: string, ms: number): void {
    this.visits.push(name);
    this.clock += this.disturb(name, ms, this.visits.filter((visit) => visit === name).length);
  }

  measureVerify(width: number): void {
    this.work(`verify ${width}`, 10 + width);
  }

  measureDraft(cap: number): void {
    this.work(`drafter ${cap}`, 3 + 0.5 * cap);
  }

  measureRound(cap: number): void {
    this.work(`round ${cap}`, 3 + 0.5 * cap + 11 + cap + 2);
  }

  measurePlain(steps: number): void {
    this.work("plain", 9 * steps);
  }

  measureDepth(width: number, depth: number): void {
    this.work(`depth ${depth} ${width}`, 10 + width + 0.001 * width * (depth - 512));
  }
}

const run = (machine: FakeMachine, plan = PLAN) =>
  calibrate(machine, plan, { now: machine.now, date: () => new Date("2026-03-01T00:00:00Z"), budgetMs: 1e9 });

describe("calibration", () => {
  test("a quiet machine is measured exactly", async () => {
    const { entry, problems } = await run(new FakeMachine());
    expect(problems).toEqual([]);
    expect(entry).toMatchObject({
      verify: { 1: 11, 2: 12, 3: 13, 4: 14, 5: 15 },
      drafter: { 1: 3.5, 2: 4, 3: 4.5, 4: 5 },
      overhead: 2,
      plain: 9,
      measured_at: "2026-03-01T00:00:00.000Z",
      iters: 8,
    });
    const depth = entry?.verify_depth;
    if (depth === undefined || !("slope" in depth)) throw new Error("no depth slope");
    expect([depth.d0, depth.depths]).toEqual([512, [4096, 16384]]);
    for (const [width, slope] of Object.entries(depth.slope)) expect(slope).toBeCloseTo(0.001 * Number(width), 12);
    expect(Object.values(entry?.spread ?? {})).toEqual(Array(Object.keys(entry?.spread ?? {}).length).fill(0));
  });

  test("the entry prices rounds", async () => {
    const { entry } = await run(new FakeMachine());
    if (entry === null) throw new Error("no entry");
    const curves = new CostCurves(costsOf(entry));
    expect(curves.roundMs(0)).toBe(9);
    expect(curves.roundMs(2)).toBe(4 + 13 + 2);
    expect(curves.roundMs(2, 1512)).toBeCloseTo(19 + 3, 9);
  });

  test("points are visited in a shuffled order, the same each time, and each again in a second pass", async () => {
    const [a, b] = [new FakeMachine(), new FakeMachine()];
    await run(a);
    await run(b);
    expect(a.visits).toEqual(b.visits);
    const widths = a.visits.filter((name) => name.startsWith("verify")).map((name) => Number(name.slice(7)));
    const blocks = widths.filter((width, i) => width !== widths[i - 1]);
    expect(blocks.length).toBeGreaterThanOrEqual(9);
    expect(blocks.slice(0, 5)).not.toEqual([1, 2, 3, 4, 5]);
    // Three warm-up runs and four timed ones, then one and four.
    expect(widths.filter((width) => width === 3)).toHaveLength(12);
  });

  test("cold first runs and single pauses do not count", async () => {
    const machine = new FakeMachine((name, ms, visit) =>
      visit <= 3 ? ms * 10 : name === "verify 2" && visit === 6 ? 999 : ms,
    );
    const { entry } = await run(machine);
    expect(entry?.verify).toEqual({ 1: 11, 2: 12, 3: 13, 4: 14, 5: 15 });
  });

  test("what scatters is measured again, and the smaller median stays", async () => {
    const machine = new FakeMachine((name, ms, visit) =>
      name === "verify 3" && visit <= 12 ? ms * (visit % 2 ? 1.5 : 2) : ms,
    );
    const { entry } = await run(machine);
    expect(entry?.verify[3]).toBe(13);
    expect(machine.visits.filter((name) => name === "verify 3").length).toBeGreaterThan(12);
    expect(machine.visits.filter((name) => name === "verify 4")).toHaveLength(12);
  });

  test("a machine that warms up slows all widths alike, not the wide ones", async () => {
    let work = 0;
    const machine = new FakeMachine((_, ms) => ms * (1 + 0.002 * work++));
    const { entry } = await run(machine);
    if (entry === null) throw new Error("no entry");
    // 200 pieces of work later it is 40 % slower; an ascending order would put most of that on width 5.
    const [first = 0, last = 0] = [entry.verify[1], entry.verify[5]];
    expect(Math.abs(last / first / (15 / 11) - 1)).toBeLessThan(0.2);
  });

  test("each failing measurement is left out, and none throws", async () => {
    const failing = (broken: RegExp) =>
      new FakeMachine((name, ms) => {
        if (broken.test(name)) throw new Error("boom");
        return ms;
      });
    const overhead = await run(failing(/^round 2/));
    expect(overhead.entry?.overhead).toBe(0);
    expect(overhead.problems).toEqual(["round 2: boom"]);
    const plain = await run(failing(/^plain/));
    expect(plain.entry !== null && "plain" in plain.entry).toBe(false);
    const width = await run(failing(/^verify 3/));
    expect(Object.keys(width.entry?.verify ?? {})).toEqual(["1", "2", "4", "5"]);
    const depth = await run(failing(/^depth/));
    expect(depth.entry?.verify_depth).toEqual({ d0: 512, unsupported: true });
    const oneDepth = await run(failing(/^depth 16384 4/));
    expect(oneDepth.entry === null ? null : costsOf(oneDepth.entry).depthSlope?.[4]).toBeCloseTo(0.004, 12);
    for (const broken of [/^verify/, /^drafter/, /./]) {
      const { entry, problems } = await run(failing(broken));
      expect(entry).toBeNull();
      expect(problems.length).toBeGreaterThan(0);
    }
  });

  test("what throws no Error is reported too, and a failure in the pause between points costs only the points", async () => {
    const machine = new FakeMachine();
    const options = {
      now: machine.now,
      between: () => {
        throw "stop";
      },
    };
    const { entry, problems } = await calibrate(machine, PLAN, options);
    expect(entry).toBeNull();
    expect(problems[0]).toContain("stop");
    expect(machine.visits).toEqual([]);
  });

  test("a target without depth support is recorded as such; no depths wanted, none recorded", async () => {
    const machine = new FakeMachine();
    const { measureVerify, measureDraft, measureRound, measurePlain } = machine;
    const work = {
      measureVerify: measureVerify.bind(machine),
      measureDraft: measureDraft.bind(machine),
      measureRound: measureRound.bind(machine),
      measurePlain: measurePlain.bind(machine),
    };
    expect((await calibrate(work, PLAN, { now: machine.now })).entry?.verify_depth).toEqual({
      d0: 512,
      unsupported: true,
    });
    const { entry } = await run(new FakeMachine(), { ...PLAN, depths: [] });
    expect(entry !== null && "verify_depth" in entry).toBe(false);
  });

  test("a slow machine is measured by fewer runs, and within the budget", async () => {
    const machine = new FakeMachine((_, ms) => ms * 100);
    const { entry } = await calibrate(machine, { ...PLAN, depths: [] }, { now: machine.now });
    expect(entry?.verify).toMatchObject({ 1: 1100, 5: 1500 });
    expect(machine.clock).toBeLessThan(60_000);
    const tight = new FakeMachine();
    const cut = await calibrate(tight, PLAN, { now: tight.now, budgetMs: 200 });
    expect(tight.clock).toBeLessThan(400);
    expect(cut.problems.some((problem) => problem.endsWith("no time left"))).toBe(true);
  });

  test("a drafter that always runs whole is one number", async () => {
    const plan = calibrationPlan({ maxCap: 15, maxBatch: 1, wholeBlock: true, depths: [] });
    expect(plan.widths).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16]);
    const { entry } = await run(new FakeMachine(), plan);
    expect(entry?.drafter).toBe(3.5);
  });

  test("batches widen the axis of rows", () => {
    const plan = calibrationPlan({ maxCap: 7, maxBatch: 4, wholeBlock: false, depths: [] });
    expect(plan.widths).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32]);
    expect(plan.caps).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  test("fallback caps", () => {
    expect([fallbackCap("dspark", 7), fallbackCap("dspark", 1), fallbackCap("dflash", 15)]).toEqual([2, 1, 15]);
  });
});
