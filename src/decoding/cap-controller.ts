/**
 * Chooses the draft cap from round to round (calibration.md §7): acceptance learnt from outcomes, costs from curves and
 * timed rounds, a switch only when another cap is clearly better. State belongs to the engine and survives requests.
 * Caps set the length of proposals, never what is accepted.
 */
import type { CostCurves } from "./cost-curves.ts";
import { BudgetedProbes, type ProbePlan } from "./probe-plan.ts";
import { RoundCosts, type RoundPricing } from "./round-costs.ts";

export interface CapOptions {
  /** Most drafts that the drafter can give. */
  readonly maxCap: number;
  readonly initialCap?: number;
  /** Whether plain steps may be chosen; default true. */
  readonly allowZero?: boolean;
  /** Replaced in tests by the reference's ways, to compare with its traces. */
  readonly pricing?: RoundPricing;
  readonly probes?: ProbePlan;
  readonly parkingMargin?: number;
}

/** A finished round of drafter drafts or plain steps; lookup and forced rounds are not reported. */
export interface RoundReport {
  /** Per row: drafts verified (after any cut) and accepted. */
  readonly rows: readonly { readonly drafted: number; readonly accepted: number }[];
  /** Wall time since the round before; null when something else happened in between. */
  readonly ms: number | null;
  /** Tokens committed over all rows. */
  readonly committed: number;
}

const START_CAP = 2;
const START_ACCEPTANCE = 0.65;
const ACCEPTANCE_ALPHA = 0.02;
const HYSTERESIS = 1.03;
/** Towards plain steps none is needed (ours): drafts that only break even would lose the hysteresis' worth. */
const PARKING = 1;
const PICK_EVERY = 4;
/** Outcomes seen before plain steps are considered. */
const OUTCOMES_BEFORE_PARKING = 24;
/** Longest run of plain steps without a look at the controller. */
const SPRINT_MAX = 8;

export class CapController {
  /** Drafts for the next round; 0: a plain step. */
  cap: number;
  /** The cap that is currently thought best; 0: parked, and `cap` is then 0 or, for a probe, 1. */
  best: number;
  acceptance = START_ACCEPTANCE;
  observations = 0;
  rounds = 0;
  private depth = 0;
  /** Outcomes that the acceptance estimate rests on; fewer than `observations` after a return from parking. */
  private memory = 0;
  private readonly maxCap: number;
  private readonly allowZero: boolean;
  private readonly pricing: RoundPricing;
  private readonly probes: ProbePlan;
  private readonly parkingMargin: number;

  constructor(
    private readonly curves: CostCurves,
    options: CapOptions,
  ) {
    this.maxCap = options.maxCap;
    this.cap = Math.min(options.initialCap ?? START_CAP, options.maxCap);
    this.best = this.cap;
    this.allowZero = options.allowZero ?? true;
    this.pricing = options.pricing ?? new RoundCosts(curves);
    this.probes = options.probes ?? new BudgetedProbes();
    this.parkingMargin = options.parkingMargin ?? PARKING;
  }

  get parked(): boolean {
    return this.best === 0;
  }

  get correction(): number {
    return this.pricing.correction;
  }

  /** Prompt and completion tokens of the row; to be set before `cap` is read. */
  setDepth(tokens: number): void {
    this.depth = tokens;
  }

  /** Plain steps to run as one pipelined sprint now; 0 unless the next round is a plain step. */
  get sprint(): number {
    return this.parked && this.cap === 0 ? Math.min(SPRINT_MAX, this.probes.wait(this.rounds)) : 0;
  }

  /** After a sprint of plain steps. `ms`: of all of them; null: not timed. */
  updatePlain(steps: number, ms: number | null): void {
    for (let i = 0; i < steps; i++) {
      this.update({ rows: [{ drafted: 0, accepted: 0 }], ms: ms === null ? null : ms / steps, committed: 1 });
    }
  }

  update({ rows, ms, committed }: RoundReport): void {
    const wasParked = this.parked;
    for (const { drafted, accepted } of rows) this.observe(drafted, accepted);
    const longest = rows.reduce((most, { drafted }) => Math.max(most, drafted), 0);
    if (rows.length === 1) {
      if (ms !== null && committed > 0) this.pricing.learn(longest, ms, committed, this.acceptance, this.depth);
      this.pricing.age(longest);
    } else if (ms !== null) {
      const total = rows.reduce((sum, { drafted }) => sum + 1 + drafted, 0);
      this.pricing.learnBatch(total, longest, ms);
    }
    this.rounds++;
    const probe = wasParked && longest > 0;
    if (this.rounds % PICK_EVERY === 0 || (probe && this.probes.decidesAtOnce)) this.pick();
    if (!this.parked) return;
    if (!wasParked) this.probes.enter(this.rounds, this.probeLoss());
    else if (probe)
      this.probes.probed(
        this.rounds,
        rows.some((row) => row.accepted > 0),
        this.probeLoss(),
      );
    this.cap = this.probes.wait(this.rounds) === 0 ? 1 : 0;
  }

  /** Tokens per ms expected at `cap` at the current depth. */
  efficiency(cap: number): number {
    return this.pricing.efficiency(cap, this.acceptance, this.depth);
  }

  /** For reports; tokens per second from the curves alone. */
  info(): {
    cap: number;
    acceptance: number;
    rounds: number;
    kneeWidth: number;
    predictedRates: Record<number, number>;
  } {
    const predictedRates: Record<number, number> = {};
    for (let cap = this.allowZero ? 0 : 1; cap <= this.maxCap; cap++) {
      predictedRates[cap] = 1000 * this.curves.rate(cap, this.acceptance, this.depth);
    }
    const { cap, acceptance, rounds } = this;
    return { cap, acceptance, rounds, kneeWidth: this.curves.knee, predictedRates };
  }

  /** `accepted` successes and, unless all were accepted, the failure that ended them; what lies behind it is unknown. */
  private observe(drafted: number, accepted: number): void {
    const outcomes = accepted < drafted ? accepted + 1 : drafted;
    for (let i = 0; i < outcomes; i++) {
      this.observations++;
      this.memory++;
      const weight = Math.max(this.parked ? this.probes.alpha : ACCEPTANCE_ALPHA, 1 / this.memory);
      this.acceptance += weight * ((i < accepted ? 1 : 0) - this.acceptance);
    }
  }

  private pick(): void {
    const lowest = this.allowZero && this.observations >= OUTCOMES_BEFORE_PARKING ? 0 : 1;
    let candidate = lowest;
    for (let cap = lowest + 1; cap <= this.maxCap; cap++) {
      if (this.efficiency(cap) > this.efficiency(candidate)) candidate = cap;
    }
    const margin = candidate === 0 ? this.parkingMargin : HYSTERESIS;
    if (candidate === this.best || this.efficiency(candidate) <= margin * this.efficiency(this.best)) return;
    // An estimate from probes rests on few outcomes: what follows soon outweighs it.
    if (this.parked && this.probes.alpha > ACCEPTANCE_ALPHA) this.memory = Math.round(1 / this.probes.alpha);
    this.best = candidate;
    this.cap = candidate;
  }

  /** Plain steps' worth of time that a probe wastes. */
  private probeLoss(): number {
    return Math.max(0, this.efficiency(0) / this.efficiency(1) - 1) * (1 + this.acceptance);
  }
}
