/** One sentence about how well this machine does with its model, with findings and what would help (memory.md §8). */

import { type Static, Type as t } from "@sinclair/typebox";

const ORDER = ["info", "healthy", "ok", "attention", "problem"] as const;

export type VerdictLevel = (typeof ORDER)[number];

export const verdictSchema = t.Object(
  {
    level: t.Union(ORDER.map((level: VerdictLevel) => t.Literal(level))),
    headline: t.String(),
    findings: t.Array(t.String()),
    levers: t.Array(t.String({ description: "What would help." })),
  },
  { $id: "Verdict" },
);

export type Verdict = Static<typeof verdictSchema>;

/** Null: not known. */
export interface VerdictFacts {
  /** Share of the bandwidth that a plain step uses. */
  readonly mbu: number | null;
  readonly speculates: boolean;
  /** Of the newest request. */
  readonly decodeTps: number | null;
  readonly ceilingTps: number | null;
  readonly acceptLength: number | null;
  readonly pressure: "normal" | "warn" | "critical" | "unknown";
  /** Growth of the swap since the model was loaded. */
  readonly swapGrowthBytes: number | null;
  /** Of the newest request, in tokens. */
  readonly contextTokens: number | null;
  readonly contextWindow: number;
  readonly activeIsEstimate: boolean;
}

const MBU_HEALTHY = 0.75;
const MBU_OK = 0.5;
/** Tokens a second at which a step is so short that everything around it shows. */
const SMALL_MODEL_TPS = 200;
const DELIVERING = 1.05;
const PARITY = 0.85;
const ACCEPT_LENGTH_LOW = 2;
const SWAP_GROWTH_MAX_BYTES = 64 * 2 ** 20;
const CONTEXT_FULL = 0.9;

export function verdictOf(facts: VerdictFacts): Verdict {
  let { level, headline } = bandwidthClass(facts);
  const findings: string[] = [];
  const levers: string[] = [];
  const raise = (to: VerdictLevel, text: string) => {
    if (ORDER.indexOf(to) <= ORDER.indexOf(level)) return;
    level = to;
    headline = text;
  };
  if (facts.pressure === "warn" || facts.pressure === "critical") {
    raise("problem", `memory pressure is ${facts.pressure}`);
    findings.push(`the system reports memory pressure (${facts.pressure})`);
    levers.push("free memory: close other programs, or load a smaller model or quantization");
  }
  if ((facts.swapGrowthBytes ?? 0) > SWAP_GROWTH_MAX_BYTES) {
    raise("problem", "the system is swapping");
    findings.push(`swap grew by ${Math.round((facts.swapGrowthBytes ?? 0) / 2 ** 20)} MiB since the model was loaded`);
  }
  if (facts.activeIsEstimate) findings.push("how many experts a token takes is unknown: ceilings are too low");
  const { decodeTps, ceilingTps, acceptLength } = facts;
  if (facts.speculates && decodeTps !== null && ceilingTps !== null && ceilingTps > 0) {
    const ratio = decodeTps / ceilingTps;
    if (ratio >= DELIVERING) findings.push(`speculation delivers: ${ratio.toFixed(2)} times what plain decoding could`);
    else if (ratio >= PARITY) findings.push("speculation is on a par with the best plain decoding");
    else findings.push(`decoding runs at ${ratio.toFixed(2)} of the plain ceiling in spite of speculation`);
    if (acceptLength !== null && acceptLength >= ACCEPT_LENGTH_LOW && ratio >= DELIVERING) {
      findings.push("how much is gained depends on the text: code and lists draft best");
    }
    if (acceptLength !== null && acceptLength < ACCEPT_LENGTH_LOW && ratio < PARITY) {
      levers.push("drafts are rarely accepted: try a smaller max_draft, or the mode baseline");
    }
  }
  if (facts.contextTokens !== null && facts.contextTokens >= CONTEXT_FULL * facts.contextWindow) {
    raise("attention", "the context is nearly full");
    findings.push(`${facts.contextTokens} of ${facts.contextWindow} tokens of context were in use`);
  }
  return { level, headline, findings, levers };
}

function bandwidthClass({ mbu, decodeTps }: VerdictFacts): Pick<Verdict, "level" | "headline"> {
  if (mbu === null) return { level: "info", headline: "not measured yet" };
  const share = `a plain step uses ${Math.round(mbu * 100)} % of the memory bandwidth`;
  if (mbu >= MBU_HEALTHY) return { level: "healthy", headline: share };
  if (decodeTps !== null && decodeTps > SMALL_MODEL_TPS) {
    return { level: "ok", headline: `${share}: a small model, whose steps are too short to fill it` };
  }
  return { level: mbu >= MBU_OK ? "ok" : "attention", headline: share };
}
