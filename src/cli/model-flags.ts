/** Flags that `generate` and `serve` share (cli.md §2), and the load that they ask for. */
import type { LoadSpec } from "../engine/protocol.ts";
import { choiceFlag, type FlagValues, numberFlag, switchFlag, textFlag } from "./flags.ts";
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
  mode: choiceFlag(["auto", "baseline"], "auto", { help: "how tokens are produced; auto takes the best there is" }),
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
  return { model, offline: flags.offline || offlineByEnv, kvBits: kvBits(flags), threads: flags.threads, ...limits };
}
