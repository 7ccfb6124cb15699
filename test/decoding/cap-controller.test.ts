import { describe, expect, test } from "bun:test";
import { CapController } from "../../src/decoding/cap-controller.ts";
import { CostCurves } from "../../src/decoding/cost-curves.ts";
import { BudgetedProbes } from "../../src/decoding/probe-plan.ts";
import { RoundCosts } from "../../src/decoding/round-costs.ts";
import { capGolden } from "./cap-golden.ts";
import {
  type Machine,
  randomFrom,
  randomMachine,
  randomTrace,
  runController,
  runFixed,
  runTrace,
} from "./cap-traces.ts";
import { FixedProbes, ReferencePricing } from "./reference-cap.ts";

const curves = new CostCurves({
  verify: { 1: 20, 2: 20.5, 3: 21, 4: 21.6, 5: 22.3, 6: 23, 7: 24, 8: 25 },
  drafter: 5,
  overhead: 1.5,
});

/** `count` rounds at whatever cap the controller asks for; `chance` of each draft. */
function drive(controller: CapController, count: number, chance: number, seed = 1): void {
  const random = randomFrom(seed);
  for (let i = 0; i < count; i++) {
    const drafted = controller.cap;
    let accepted = 0;
    while (accepted < drafted && random() < chance) accepted++;
    controller.update({ rows: [{ drafted, accepted }], ms: curves.roundMs(drafted), committed: accepted + 1 });
  }
}

describe("golden traces, with the reference's pricing and probes", () => {
  test.each(capGolden.controllers.map((trace, i) => [`${trace.curve} ${i}`, trace] as const))("%s", (_, trace) => {
    const { init_cap, allow_zero, overhead_ms, depth_slope, depth0 } = trace.params;
    const costs = new CostCurves({
      verify: trace.verify_ms,
      drafter: trace.drafter_ms,
      overhead: overhead_ms,
      depthSlope: depth_slope,
      depth0,
    });
    const controller = new CapController(costs, {
      maxCap: trace.max_cap,
      initialCap: init_cap,
      allowZero: allow_zero,
      pricing: new ReferencePricing(costs),
      probes: new FixedProbes(),
      parkingMargin: 1.03,
      audits: false,
    });
    for (const step of trace.steps) {
      // The reference counts no depth below that of its curves.
      controller.setDepth(Math.max(step.depth, depth0));
      expect(controller.cap).toBe(step.cap_used);
      const rows = [{ drafted: step.cap_used, accepted: step.accepted }];
      controller.update({ rows, ms: step.round_ms, committed: step.committed });
      const { cap, best, observations } = controller;
      expect([cap, best, observations]).toEqual([step.cap_after, step.best_after, step.observations]);
      expect(controller.acceptance).toBeCloseTo(step.p, 12);
      expect(controller.correction).toBeCloseTo(step.corr, 10);
    }
    const { predictedRates } = controller.info();
    const rounded = Object.fromEntries(
      Object.entries(predictedRates).map(([cap, x]) => [cap, Math.round(x * 10) / 10]),
    );
    expect(rounded).toEqual(trace.info.predicted_rates);
  });
});

