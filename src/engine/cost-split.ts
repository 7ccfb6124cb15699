/** Where the time of rounds went, as far as measured costs tell: what drafting and verifying them is expected to take. */
import { CostCurves } from "../decoding/cost-curves.ts";
import type { DraftingCosts, RoundInfo } from "./protocol.ts";

/** ms per round, averaged over the rounds of a request. */
export interface CostSplit {
  readonly measured: number;
  readonly draft: number;
  readonly verify: number;
  /** The round's own part, as the calibration saw it: the host's work, and caches that draft and verify take turns in. */
  readonly overhead: number;
  /** What neither explains. */
  readonly rest: number;
  /** The expected round (draft, verify and overhead) in units of a plain step; null: no plain step was measured. */
  readonly plainSteps: number | null;
}

/** One request's rounds, in order. */
export interface RoundsOf {
  readonly promptTokens: number;
  readonly rounds: readonly RoundInfo[];
}

/** null without rounds. */
export function costSplit(
  costs: DraftingCosts,
  requests: readonly RoundsOf[],
  decodeSeconds: number,
): CostSplit | null {
  const count = requests.reduce((sum, { rounds }) => sum + rounds.length, 0);
  if (count === 0) return null;
  const { plain, ...curvesOf } = costs;
  const curves = new CostCurves(plain === null ? curvesOf : { ...curvesOf, plain });
  const sum = { draft: 0, verify: 0, overhead: 0, steps: 0 };
  for (const { promptTokens, rounds } of requests) {
    let depth = promptTokens + 1;
    for (const { source, drafted, accepted } of rounds) {
      const draft = source === "drafter" ? curves.draftMs(drafted) : 0;
      const verify = drafted === 0 ? curves.roundMs(0, depth) : curves.verifyMs(drafted + 1, depth);
      const overhead = drafted === 0 ? 0 : costs.overhead;
      sum.draft += draft;
      sum.verify += verify;
      sum.overhead += overhead;
      sum.steps += (draft + verify + overhead) / curves.roundMs(0, depth);
      depth += accepted + 1;
    }
  }
  const measured = (1000 * decodeSeconds) / count;
  return {
    measured,
    draft: sum.draft / count,
    verify: sum.verify / count,
    overhead: sum.overhead / count,
    rest: measured - (sum.draft + sum.verify + sum.overhead) / count,
    plainSteps: plain === null || plain <= 0 ? null : sum.steps / count,
  };
}
