/**
 * Which row drafts how, round by round: the policy over the one decode loop. What a row's grammar says must follow goes
 * first, then lookup is asked, then the drafter with the controller's cap, else a plain step. As long as every row would
 * take a plain step, steps are pipelined and nothing here costs more than a look into the index. A choice here never
 * changes what is committed, only how fast.
 */
import type { Drafter } from "../drafters/drafter.ts";
import type { CapController } from "./cap-controller.ts";
import type { CostCurves } from "./cost-curves.ts";
import type { PlannedDraft } from "./draft-blocks.ts";
import { LookupCosts } from "./lookup-costs.ts";
import { LOOKUP_ALONE, LOOKUP_BESIDE_DRAFTER, LookupIndex } from "./lookup-index.ts";
import type { DraftPrice } from "./lookup-trust.ts";
import type { SettledRound } from "./round.ts";
import type { Row } from "./row.ts";
import { RowDrafting } from "./row-drafting.ts";
import type { SettledToken } from "./step.ts";

export interface SpeculatorOptions {
  readonly drafter: Drafter | null;
  /** Drafts per round: a fixed cap, or the controller's choice. */
  readonly cap: number | CapController;
  /** null: not measured; lookup drafts are then not priced. */
  readonly curves: CostCurves | null;
  readonly lookup: boolean;
  /** Longest lookup draft on a long match; base drafts only when not above their length. */
  readonly longDraft: number;
  readonly confidenceThreshold: number;
}

/** Longest draft of what a grammar says must follow: that of a long lookup (structured-output.md §5). */
const FORCED_DRAFT = 32;
/**
 * A step that is not scheduled ahead costs a tenth of one or less, a plain step before a lookup draft half of one: it is
 * worth waiting for one expected token in so many.
 */
const WAIT_ABOVE = 0.2;
/** Of the rows whose drafter promises nothing, one in so many keeps a context for it, to learn when that changes. */
const CONTEXT_EVERY = 8;

export class Speculator {
  private lastEnd: number | null = null;
  /** null: lookup drafts are not priced. */
  private readonly costs: LookupCosts | null;
  /** Rows in a row that were given no context. */
  private without = 0;

  constructor(readonly options: SpeculatorOptions) {
    this.costs = options.curves === null ? null : new LookupCosts(options.curves);
  }

  get drafter(): Drafter | null {
    return this.options.drafter;
  }

  get mode(): "dspark" | "dflash" | "lookup" {
    const { drafter } = this.options;
    if (drafter === null) return "lookup";
    return drafter.kind === "dspark" ? "dspark" : "dflash";
  }

  /** Draft cap in force: of the drafter, else of a base draft by lookup. */
  get cap(): number {
    const { cap, drafter } = this.options;
    if (drafter === null) return LOOKUP_ALONE.maxDraft;
    return typeof cap === "number" ? fixedCap(cap, drafter) : cap.cap;
  }

  /** Estimated chance that a draft stands; null for a fixed cap. */
  get acceptance(): number | null {
    const { cap } = this.options;
    return typeof cap === "number" ? null : cap.acceptance;
  }

  private get parked(): boolean {
    const { cap } = this.options;
    return typeof cap !== "number" && cap.parked;
  }

  /** State of a new row. `capacityMax`: most positions that it can reach. */
  newRow(prompt: ArrayLike<number>, capacityMax: number): RowDrafting {
    const { drafter, lookup, cap } = this.options;
    if (typeof cap !== "number") cap.newText();
    const index = lookup ? new LookupIndex(this.lookupOptions, prompt) : null;
    return new RowDrafting(index, drafter !== null && this.keepsContext() ? drafter.newSession(capacityMax) : null);
  }

  /** Whether a new row pays for a drafter's context: a percent or two of every step, and more of its prompt. */
  private keepsContext(): boolean {
    const { cap } = this.options;
    const spared = typeof cap !== "number" && !cap.promising && this.without < CONTEXT_EVERY - 1;
    this.without = spared ? this.without + 1 : 0;
    return !spared;
  }

  /** What the row should do next, from the tokens that are known of it. @throws ConstraintError */
  plan(row: Row): PlannedDraft {
    // One token of every round comes from the target itself.
    const limit = row.limits.maxNew - row.committed - 1;
    const drafting = row.drafting;
    if (limit < 1 || drafting === null) return { source: "plain" };
    const forced = row.constraint?.forced() ?? [];
    if (forced.length > 0) {
      return { source: "forced", tokens: Int32Array.from(forced.slice(0, Math.min(limit, FORCED_DRAFT))) };
    }
    const tokens = this.lookup(row, drafting, limit);
    if (tokens !== null) return { source: "lookup", tokens };
    const cap = this.drafterCap(row);
    if (cap >= 1 && drafting.session !== null) {
      // A guess beside a plain step tells as much as a probe, and interrupts nothing.
      if (this.parked && row.sampler.plainGreedy && row.constraint === null) {
        return { source: "plain", watched: !drafting.watching };
      }
      return { source: "drafter", cap: Math.min(cap, limit), confidenceThreshold: this.options.confidenceThreshold };
    }
    return { source: "plain" };
  }