describe("controller", () => {
  test("full acceptance is censored, a failure is one outcome", () => {
    const controller = new CapController(curves, { maxCap: 7 });
    controller.update({ rows: [{ drafted: 2, accepted: 2 }], ms: null, committed: 3 });
    expect([controller.observations, controller.acceptance]).toEqual([2, 1]);
    controller.update({ rows: [{ drafted: 5, accepted: 1 }], ms: null, committed: 2 });
    expect([controller.observations, controller.acceptance]).toEqual([4, 0.75]);
  });

  test("acceptance goes up, the cap follows; it goes down, the cap follows", () => {
    const controller = new CapController(curves, { maxCap: 7 });
    drive(controller, 200, 0.97);
    expect(controller.cap).toBeGreaterThanOrEqual(5);
    drive(controller, 300, 0.4);
    expect(controller.cap).toBeLessThanOrEqual(3);
  });

  test("hysteresis: a gain of less than three percent is not worth a switch", () => {
    const flat = new CostCurves({ verify: { 1: 20, 2: 20, 3: 20.9 }, drafter: 5 });
    // At p = 1 cap 2 commits 3 tokens in 25.9 ms, cap 1 commits 2 in 25: the better by far. Price it to a 2 % gain.
    const near = new CostCurves({ verify: { 1: 20, 2: 20, 3: 31.76 }, drafter: 5 });
    for (const [costs, expected] of [
      [flat, 2],
      [near, 1],
    ] as const) {
      const controller = new CapController(costs, { maxCap: 2, initialCap: 1 });
      for (let i = 0; i < 40; i++) {
        const drafted = controller.cap;
        controller.update({
          rows: [{ drafted, accepted: drafted }],
          ms: costs.roundMs(drafted),
          committed: drafted + 1,
        });
      }
      expect(controller.cap).toBe(expected);
    }
  });

  test("parks on rejections, probes, and un-parks within 64 rounds of a shift", () => {
    for (let seed = 1; seed <= 50; seed++) {
      const controller = new CapController(curves, { maxCap: 7 });
      drive(controller, 200, 0.02, seed);
      expect(controller.parked).toBe(true);
      drive(controller, 64, 0.95, seed);
      expect(controller.parked).toBe(false);
      expect(controller.cap).toBeGreaterThanOrEqual(2);
    }
  });

  test("drafts that lose a little are parked, too", () => {
    // One draft in two is accepted: 1.5 tokens in 30.6 ms against one in 20.
    const losing = new CostCurves({ verify: { 1: 20, 2: 28.6, 3: 60 }, drafter: 2 });
    const controller = new CapController(losing, { maxCap: 2, initialCap: 1 });
    let parked = 0;
    for (let i = 0; i < 400; i++) {
      const drafted = controller.cap;
      const accepted = drafted > 0 && i % 2 === 0 ? 1 : 0;
      const ms = drafted === 0 ? 20 : losing.roundMs(drafted);
      controller.update({ rows: [{ drafted, accepted }], ms, committed: accepted + 1 });
      if (controller.parked) parked++;
    }
    expect(parked).toBeGreaterThan(200);
  });

  test("never parks where plain steps are not allowed", () => {
    const controller = new CapController(curves, { maxCap: 7, allowZero: false });
    for (let i = 0; i < 400; i++) {
      drive(controller, 1, 0);
      expect(controller.cap).toBeGreaterThan(0);
    }
  });

  test("probing costs about one percent where drafts are dear", () => {
    const dear = new CostCurves({ verify: { 1: 20, 2: 24, 3: 28 }, drafter: 10 });
    const controller = new CapController(dear, { maxCap: 2 });
    const rounds = 4000;
    let ms = 0;
    for (let i = 0; i < rounds; i++) {
      const drafted = controller.cap;
      const spent = dear.roundMs(drafted);
      if (i >= 100) ms += spent;
      controller.update({ rows: [{ drafted, accepted: 0 }], ms: spent, committed: 1 });
    }
    expect(ms / (20 * (rounds - 100))).toBeLessThan(1.02);
  });

  test("where no acceptance would pay, a few rounds are enough to park, and what stands changes nothing; too dear a list does", () => {
    const dear = new CostCurves({ verify: { 1: 20, 2: 45, 3: 70 }, drafter: 5 });
    /** Caps of 400 rounds whose drafts all stand and take that share of the listed time. */
    const caps = (share: number) => {
      const controller = new CapController(dear, { maxCap: 2, initialCap: 1 });
      return Array.from({ length: 400 }, () => {
        const drafted = controller.cap;
        const ms = drafted === 0 ? 20 : share * dear.roundMs(drafted);
        controller.update({ rows: [{ drafted, accepted: drafted }], ms, committed: drafted + 1 });
        return drafted;
      });
    };
    expect(caps(1).slice(0, 4)).toEqual([1, 1, 1, 1]);
    expect(
      caps(1)
        .slice(4)
        .filter((cap) => cap > 0).length,
    ).toBeLessThan(396 / 40);
    expect(caps(0.5).slice(-100)).not.toContain(0);
  });

  test("a wrong price list is corrected by timed rounds", () => {
    // The curves promise that drafts are nearly free; in truth a round with drafts takes four times as long.
    const controller = new CapController(curves, { maxCap: 7 });
    const random = randomFrom(3);
    for (let i = 0; i < 300; i++) {
      const drafted = controller.cap;
      let accepted = 0;
      while (accepted < drafted && random() < 0.5) accepted++;
      const ms = curves.roundMs(drafted) * (drafted === 0 ? 1 : 4);
      controller.update({ rows: [{ drafted, accepted }], ms, committed: accepted + 1 });
    }
    expect(controller.parked).toBe(true);
  });

  test("plain steps that are dearer in the price list than in truth are found out by a look at them", () => {
    // The list says 30 ms for a plain step and promises 1.5 tokens in 31 ms; it takes 10.
    const wrong = new CostCurves({ verify: { 1: 30, 2: 30.5, 3: 90 }, drafter: 0.5 });
    const controller = new CapController(wrong, { maxCap: 2, initialCap: 1 });
    const caps: number[] = [];
    for (let i = 0; i < 400; i++) {
      const drafted = controller.cap;
      caps.push(drafted);
      const accepted = drafted > 0 && i % 2 === 0 ? 1 : 0;
      controller.update({ rows: [{ drafted, accepted }], ms: drafted === 0 ? 10 : 31, committed: accepted + 1 });
    }
    expect(caps.slice(0, 23)).not.toContain(0);
    expect(caps.slice(23, 40)).toContain(0);
    expect(caps.slice(-200).filter((cap) => cap === 0).length).toBeGreaterThan(170);
  });

  test("looks at plain steps are short and seldom, and none where drafts gain much or other rows wait", () => {
    const gaining = new CostCurves({ verify: { 1: 20, 2: 20.5, 3: 27 }, drafter: 2 });
    const plainSteps = (acceptances: boolean[], rows: number) => {
      const controller = new CapController(gaining, { maxCap: 2, initialCap: 1 });
      let plain = 0;
      for (let i = 0; i < 2000; i++) {
        const drafted = controller.cap;
        if (drafted === 0) plain++;
        const accepted = acceptances[i % acceptances.length] ? drafted : 0;
        const one = { drafted, accepted };
        const ms = gaining.roundMs(drafted);
        controller.update({ rows: Array.from({ length: rows }, () => one), ms, committed: rows * (accepted + 1) });
      }
      return plain;
    };
    const some = plainSteps([true, true, false], 1);
    expect(some).toBeGreaterThanOrEqual(8);
    expect(some).toBeLessThanOrEqual(8 * 8);
    expect(plainSteps([true], 1)).toBe(0);
    expect(plainSteps([true, true, false], 2)).toBe(0);
  });

  test("guesses beside plain steps: misses are far apart, hits follow each other until drafting begins again", () => {
    const controller = new CapController(curves, { maxCap: 7 });
    const isParked = (): boolean => controller.parked;
    while (!isParked()) drive(controller, 1, 0);
    /** Plain steps, watched where the controller wants a probe; how many were. */
    const steps = (count: number, hit: () => boolean) => {
      let watched = 0;
      for (let i = 0; i < count && isParked(); i++) {
        if (controller.cap === 0) controller.update({ rows: [{ drafted: 0, accepted: 0 }], ms: 20, committed: 1 });
        else {
          watched++;
          controller.updateWatched([hit()]);
        }
      }
      return watched;
    };
    const missed = steps(1000, () => false);
    expect(missed).toBeGreaterThan(1000 / 65 - 1);
    // One percent of the time: a guess costs 6.5 ms, a plain step 20.
    expect((missed * curves.guessMs) / (1000 * curves.roundMs(0))).toBeLessThan(0.015);
    expect(isParked()).toBe(true);
    const hits = steps(1000, () => true);
    expect(isParked()).toBe(false);
    expect(hits).toBeGreaterThan(3);
    expect(hits).toBeLessThan(20);
  });

  test("another text outweighs soon what the texts before it accepted", () => {
    const rounds = (fresh: boolean) => {
      const controller = new CapController(curves, { maxCap: 7 });
      drive(controller, 400, 0.9);
      if (fresh) controller.newText();
      const before = controller.rounds;
      while (!controller.parked && controller.rounds < before + 400) drive(controller, 1, 0);
      return controller.rounds - before;
    };
    expect(rounds(true)).toBeLessThan(0.75 * rounds(false));
  });

  test("batches: one update a round, acceptance of all rows, costs by total rows", () => {
    const controller = new CapController(curves, { maxCap: 7 });
    const rows = [
      { drafted: 3, accepted: 3 },
      { drafted: 2, accepted: 0 },
      { drafted: 0, accepted: 0 },
    ];
    controller.update({ rows, ms: 2 * curves.batchMs(8, 3), committed: 6 });
    expect([controller.rounds, controller.observations, controller.acceptance]).toEqual([1, 4, 0.75]);
    expect(controller.correction).toBeGreaterThan(1);
  });
});

