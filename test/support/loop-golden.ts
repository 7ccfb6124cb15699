/** Reading `golden/drafters/loops/loops.json`. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { drafterRoot } from "./drafter-golden.ts";

/** Drafted, accepted, committed, source. */
export type GoldenRoundLog = readonly [number, number, number, "drafter" | "lookup" | "plain"];

export interface LoopOptions {
  readonly max_draft_tokens?: number | null;
  readonly lookup_drafts?: boolean;
  readonly lookup_long_draft?: number;
  readonly long_draft_tokens?: number;
  readonly confidence_threshold?: number;
}

export interface LoopResult {
  readonly tokens: readonly number[];
  readonly accept_lengths: readonly number[];
  readonly finish_reason: "stop" | "length";
}

export interface LoopRun extends LoopResult {
  readonly prompt_ids: readonly number[];
  readonly max_new_tokens: number;
  readonly eos: number | null;
  readonly options: LoopOptions;
  readonly round_log_drafted_accepted_committed_source: readonly GoldenRoundLog[];
}

export interface BatchRun {
  readonly prompts: readonly (readonly number[])[];
  readonly max_new_tokens: readonly number[];
  readonly max_draft_tokens: number;
  readonly rows: readonly LoopResult[];
}

interface LoopFile {
  readonly runs: Readonly<Record<string, LoopRun | BatchRun>>;
  readonly penalties: {
    readonly prompt_ids: readonly number[];
    readonly max_new_tokens: number;
    readonly runs: Readonly<
      Record<string, LoopResult & { readonly options: { presence_penalty?: number; frequency_penalty?: number } }>
    >;
  };
  readonly logprobs: {
    readonly prompt_ids: readonly number[];
    readonly top: number;
    readonly entries: readonly {
      readonly token_id: number;
      readonly logprob: number;
      readonly top: readonly (readonly [number, number])[];
    }[];
  };
  readonly coupled_sampling: readonly {
    readonly prompt_ids: readonly number[];
    readonly seed: number;
    readonly temperature: number;
    readonly top_p: number;
    readonly top_k: number;
    readonly accept_lengths_dspark: readonly number[];
    readonly tokens: readonly number[];
  }[];
}

export const loops = JSON.parse(readFileSync(join(drafterRoot, "loops/loops.json"), "utf8")) as LoopFile;

const isBatch = (run: LoopRun | BatchRun): run is BatchRun => "rows" in run;

export const loopRuns: readonly (readonly [string, LoopRun])[] = Object.entries(loops.runs).flatMap(([name, run]) =>
  isBatch(run) ? [] : [[name, run] as const],
);
export const batchRuns: readonly (readonly [string, BatchRun])[] = Object.entries(loops.runs).flatMap(([name, run]) =>
  isBatch(run) ? [[name, run] as const] : [],
);
