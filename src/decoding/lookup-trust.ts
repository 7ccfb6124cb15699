/**
 * How much of a lookup proposal is worth verifying (ours; decoding.md §6 asks for a gate on base drafts): as many tokens as
 * bring the most expected tokens per millisecond, at what rows cost here. One for each request; it changes how long
 * drafts are, never the output.
 */

/** Weight of what a match promises, in outcomes. */
const MATCH_WEIGHT = 8;
/** What the outcomes of a draft keep of their weight when the next draft is judged. */
const MEMORY = 0.7;
/** Refused proposals before one is tried all the same: a text that begins to repeat itself is found. */
const REFUSALS_BEFORE_PROBE = 7;
/** Enough to see whether a match goes on. */
const PROBE_TOKENS = 3;

/** What a round costs, in ms, that verifies so many drafts. */
export type DraftPrice = (drafts: number) => number;

export class LookupTrust {
  private stood = 0;
  private failed = 0;
  private refusals = 0;

  /**
   * Probability that the next token continues a match of `matched` tokens, and again the one behind it: Laplace's rule of
   * succession on the match, outweighed by what this text's last drafts came to.
   */
  chance(matched: number): number {
    const { stood, failed } = this;
    return ((MATCH_WEIGHT * (matched + 1)) / (matched + 2) + stood) / (MATCH_WEIGHT + stood + failed);
  }

  /**
   * Tokens of a proposal to verify; 0: what would be done instead brings more.
   * @param available length of the proposal, ≥ 1
   * @param rate tokens per ms of what would be done instead
   */
  worth(matched: number, available: number, price: DraftPrice, rate: number): number {
    const chance = this.chance(matched);
    let best = 0;
    let most = rate;
    let expected = 1;
    let survival = 1;
    for (let drafts = 1; drafts <= available; drafts++) {
      survival *= chance;
      expected += survival;
      const gained = expected / price(drafts);
      if (gained <= most) continue;
      best = drafts;
      most = gained;
    }
    return best;
  }

  /** As `worth`, but every eighth refusal in a row is a probe. To be asked when the answer is acted on: it counts. */
  length(matched: number, available: number, price: DraftPrice, rate: number): number {
    const worth = this.worth(matched, available, price, rate);
    if (worth === 0 && this.refusals < REFUSALS_BEFORE_PROBE) {
      this.refusals++;
      return 0;
    }
    this.refusals = 0;
    return worth > 0 ? worth : Math.min(PROBE_TOKENS, available);
  }

  /** After every lookup round: accepted drafts, and the failure that ended them unless all were. */
  update(drafted: number, accepted: number): void {
    this.stood = MEMORY * this.stood + accepted;
    this.failed = MEMORY * this.failed + (accepted < drafted ? 1 : 0);
  }
}