describe("round costs", () => {
  test("a time learnt at one depth is priced at another", () => {
    const deep = new CostCurves({
      verify: { 1: 20, 4: 26 },
      drafter: 5,
      depthSlope: { 1: 0.001, 4: 0.003 },
      depth0: 512,
    });
    const costs = new RoundCosts(deep);
    for (let i = 0; i < 8; i++) costs.learn(3, 1.1 * deep.roundMs(3) + deep.depthMs(4, 2048), 2, 0.5, 2048);
    expect(costs.roundMs(3, 30000)).toBeCloseTo(1.1 * deep.roundMs(3) + deep.depthMs(4, 30000), 9);
  });

  test("the correction is bounded, and one pause is no cost", () => {
    const costs = new RoundCosts(curves);
    for (let i = 0; i < 200; i++) costs.learn(2, 1e6, 1, 0.5, 0);
    expect(costs.correction).toBe(4);
    const calm = new RoundCosts(curves);
    for (let i = 0; i < 20; i++) calm.learn(2, 30, 1, 0.5, 0);
    calm.learn(2, 3000, 1, 0.5, 0);
    expect(calm.roundMs(2, 0)).toBeLessThan(34);
  });

  test("measured times replace the prediction after four rounds and are forgotten after 32 of others", () => {
    const costs = new RoundCosts(curves);
    const predicted = (ratio: number) => curves.roundMs(1) * ratio;
    for (let i = 0; i < 3; i++) costs.learn(1, 10, 1, 0.5, 0);
    expect(costs.roundMs(1, 0)).toBeCloseTo(predicted(costs.correction), 9);
    costs.learn(1, 10, 1, 0.5, 0);
    expect(costs.roundMs(1, 0)).toBe(10);
    for (let i = 0; i < 32; i++) costs.age(2);
    expect(costs.roundMs(1, 0)).toBe(10);
    costs.age(2);
    expect(costs.roundMs(1, 0)).toBeCloseTo(predicted(costs.correction), 9);
  });

  test("plain steps are priced as the drafts are, until they are seen; what they cost is not forgotten", () => {
    const costs = new RoundCosts(curves);
    for (let i = 0; i < 50; i++) costs.learn(2, 2 * curves.roundMs(2), 1, 0.5, 0);
    expect(costs.roundMs(0, 0)).toBeCloseTo(2 * curves.roundMs(0), 0);
    for (let i = 0; i < 50; i++) costs.learn(0, 0.5 * curves.roundMs(0), 1, 0.5, 0);
    for (let i = 0; i < 100; i++) costs.age(2);
    expect(costs.roundMs(0, 0)).toBeCloseTo(0.5 * curves.roundMs(0), 0);
    expect(costs.correction).toBeCloseTo(2, 1);
  });
});

