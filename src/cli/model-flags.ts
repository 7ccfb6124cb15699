/** Flags that `generate` and `serve` share (cli.md §2), and the load that they ask for. */
import type { LoadSpec, SpeculationSpec } from "../engine/protocol.ts";
import { usageError } from "./errors.ts";
import { choiceFlag, type FlagValues, numberFlag, switchFlag, textFlag, triFlag } from "./flags.ts";
import { type CliIo, say } from "./io.ts";

/** The pair that is part of the program. */
export const DEFAULT_MODEL = "smollm2-135m";

/** What the old `--family` meant. */
const FAMILY_MODELS = { gemma4: "gemma-4-12b", qwen3: "qwen3-4b", none: null } as const;

export const modelFlags = {
  model: textFlag({
    help: "registry id, owner/repo, folder, local name, .gguf file or gguf:<owner>/<repo>/<file>",
    hint: "R",
    defaultText: DEFAULT_MODEL,
  }),
  target: textFlag({ help: "old name of --model", hidden: true }),
  family: choiceFlag(["none", "gemma4", "qwen3"], "none", { help: "old way to choose a model", hidden: true }),
  mode: choiceFlag(["auto", "dspark", "dflash", "lookup", "baseline"], "auto", {
    help: "how tokens are drafted; auto takes the best there is for the model",
  }),
  drafter: textFlag({ help: "drafter for the model: repository, folder or gguf:<owner>/<repo>/<file>", hint: "R" }),
  "max-draft": textFlag({
    help: "drafts per round; 0 = the full block; auto = chosen round by round",
    hint: "N",
    defaultText: "auto",
  }),
  "confidence-threshold": numberFlag(
    0,
    { min: 0, max: 1 },
    { help: "cut drafts below this joint confidence; 0 = off" },
  ),
  "drafter-bits": choiceFlag(["0", "2", "3", "4", "5", "6", "8"], "4", {
    help: "pack the drafter to this many bits; 0 keeps the file's",
  }),
  "lookup-drafts": triFlag("draft from earlier text, too; --no-lookup-drafts does not"),
  "lookup-long-draft": numberFlag(
    32,
    { min: 1, integer: true },
    { help: "longest draft from earlier text; 6 = short only" },
  ),
  "drafter-window": numberFlag(4096, { min: 0, integer: true }, { help: "context rows of the drafter; 0 = all" }),
  offline: switchFlag("never connect: only what is on this machine (also HF_HUB_OFFLINE=1)"),
  threads: numberFlag(null, { min: 1, integer: true }, { help: "CPU threads", defaultText: "all usable CPUs" }),
  "kv-bits": choiceFlag(["0", "4", "8"], "0", { help: "bits of the KV cache; 0 keeps the activation type" }),
  "trust-remote-code": switchFlag("accepted without effect: code of a checkpoint is never run"),
};

export type ModelFlagValues = FlagValues<typeof modelFlags>;

/** The name to load. The default is said aloud, with how to choose another. */
export function chosenModel(flags: ModelFlagValues, io: CliIo): string {
  const named = flags.model ?? flags.target ?? FAMILY_MODELS[flags.family];
  if (flags["trust-remote-code"])
    say(io, "--trust-remote-code has no effect: Python code of a checkpoint is never run");
  if (named !== null) return named;
  say(
    io,
    `no --model given: using ${DEFAULT_MODEL}, which is part of this program; ` +
      "choose another with --model <id | owner/repo | folder | file.gguf>",
  );
  return DEFAULT_MODEL;
}

export function kvBits(flags: ModelFlagValues): LoadSpec["kvBits"] {
  return flags["kv-bits"] === "8" ? 8 : flags["kv-bits"] === "4" ? 4 : 0;
}

/** What `load` gets from the shared flags; limits are the command's. */
export function loadSpec(
  model: string,
  flags: ModelFlagValues,
  io: CliIo,
  limits: Pick<LoadSpec, "contextWindow" | "maxBatch" | "maxQueue">,
): LoadSpec {
  const offlineByEnv = io.env.HF_HUB_OFFLINE !== undefined && !["", "0", "false"].includes(io.env.HF_HUB_OFFLINE);
  return {
    model,
    offline: flags.offline || offlineByEnv,
    kvBits: kvBits(flags),
    threads: flags.threads,
    speculation: speculationSpec(flags),
    ...limits,
  };
}

function speculationSpec(flags: ModelFlagValues): SpeculationSpec {
  return {
    mode: flags.mode,
    drafter: flags.drafter,
    maxDraft: maxDraft(flags["max-draft"]),
    confidenceThreshold: flags["confidence-threshold"],
    drafterBits: Number(flags["drafter-bits"]) as SpeculationSpec["drafterBits"],
    lookupDrafts: flags["lookup-drafts"],
    lookupLongDraft: flags["lookup-long-draft"],
    drafterWindow: flags["drafter-window"],
  };
}

function maxDraft(text: string | null): SpeculationSpec["maxDraft"] {
  if (text === null || text === "auto") return text;
  if (!/^-?\d+$/.test(text)) throw usageError(`--max-draft must be an integer or 'auto', got '${text}'`);
  return Number(text);
}
