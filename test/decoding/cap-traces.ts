/**
 * Random acceptance traces with a synthetic machine, to compare the cap controller with every fixed cap in hindsight.
 * A trace says for each place of the text whether a draft there would be accepted, so that all caps see the same luck.
 */
import type { CapController } from "../../src/decoding/cap-controller.ts";
import { CostCurves, type MeasuredCosts } from "../../src/decoding/cost-curves.ts";

export type Random = () => number;

/** Uniform in [0, 1): a 32-bit xorshift-multiply generator (mulberry32). */
export function randomFrom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface Machine {
  readonly curves: CostCurves;
  readonly maxCap: number;
  /** What a round of `cap` really takes: the curves, times an error of calibration and the noise of the round. */
  roundMs(cap: number, depth: number, noise: number): number;
}

/** Shapes as measured: verify flat up to a knee, then a wall, or rising throughout; drafters cheap to dear. */
export function randomMachine(random: Random): Machine {
  const between = (low: number, high: number) => low + (high - low) * random();
  const maxCap = 3 + Math.floor(random() * 5);
  const knee = 2 + Math.floor(random() * 7);
  const gentle = random() < 0.5 ? between(0.005, 0.06) : between(0.06, 0.4);
  const wall = between(gentle, 0.5);
  const verify: Record<number, number> = {};
  let ms = 20;
  for (let width = 1; width <= maxCap + 1; width++) {
    if (width > 1) ms += 20 * (width <= knee ? gentle : wall);
    verify[width] = ms;
  }
  const drafter: Record<number, number> = {};
  const base = 20 * between(0.05, 0.6);
  for (let cap = 1; cap <= maxCap; cap++) drafter[cap] = base * (1 + 0.05 * (cap - 1));
  const slope = random() < 0.5 ? null : { 1: between(0, 0.0004), [maxCap + 1]: between(0.0004, 0.003) };
  const costs: MeasuredCosts = { verify, drafter, overhead: 20 * between(0, 0.1), depthSlope: slope };
  const curves = new CostCurves(costs);
  const errors = Array.from({ length: maxCap + 1 }, () => between(0.95, 1.05));
  return {
    curves,
    maxCap,
    roundMs: (cap, depth, noise) => curves.roundMs(cap, depth) * (errors[cap] as number) * noise,
  };
}

/** 1 where a draft would be accepted; the chance changes at random places. */
export function randomTrace(random: Random, length: number): Uint8Array {
  const trace = new Uint8Array(length);
  let chance = 0;
  let until = 0;
  for (let i = 0; i < length; i++) {
    if (i >= until) {
      chance = 0.02 + 0.96 * random();
      until = random() < 0.5 ? length : i + 200 + Math.floor(random() * length);
    }
    trace[i] = random() < chance ? 1 : 0;
  }
  return trace;
}

const START_DEPTH = 200;

/** Milliseconds for the whole trace with caps from `choose`. */
export function runTrace(
  machine: Machine,
  trace: Uint8Array,
  noise: Random,
  choose: (depth: number) => number,
  done: (cap: number, accepted: number, ms: number) => void,
): number {
  let total = 0;
  let at = 0;
  while (at < trace.length) {
    const depth = START_DEPTH + at;
    const cap = Math.min(choose(depth), trace.length - at - 1);
    let accepted = 0;
    while (accepted < cap && trace[at + accepted] === 1) accepted++;
    const ms = machine.roundMs(cap, depth, 0.97 + 0.06 * noise());
    done(cap, accepted, ms);
    total += ms;
    at += accepted + 1;
  }
  return total;
}

export function runFixed(machine: Machine, trace: Uint8Array, noise: Random, cap: number): number {
  return runTrace(
    machine,
    trace,
    noise,
    () => cap,
    () => undefined,
  );
}

export function runController(machine: Machine, trace: Uint8Array, noise: Random, controller: CapController): number {
  return runTrace(
    machine,
    trace,
    noise,
    (depth) => {
      controller.setDepth(depth);
      return controller.cap;
    },
    (drafted, accepted, ms) => controller.update({ rows: [{ drafted, accepted }], ms, committed: accepted + 1 }),
  );
}