test("probe plan: waits grow with the loss, a success is followed up at once", () => {
  const plan = new BudgetedProbes();
  plan.enter(100, 0);
  expect(plan.wait(100)).toBe(8);
  plan.probed(108, false, 0.3);
  expect(plan.wait(108)).toBe(30);
  plan.probed(138, false, 5);
  expect(plan.wait(138)).toBe(48);
  plan.probed(186, true, 5);
  expect(plan.wait(186)).toBe(0);
  plan.probed(186, false, 0.25, true);
  expect(plan.wait(186)).toBe(38);
  plan.probed(216, false, 5, true);
  expect(plan.wait(216)).toBe(64);
});

describe("against every fixed cap in hindsight", () => {
  const TRACES = 10_000;
  const TOKENS = 500;

  /** Best fixed cap's time over the controller's, over all traces, and sorted by trace; likewise plain decoding's. */
  function compare(traces: number, newController: (machine: Machine) => CapController) {
    const perTrace: number[] = [];
    const againstPlain: number[] = [];
    let best = 0;
    let ours = 0;
    for (let i = 0; i < traces; i++) {
      const random = randomFrom(7919 * i + 1);
      const machine = randomMachine(random);
      const trace = randomTrace(random, TOKENS);
      const fixed = Array.from({ length: machine.maxCap + 1 }, (_, cap) =>
        runFixed(machine, trace, randomFrom(i), cap),
      );
      const bestFixed = Math.min(...fixed);
      const ms = runController(machine, trace, randomFrom(i), newController(machine));
      perTrace.push(bestFixed / ms);
      againstPlain.push((fixed[0] as number) / ms);
      best += bestFixed;
      ours += ms;
    }
    const quantile = (list: number[], x: number) =>
      [...list].sort((a, b) => a - b)[Math.floor(x * list.length)] as number;
    return {
      total: best / ours,
      mean: perTrace.reduce((sum, x) => sum + x, 0) / traces,
      worstPercent: quantile(perTrace, 0.01),
      plainWorstPercent: quantile(againstPlain, 0.01),
    };
  }

  test("at least 0.97 of the best, from a cold start, over 10,000 traces", () => {
    const result = compare(TRACES, ({ curves, maxCap }) => new CapController(curves, { maxCap }));
    expect(result.total).toBeGreaterThanOrEqual(0.97);
    expect(result.mean).toBeGreaterThanOrEqual(0.97);
    expect(result.worstPercent).toBeGreaterThanOrEqual(0.9);
    expect(result.plainWorstPercent).toBeGreaterThanOrEqual(0.92);
  }, 60_000);

  test("the reference's pricing and probes do not reach it: the measure can fail", () => {
    const result = compare(
      500,
      ({ curves, maxCap }) =>
        new CapController(curves, { maxCap, pricing: new ReferencePricing(curves), probes: new FixedProbes() }),
    );
    expect(result.total).toBeLessThan(0.97);
  });

  test("once warm, next to nothing is lost against plain decoding when drafts never pay", () => {
    const random = randomFrom(5);
    const machine = randomMachine(random);
    const controller = new CapController(machine.curves, { maxCap: machine.maxCap });
    runController(machine, new Uint8Array(400), randomFrom(1), controller);
    const later = new Uint8Array(4000);
    const ratio = runFixed(machine, later, randomFrom(2), 0) / runController(machine, later, randomFrom(2), controller);
    expect(ratio).toBeGreaterThanOrEqual(0.98);
  });

  test("the harness counts what a fixed cap commits", () => {
    const machine = randomMachine(randomFrom(9));
    let committed = 0;
    runTrace(
      machine,
      Uint8Array.from({ length: 100 }, (_, i) => i % 3),
      Math.random,
      () => 3,
      (_cap, accepted) => {
        committed += accepted + 1;
      },
    );
    expect(committed).toBe(100);
  });
});
