/** A benchmark in words: the header with every setting and where it comes from, the table, verdicts, comparison. */
import type { BenchmarkReport, SavedBenchmark } from "./json.ts";
import type { ArmSummary, PromptSummary } from "./summary.ts";
import type { ArmVerdict } from "./verdicts.ts";

export function headerLines(report: BenchmarkReport): string[] {
  const { model, settings, version, device, mlx, trials, maxNewTokens } = report;
  const rows: readonly (readonly [string, string])[] = [
    ["device", `${device} · ${model.backend}`],
    ["mlx", mlx],
    ["target", model.quantization === null ? model.id : `${model.id} (${model.quantization})`],
    ["drafter", model.drafter ?? "none"],
    ...Object.entries(settings),
    ["prompts", `greedy, ${maxNewTokens} tokens at most, ${trials === 1 ? "1 trial" : `${trials} trials, medians`}`],
  ];
  return [`mlx-dspark ${version} benchmark`, ...rows.map(([name, value]) => `  ${name.padEnd(14)} ${value}`)];
}

export function tableLines({ summaries, verdicts, skipped, trials }: BenchmarkReport): string[] {
  const width = Math.max(...summaries.map(({ arm }) => arm.label.length), 8);
  const lines = [
    `${"run".padEnd(width)}   tok/s  decode  speedup (decode)  accept  tokens equal to baseline`,
    ...summaries.map((summary) => {
      const { arm, row } = summary;
      const columns = [
        arm.label.padEnd(width),
        row.tokensPerSecond.toFixed(1).padStart(7),
        row.decodeTokensPerSecond.toFixed(1).padStart(7),
        `${times(summary.speedup)} (${times(summary.decodeSpeedup)})`.padStart(17),
        row.accept.toFixed(2).padStart(7),
        ` ${equality(verdicts.get(arm))}`,
      ];
      return columns.join(" ");
    }),
    ...skipped.map(({ mode, reason }) => `${mode.padEnd(width)}   skipped (${reason})`),
    "rows are the means of chat, code and math",
  ];
  if (trials < 3) lines.push("use --trials 3 or more for figures to quote");
  return lines;
}

/** Per prompt: the gain with its spread, what rounds committed, and where drafts came from. */
export function detailLines({ summaries }: BenchmarkReport): string[] {
  return summaries.flatMap((summary) => {
    const lines = [...summary.perPrompt].map(([name, one]) => `  ${name.padEnd(5)} ${promptText(one, summary)}`);
    const cost = costText(summary);
    return [summary.arm.label, ...lines, ...(cost === null ? [] : [`  ${cost}`])];
  });
}

function promptText(one: PromptSummary, { arm }: ArmSummary): string {
  const [low, high] = one.spread;
  const parts = [
    `${one.tokens} tokens`,
    `${one.tokensPerSecond.toFixed(1)} tok/s (${low.toFixed(1)}–${high.toFixed(1)})`,
    `${one.decodeTokensPerSecond.toFixed(1)} decode`,
    `${one.prefillTokensPerSecond.toFixed(0)} prefill`,
  ];
  if (arm.mode === "baseline") return parts.join(" · ");
  const [median, least, most] = one.decodeSpeedup;
  parts.push(
    least === most ? times(median) : `${times(median)} (${times(least)}–${times(most)})`,
    `accept ${one.accept.toFixed(2)}`,
    `${one.accepted} of ${one.drafted} drafts`,
    `committed ${histogramText(one.acceptHistogram)}`,
  );
  if (one.lookupRounds > 0) parts.push(`${one.lookupRounds} lookup rounds`);
  if (one.parkedRounds > 0) parts.push(`${one.parkedRounds} plain`);
  return parts.join(" · ");
}

/** "1×12 2×7 5×1": rounds by how much they committed. */
function histogramText(histogram: Readonly<Record<string, number>>): string {
  const entries = Object.entries(histogram);
  return entries.length === 0 ? "–" : entries.map(([length, rounds]) => `${length}×${rounds}`).join(" ");
}

function costText({ arm, split, efficiency }: ArmSummary): string | null {
  if (split === null || arm.mode === "baseline") return null;
  const ms = (x: number) => x.toFixed(2);
  const parts = [
    `round ${ms(split.measured)} ms = draft ${ms(split.draft)} + verify ${ms(split.verify)} + overhead ${ms(split.overhead)} + rest ${ms(split.rest)}`,
  ];
  if (split.plainSteps !== null) parts.push(`expected ${split.plainSteps.toFixed(2)} plain steps`);
  if (efficiency !== null) parts.push(`${(100 * efficiency).toFixed(0)} % of what that promises`);
  return parts.join(" · ");
}

function equality(verdict: ArmVerdict | undefined): string {
  if (verdict === undefined) return "–";
  const replay = verdict.replay === null ? "" : replayText(verdict.replay);
  if (verdict.identical) return `yes${replay}`;
  const shown = verdict.differences.map(
    ({ prompt, firstDiff, lengthOnly, kind, margin, referenceToken, armToken }) =>
      `${prompt} from token ${firstDiff} on${
        lengthOnly
          ? " (length only)"
          : `: id ${armToken} for ${referenceToken}, margin ${(margin ?? 0).toPrecision(3)}, ${kind}`
      }`,
  );
  return `NO: ${shown.join("; ")}${replay}`;
}

function replayText({ tokens, argmaxEqual, misranked }: NonNullable<ArmVerdict["replay"]>): string {
  return ` · replay ${argmaxEqual}/${tokens} · ranked first ${tokens - misranked}/${tokens}`;
}

/** Run by run against a saved benchmark, by its labels. */
export function peerLines({ summaries }: BenchmarkReport, peer: SavedBenchmark): string[] {
  const ours = new Map(summaries.map((summary) => [summary.arm.label, summary.row]));
  const rows = peer.runs.map(({ run, tokS, decodeTokS, accept }) => {
    const row = ours.get(run);
    if (row === undefined) return `  ${run}: not run here`;
    const gain = (mine: number, theirs: number) => (theirs > 0 ? `${(mine / theirs).toFixed(2)}×` : "–");
    const parts = [
      `tok/s ${gain(row.tokensPerSecond, tokS)}`,
      `decode ${gain(row.decodeTokensPerSecond, decodeTokS)}`,
      `accept ${row.accept.toFixed(2)} against ${accept.toFixed(2)}`,
    ];
    return `  ${run}: ${parts.join(" · ")}`;
  });
  return [`against ${peer.target} on ${peer.device}:`, ...rows];
}

function times(factor: number): string {
  return `${factor.toFixed(2)}×`;
}
