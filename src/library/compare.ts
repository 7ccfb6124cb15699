/** The same input in several modes of one pair, one after the other, and whether they gave the same (decoding.md §10). */
import { compareRuns, EVIDENCE_LOGPROBS, type Verdict } from "../engine/lossless.ts";
import type { RequestSpeculation } from "../engine/protocol.ts";
import { RequestError } from "./errors.ts";
import type { GenerationResult, Mode } from "./events.ts";
import type { Input, Pair } from "./pair.ts";

export interface Arm {
  readonly mode: Mode;
  readonly maxDraft?: number | "auto";
  readonly confidenceThreshold?: number;
}

export interface CompareOptions {
  readonly maxNewTokens?: number;
  readonly signal?: AbortSignal;
}

export interface Comparison extends Verdict {
  /** In the order of the arms. */
  readonly runs: readonly GenerationResult[];
}

/** Greedy. Rejects with `RequestError` for a mode that the pair does not have. */
export async function compareArms(
  pair: Pair,
  input: Input,
  arms: readonly Arm[],
  { maxNewTokens = 200, signal }: CompareOptions,
): Promise<Comparison> {
  const available = [...new Set<Mode>(["baseline", "lookup", pair.mode])];
  for (const { mode } of arms) {
    if (!available.includes(mode)) {
      throw new RequestError(`mode '${mode}' is not available with the loaded model (have: ${available.join(", ")})`);
    }
  }
  const options = { maxNewTokens, logprobs: EVIDENCE_LOGPROBS, ...(signal !== undefined && { signal }) };
  const runs: GenerationResult[] = [];
  for (const arm of arms) runs.push(await pair.start(input, options, speculationOf(arm)));
  const promptIds = await pair.encode(input, signal);
  const recorded = runs.map(({ tokenIds, logprobs }, i) => ({
    label: labelOf(arms[i]),
    promptIds,
    ids: [...tokenIds],
    logprobs: (logprobs ?? []).map(({ tokenId, logprob, top }) => ({
      ...{ id: tokenId, logprob },
      top: top.map((one) => [one.tokenId, one.logprob] as const),
    })),
  }));
  return { ...(await compareRuns(pair.client, recorded, pair.inexactCaches, signal)), runs };
}

function speculationOf({ mode, maxDraft, confidenceThreshold }: Arm): RequestSpeculation {
  if (mode === "baseline" || mode === "lookup") return { mode };
  return {
    mode: "pair",
    ...(maxDraft !== undefined && { maxDraft }),
    ...(confidenceThreshold !== undefined && { confidenceThreshold }),
  };
}

function labelOf(arm: Arm | undefined): string {
  if (arm === undefined) return "?";
  const { mode, maxDraft, confidenceThreshold } = arm;
  const cap = maxDraft === undefined ? "" : ` cap=${maxDraft}`;
  return `${mode}${cap}${confidenceThreshold === undefined ? "" : ` confidence=${confidenceThreshold}`}`;
}
