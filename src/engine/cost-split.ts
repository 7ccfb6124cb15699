/** Where the time of rounds went, as far as measured costs tell: what drafting and verifying them is expected to take. */
import { CostCurves } from "../decoding/cost-curves.ts";
import type { DraftingCosts, RoundInfo } from "./protocol.ts";

/** ms per round, averaged over the rounds of a request. */
export interface CostSplit {
  readonly measured: number;
  readonly draft: number;
  readonly verify: number;
  /** What neither explains: the host's part, and what the calibration did not see. */
  readonly rest: number;
  /** The expected round in units of a plain step; null: no plain step was measured. */
  readonly plainSteps: number | null;
}

/** null without rounds. Costs are those of a short context. */
export function costSplit(costs: DraftingCosts, rounds: readonly RoundInfo[], decodeSeconds: number): CostSplit | null {
  if (rounds.length === 0) return null;
  const { plain, ...curvesOf } = costs;
  const curves = new CostCurves(plain === null ? curvesOf : { ...curvesOf, plain });
  let [draft, verify] = [0, 0];
  for (const { source, drafted } of rounds) {
    if (source === "drafter") draft += curves.draftMs(drafted);
    verify += drafted === 0 ? curves.roundMs(0) : curves.verifyMs(drafted + 1);
  }
  const count = rounds.length;
  const measured = (1000 * decodeSeconds) / count;
  const expected = (draft + verify) / count;
  return {
    measured,
    draft: draft / count,
    verify: verify / count,
    rest: measured - expected,
    plainSteps: plain === null || plain <= 0 ? null : expected / plain,
  };
}
