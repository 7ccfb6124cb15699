/** The frame around generated text: the banner before and the measured line after it (cli.md §3). */
import type { ModelInfo, RequestStats } from "../engine/protocol.ts";

const WIDTH = 64;

const LABELS: Readonly<Record<ModelInfo["mode"], string>> = {
  dspark: "DSpark speculative",
  dflash: "DFlash (z-lab) speculative",
  lookup: "Prompt-lookup speculative (drafter-free)",
  baseline: "Baseline (plain greedy)",
};

export function banner(model: ModelInfo): string {
  const rule = "=".repeat(WIDTH);
  return `${rule}\n  ▶  ${LABELS[model.mode]}   ·   ${model.id}\n${rule}\n`;
}

/** @param tokens tokens of the answer, which a stop string may have cut below the engine's count. */
export function footer(stats: RequestStats, tokens: number): string {
  const seconds = stats.prefillSeconds + stats.decodeSeconds;
  const parts = [
    `${tokens} tokens`,
    `${seconds.toFixed(2)}s`,
    `${perSecond(tokens, seconds)} tok/s end-to-end`,
    `${perSecond(tokens, stats.decodeSeconds)} tok/s decode`,
    `prefill ${stats.prefillSeconds.toFixed(2)}s`,
  ];
  if (stats.mode !== "baseline") {
    const accepted = stats.targetForwards > 0 ? stats.completionTokens / stats.targetForwards : 1;
    parts.push(`accept ${accepted.toFixed(2)}/round`, `${stats.targetForwards} target fwds`);
  }
  if (stats.lookupRounds > 0) parts.push(`${stats.lookupRounds} lookup rounds`);
  const rule = "-".repeat(WIDTH);
  return `${rule}\n  ${parts.join(" · ")}\n${rule}\n`;
}

function perSecond(tokens: number, seconds: number): string {
  return (seconds > 0 ? tokens / seconds : 0).toFixed(1);
}
