/** Which ways to decode are compared: baseline first, then the modes that were asked for, with their caps. */
import type { ModelInfo, RequestSpeculation } from "../../engine/protocol.ts";
import { usageError } from "../errors.ts";

export type BenchMode = "auto" | "dspark" | "dflash" | "lookup" | "baseline";

const MODES: readonly BenchMode[] = ["auto", "dspark", "dflash", "lookup", "baseline"];

export interface Arm {
  /** As in the table and the JSON, e.g. "dspark cap=2". */
  readonly label: string;
  readonly mode: ModelInfo["mode"];
  readonly speculation: RequestSpeculation;
}

export interface SkippedMode {
  readonly mode: BenchMode;
  readonly reason: string;
}

export const BASELINE: Arm = { label: "baseline", mode: "baseline", speculation: { mode: "baseline" } };

/** `--modes a,b`; throws a usage error. Baseline is always run and not among them. */
export function parseModes(text: string): BenchMode[] {
  const modes = words(text).map((word) => {
    const mode = MODES.find((known) => known === word);
    if (mode === undefined) throw usageError(`--modes takes ${MODES.join(", ")} separated by commas, got '${word}'`);
    return mode;
  });
  return [...new Set(modes)].filter((mode) => mode !== "baseline");
}

/** `--caps 2,auto`; throws a usage error. ≤ 0 is the full block. */
export function parseCaps(text: string): (number | "auto")[] {
  const caps = words(text).map((word) => {
    if (word === "auto") return word;
    if (!/^-?\d+$/.test(word)) throw usageError(`--caps takes integers and 'auto' separated by commas, got '${word}'`);
    return Number(word);
  });
  if (caps.length === 0) throw usageError("--caps must name at least one cap");
  return [...new Set(caps)];
}

function words(text: string): string[] {
  return text
    .split(",")
    .map((word) => word.trim())
    .filter((word) => word !== "");
}

/** The mode that a pair is loaded with, so that as many of `modes` as possible can run. */
export function loadMode(modes: readonly BenchMode[]): BenchMode {
  const drafting = modes.find((mode) => mode === "dspark" || mode === "dflash");
  return drafting ?? modes.find((mode) => mode === "auto") ?? modes[0] ?? "baseline";
}

/** The arms that a loaded pair can run, and what it cannot. `refused`: why the pair was not loaded as wanted. */
export function armsFor(
  modes: readonly BenchMode[],
  caps: readonly (number | "auto")[],
  model: ModelInfo,
  refused: string | null,
): { readonly arms: readonly Arm[]; readonly skipped: readonly SkippedMode[] } {
  const arms: Arm[] = [BASELINE];
  const skipped: SkippedMode[] = [];
  for (const mode of modes) {
    if (mode === "lookup") arms.push({ label: "lookup", mode: "lookup", speculation: { mode: "lookup" } });
    else if (mode === "auto") {
      arms.push({ label: `auto (${model.mode})`, mode: model.mode, speculation: { mode: "pair" } });
    } else if (mode === model.mode) {
      const plainDrafts = mode === "dspark" && model.drafting?.lookupDrafts === false ? " nolookup" : "";
      for (const cap of caps) {
        const label = `${mode} cap=${cap === "auto" || cap > 0 ? cap : "full"}${plainDrafts}`;
        arms.push({ label, mode: model.mode, speculation: { mode: "pair", maxDraft: cap } });
      }
    } else skipped.push({ mode, reason: reasonOf(model, refused) });
  }
  return { arms, skipped };
}

function reasonOf({ drafter, mode }: ModelInfo, refused: string | null): string {
  if (drafter !== null) return `${drafter} is a ${mode} drafter, and one drafter is loaded at a time`;
  return refused ?? "no drafter: name one with --drafter";
}