  /**
   * Whether the token in flight may well begin a lookup draft: a step that is scheduled on top of it would come in between.
   * @param row whose plan from the tokens known is a plain step
   */
  waits(row: Row): boolean {
    const { drafting } = row;
    if (drafting === null || !drafting.expects || drafting.expectedComes < WAIT_ABOVE) return false;
    if (this.costs === null) return true;
    const { maxDraft, minN } = this.lookupOptions;
    return drafting.trust.worth(minN, maxDraft, ...this.terms(this.costs, row.tokens.length)) > 0;
  }

  private lookup(row: Row, drafting: RowDrafting, limit: number): Int32Array | null {
    const { costs } = this;
    const { longDraft } = this.options;
    const long = costs !== null || drafting.long.allowed ? longDraft : null;
    const proposal = drafting.lookup?.propose(long, limit) ?? null;
    if (proposal === null) {
      drafting.admitted = 0;
      return null;
    }
    const { tokens, matched } = proposal;
    if (costs === null) return tokens;
    const terms = this.terms(costs, row.tokens.length);
    // A probe stays admitted until it is verified, also when one more token has come meanwhile.
    const length =
      drafting.admitted > 0
        ? Math.max(drafting.trust.worth(matched, tokens.length, ...terms), Math.min(drafting.admitted, tokens.length))
        : drafting.trust.length(matched, tokens.length, ...terms);
    drafting.admitted = length;
    return length === 0 ? null : tokens.subarray(0, length);
  }

  /** What a lookup draft costs at `depth`, and what would be done instead brings. */
  private terms(costs: LookupCosts, depth: number): [DraftPrice, number] {
    return [(drafts) => costs.draftMs(drafts, depth), this.rate(costs, depth)];
  }

  /** Beside a drafter, short n-grams are taken where it is known what its own drafts bring instead. */
  private get lookupOptions() {
    const { drafter, cap, curves } = this.options;
    const compared = curves !== null && typeof cap !== "number";
    return drafter === null || compared ? LOOKUP_ALONE : LOOKUP_BESIDE_DRAFTER;
  }

  /** Tokens per ms of what would be done without lookup. */
  private rate(costs: LookupCosts, depth: number): number {
    const { cap } = this.options;
    return typeof cap === "number" ? 1 / costs.plainMs(depth) : cap.efficiency(cap.best);
  }

  private drafterCap(row: Row): number {
    const { cap, drafter } = this.options;
    if (drafter === null) return 0;
    if (typeof cap === "number") return fixedCap(cap, drafter);
    cap.setDepth(row.tokens.length);
    return cap.cap;
  }

  /** After rounds of all rows together. */
  settledRounds(rounds: readonly SettledRound[]): void {
    const ms = this.elapsed();
    for (const { row, ids, source, drafted, accepted } of rounds) {
      const drafting = row.drafting;
      if (drafting === null) continue;
      drafting.extend(ids);
      if (source !== "lookup") continue;
      drafting.admitted = 0;
      drafting.long.update(drafted, accepted, LOOKUP_ALONE.maxDraft);
      drafting.trust.update(drafted, accepted);
      if (ms !== null && rounds.length === 1 && drafted > 0) this.costs?.learnDraft(drafted, ms, row.tokens.length);
    }
    const { cap } = this.options;
    if (typeof cap === "number" || rounds.some(({ source }) => source === "lookup" || source === "forced")) return;
    const committed = rounds.reduce((sum, { accepted }) => sum + accepted + 1, 0);
    const judged = rounds.map(({ drafted, accepted }) => ({ drafted, accepted }));
    // Drafts that a grammar cut were paid for all the same: the time is that of another cap.
    cap.update({ rows: judged, ms: rounds.some(({ cut }) => cut) ? null : ms, committed });
  }

  /** After a plain step of `rows`, pipelined or not. */
  settledPlain(rows: readonly Pick<SettledToken, "row" | "id" | "foreseen">[]): void {
    const ms = this.elapsed();
    for (const { row, id } of rows) row.drafting?.extend([id]);
    const watched = rows.flatMap(({ foreseen }) => (foreseen === null ? [] : [foreseen]));
    const [only] = rows;
    if (ms !== null && only !== undefined && rows.length === 1 && watched.length === 0)
      this.costs?.learnPlain(ms, only.row.tokens.length);
    const { cap } = this.options;
    if (typeof cap === "number" || rows.length === 0) return;
    if (watched.length > 0) cap.updateWatched(watched);
    else cap.update({ rows: rows.map(() => ({ drafted: 0, accepted: 0 })), ms, committed: rows.length });
  }

  /** Something else was computed: the time until the next settling says nothing about rounds. */
  interrupted(): void {
    this.lastEnd = null;
  }

  private elapsed(): number | null {
    const now = performance.now();
    const ms = this.lastEnd === null ? null : now - this.lastEnd;
    this.lastEnd = now;
    return ms;
  }
}

/** ≤ 0 is the whole block. */
function fixedCap(cap: number, drafter: Drafter): number {
  return Math.min(cap <= 0 ? drafter.maxDraft : cap, drafter.maxDraft);
}
