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
  return `${rule}\n  ▶  ${LABELS[model.mode]}   ·   ${model.id}\n${rule}\n${drafterLine(model)}`;
}

/** Nothing without a drafter: the frame has said it all. */
function drafterLine({ drafter, drafting }: ModelInfo): string {
  if (drafter === null || drafting === null) return "";
  const cap = drafting.maxDraft === "auto" ? "cap auto (from what drafts cost here)" : `cap ${drafting.maxDraft}`;
  const lookup = drafting.lookupDrafts ? "lookup drafts on" : "lookup drafts off";
  return `  drafter ${drafter} · ${cap} · ${lookup}; override with --max-draft, --no-lookup-drafts\n`;
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
    const committed = stats.acceptLengths.reduce((sum, length) => sum + length, 0);
    const accepted = stats.rounds > 0 ? committed / stats.rounds : 1;
    parts.push(`accept ${accepted.toFixed(2)}/round`, `${stats.targetForwards} target fwds`);
  }
  if (stats.lookupRounds > 0) parts.push(`${stats.lookupRounds} lookup rounds`);
  if (stats.acceptance !== null) parts.push(`auto-cap now ${stats.cap ?? 0} (p≈${stats.acceptance.toFixed(2)})`);
  const rule = "-".repeat(WIDTH);
  return `${rule}\n  ${parts.join(" · ")}\n${rule}\n`;
}

function perSecond(tokens: number, seconds: number): string {
  return (seconds > 0 ? tokens / seconds : 0).toFixed(1);
}
