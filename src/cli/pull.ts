/** `mlx-dspark pull`: downloads a model and its drafter, resuming what is half there, and loads nothing (cli.md §8). */
import { CheckpointError } from "../checkpoint/errors.ts";
import { embeddedModelFile } from "../engine/embedded/files.ts";
import { judge } from "../engine/load-model.ts";
import { HubError } from "../hub/errors.ts";
import type { ModelKind } from "../hub/file-selection.ts";
import type { DownloadProgress } from "../hub/progress.ts";
import { registryRowFor } from "../hub/registry.ts";
import { type ResolvedModel, resolveModel } from "../hub/resolve.ts";
import { defineCliCommand } from "./command.ts";
import type { CommandLine } from "./command-line.ts";
import { INTERRUPTED } from "./engine-session.ts";
import { CliError } from "./errors.ts";
import { type FlagValues, switchFlag, textFlag } from "./flags.ts";
import { type CliIo, STOP_SIGNALS, say } from "./io.ts";
import { ProgressLine } from "./progress.ts";

const pullFlags = {
  drafter: textFlag({ help: "its drafter; none fetches the model alone", hint: "D", defaultText: "the registry's" }),
  json: switchFlag("one JSON object on stdout: where both are"),
};

export const pullCommand = defineCliCommand({
  name: "pull",
  description: "Download a model and its drafter",
  flags: pullFlags,
  shape: { words: [{ name: "MODEL", help: "registry id, owner/repo or gguf:<owner>/<repo>/<file>" }] },
  run: runPull,
});

async function runPull(
  flags: FlagValues<typeof pullFlags>,
  io: CliIo,
  { words }: CommandLine<unknown>,
): Promise<number> {
  const [name = ""] = words;
  const interrupt = new AbortController();
  const unlisten = io.onSignal(STOP_SIGNALS, () => interrupt.abort());
  try {
    const model = await fetched(name, "target", interrupt.signal, io);
    const drafterName = flags.drafter ?? drafterOf(model, name) ?? "none";
    const drafter = drafterName === "none" ? null : await fetched(drafterName, "drafter", interrupt.signal, io);
    if (flags.json) io.stdout.write(`${JSON.stringify({ model: place(model), drafter: drafter && place(drafter) })}\n`);
    else for (const found of [model, ...(drafter === null ? [] : [drafter])]) io.stdout.write(`${place(found).path}\n`);
    return 0;
  } catch (error) {
    if (interrupt.signal.aborted) {
      say(io, "interrupted; what has come is kept, and the same command goes on from there");
      return INTERRUPTED;
    }
    if (error instanceof HubError || error instanceof CheckpointError)
      throw new CliError(error.message, 1, { cause: error });
    throw error;
  } finally {
    unlisten();
  }
}

async function fetched(name: string, kind: ModelKind, signal: AbortSignal, io: CliIo): Promise<ResolvedModel> {
  const progress = new ProgressLine(io.stderr);
  try {
    return await resolveModel(name, {
      ...{ offline: false, kind, refresh: true, signal, env: io.env },
      judge,
      embedded: (id) => embeddedModelFile(id),
      onNotice: (text) => say(io, `note: ${text}`),
      onProgress: (step) => progress.update(loadProgress(step)),
    });
  } finally {
    progress.clear();
  }
}

/** null: nothing to fetch, because there is none or because the program ships with it. */
function drafterOf(model: ResolvedModel, name: string): string | null {
  const row = registryRowFor(model.repo ?? name);
  return row === null || model.source === "embedded" ? null : (row.dspark ?? row.dflash);
}

function place(found: ResolvedModel) {
  const path = "dir" in found ? found.dir : found.file;
  return { path, source: found.source, repo: found.repo ?? null, commit: found.commit ?? null };
}

function loadProgress(step: DownloadProgress) {
  return {
    phase: "download" as const,
    fraction: step.bytes_total > 0 ? step.bytes_done / step.bytes_total : null,
    bytesDone: step.bytes_done,
    bytesTotal: step.bytes_total,
    bytesPerSecond: step.bytes_per_s,
    detail: `${step.repo} (${step.files_done} of ${step.files_total} files)`,
  };
}
