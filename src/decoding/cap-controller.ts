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
  readonly audits?: boolean;
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
/** Outcomes seen before plain steps are considered, */
const OUTCOMES_BEFORE_PARKING = 24;
/** unless drafts would not pay even if so many stood (ours); a probe that stands is then not followed up either. */
const HOPED_ACCEPTANCE = 0.9;
/** Weight of a guess in the estimate: it is cheap to take more of them before drafting is begun again. */
const WATCHED_ALPHA = 0.1;
/** Outcomes that the acceptance of earlier texts weighs as. */
const MEMORY_ACROSS_TEXTS = 16;
/** Plain steps that are taken to learn what they cost, after so many rounds without one, while drafts gain less than this. */
const AUDIT_STEPS = 8;
const AUDIT_EVERY = 256;
const AUDIT_BELOW = 2;

export class CapController {
  /** Drafts for the next round; 0: a plain step. */
  cap: number;
  /** The cap that is currently thought best; 0: parked, and `cap` is then 0 or, for a probe, 1. */
  best: number;
  acceptance = START_ACCEPTANCE;
  observations = 0;
  rounds = 0;
  private depth = 0;
  /** Steps of a look at plain decoding that are still to come (ours; calibration.md has drafts' costs corrected alone). */
  private auditing = 0;
  /** Probes are guesses beside plain steps, as far as is known. */
  private watching = false;
  private lastPlain = Number.NEGATIVE_INFINITY;
  /** Outcomes that the acceptance estimate rests on; fewer than `observations` after a return from parking. */
  private memory = 0;
  private readonly maxCap: number;
  private readonly allowZero: boolean;
  private readonly pricing: RoundPricing;
  private readonly probes: ProbePlan;
  private readonly parkingMargin: number;
  private readonly mayAudit: boolean;

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
    this.mayAudit = this.allowZero && (options.audits ?? true);
  }

  get parked(): boolean {
    return this.best === 0;
  }

  /** False while plain steps are best and would stay so whatever a text accepts. */
  get promising(): boolean {
    return !this.parked || this.hopeful;
  }

  get correction(): number {
    return this.pricing.correction;
  }

  /** Prompt and completion tokens of the row; to be set before `cap` is read. */
  setDepth(tokens: number): void {
    this.depth = tokens;
  }

  /** After a plain step whose tokens the drafter had guessed, for each row rightly or not: a probe that costs a draft. */
  updateWatched(foreseen: readonly boolean[]): void {
    const rows = foreseen.map((right) => ({ drafted: 1, accepted: right ? 1 : 0 }));
    this.record({ rows, ms: null, committed: rows.length }, true);
  }

  /** Another text begins: what the last one accepted counts for little more than a guess. */
  newText(): void {
    this.memory = Math.min(this.memory, MEMORY_ACROSS_TEXTS);
  }

  update(report: RoundReport): void {
    this.record(report, false);
  }

  private record({ rows, ms, committed }: RoundReport, watched: boolean): void {
    const wasParked = this.parked;
    // The first step has nothing before it to hide behind.
    const startsAudit = this.auditing === AUDIT_STEPS;
    for (const { drafted, accepted } of rows) this.observe(drafted, accepted);
    const longest = rows.reduce((most, { drafted }) => Math.max(most, drafted), 0);
    if (rows.length === 1) {
      if (ms !== null && committed > 0 && !startsAudit)
        this.pricing.learn(longest, ms, committed, this.acceptance, this.depth);
      this.pricing.age(watched ? 0 : longest);
    } else if (ms !== null) {
      const total = rows.reduce((sum, { drafted }) => sum + 1 + drafted, 0);
      this.pricing.learnBatch(total, longest, ms);
    }
    this.rounds++;
    if (longest === 0 || watched) this.lastPlain = this.rounds;
    if (this.audits(rows.length)) return;
    const probe = wasParked && longest > 0;
    if (probe) this.watching = watched;
    if (this.rounds % PICK_EVERY === 0 || (probe && this.probes.decidesAtOnce)) this.pick();
    if (!this.parked) return;
    if (!wasParked) this.probes.enter(this.rounds, this.probeLoss());
    else if (probe)
      this.probes.probed(this.rounds, this.hopeful && rows.some((row) => row.accepted > 0), this.probeLoss(), watched);
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
      const weight = Math.max(this.parked ? this.probeAlpha : ACCEPTANCE_ALPHA, 1 / this.memory);
      this.acceptance += weight * ((i < accepted ? 1 : 0) - this.acceptance);
    }
  }

  /** Whether plain steps are to follow, so that the caps are compared by what a step costs now. */
  private audits(rows: number): boolean {
    if (this.auditing > 0) {
      this.auditing = rows > 1 ? 0 : this.auditing - 1;
      if (this.auditing > 0) return true;
      this.cap = this.best;
      this.pick();
    } else if (
      this.mayAudit &&
      !this.parked &&
      rows === 1 &&
      this.observations >= OUTCOMES_BEFORE_PARKING &&
      this.rounds - this.lastPlain >= AUDIT_EVERY &&
      this.efficiency(this.best) < AUDIT_BELOW * this.efficiency(0)
    ) {
      this.auditing = AUDIT_STEPS;
      this.cap = 0;
      return true;
    }
    return false;
  }

  private pick(): void {
    const mayPark = this.allowZero && (this.observations >= OUTCOMES_BEFORE_PARKING || !this.hopeful);
    const lowest = mayPark ? 0 : 1;
    let candidate = lowest;
    for (let cap = lowest + 1; cap <= this.maxCap; cap++) {
      if (this.efficiency(cap) > this.efficiency(candidate)) candidate = cap;
    }
    const margin = candidate === 0 ? this.parkingMargin : HYSTERESIS;
    if (candidate === this.best || this.efficiency(candidate) <= margin * this.efficiency(this.best)) return;
    // An estimate from probes rests on few outcomes: what follows soon outweighs it.
    if (this.parked && this.probeAlpha > ACCEPTANCE_ALPHA) this.memory = Math.round(1 / this.probeAlpha);
    this.best = candidate;
    this.cap = candidate;
  }

  /** Whether any cap would pay at the acceptance that may be hoped for, by what rounds cost here. */
  private get hopeful(): boolean {
    const hoped = Math.max(HOPED_ACCEPTANCE, this.acceptance);
    const at = (cap: number) => this.pricing.efficiency(cap, hoped, this.depth);
    for (let cap = 1; cap <= this.maxCap; cap++) if (at(cap) > at(0)) return true;
    return false;
  }

  private get probeAlpha(): number {
    return this.watching ? Math.min(WATCHED_ALPHA, this.probes.alpha) : this.probes.alpha;
  }

  /** Plain steps' worth of time that a probe wastes. */
  private probeLoss(): number {
    if (this.watching) return this.curves.guessMs / this.curves.roundMs(0);
    return Math.max(0, this.efficiency(0) / this.efficiency(1) - 1) * (1 + this.acceptance);
  }
}
