/**
 * `mlx-dspark benchmark`: every mode on the same prompts, in one process on one loaded pair, with a verdict on their
 * texts (cli.md §6). A mode that cannot run is named and left out.
 */
import { readFile, writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import packageFile from "../../../package.json" with { type: "json" };
import type { ModelInfo } from "../../engine/protocol.ts";
import { defineCliCommand } from "../command.ts";
import { type EngineSession, INTERRUPTED, unlessInterrupted, withEngine } from "../engine-session.ts";
import { CliError } from "../errors.ts";
import { type FlagValues, numberFlag, switchFlag, textFlag } from "../flags.ts";
import { type CliIo, say } from "../io.ts";
import { type LoadedModel, loadModel } from "../load-model.ts";
import { inexactCaches } from "../lossless-report.ts";
import { chosenModel, loadSpec, modelFlags } from "../model-flags.ts";
import { armsFor, type BenchMode, loadMode, parseCaps, parseModes } from "./arms.ts";
import { type BenchmarkReport, benchmarkJson, savedBenchmark } from "./json.ts";
import { type BenchContext, type BenchPrompt, measure, measureAll } from "./measure.ts";
import { PROMPTS, type PromptName, WARMUP } from "./prompts.ts";
import { summarize } from "./summary.ts";
import { detailLines, headerLines, peerLines, tableLines } from "./table.ts";
import { verdictsOf } from "./verdicts.ts";

/** `--modes` and `--caps` take their place. */
const { mode: _mode, "max-draft": _maxDraft, ...sharedFlags } = modelFlags;

export const benchmarkFlags = {
  modes: textFlag({
    help: "what to compare with baseline: auto, dspark, dflash, lookup",
    hint: "A,B",
    defaultText: "dspark,lookup",
  }),
  caps: textFlag({ help: "drafts per round that a drafter is run with", hint: "A,B", defaultText: "2,auto" }),
  trials: numberFlag(1, { min: 1, integer: true }, { help: "runs of everything; use 3+ for quoting" }),
  "max-new-tokens": numberFlag(200, { min: 1, integer: true }, { help: "most tokens of an answer" }),
  prompts: textFlag({ help: "which prompts", hint: "A,B", defaultText: Object.keys(PROMPTS).join(",") }),
  "chat-template": switchFlag("use the model's chat template; --no-chat-template gives it the bare text", true),
  json: textFlag({ help: "write the figures as JSON; - is stdout, the table then goes to stderr", hint: "FILE" }),
  "peer-json": textFlag({ help: "compare with a benchmark that was saved by --json", hint: "FILE" }),
  "verify-lossless": switchFlag("also read every text again, a token at a time, and compare every choice"),
  ...sharedFlags,
};

type BenchmarkFlags = FlagValues<typeof benchmarkFlags>;

export const benchmarkCommand = defineCliCommand({
  name: "benchmark",
  description: "Compare decoding modes on this machine",
  flags: benchmarkFlags,
  run: runBenchmark,
});

async function runBenchmark(flags: BenchmarkFlags, io: CliIo): Promise<number> {
  const modes = parseModes(flags.modes ?? "dspark,lookup");
  const caps = parseCaps(flags.caps ?? "2,auto");
  const names = parsePrompts(flags.prompts);
  const peer =
    flags["peer-json"] === null ? null : savedBenchmark(await peerText(flags["peer-json"]), flags["peer-json"]);
  const target = chosenModel({ ...flags, mode: "auto", "max-draft": null }, io);
  return withEngine(io, async (session) => {
    const loaded = await unlessInterrupted(loadPair(target, modes, flags, io, session), session.signal);
    if (loaded === null) return INTERRUPTED;
    try {
      const { arms, skipped } = armsFor(modes, caps, loaded.model, loaded.refused);
      for (const { mode, reason } of skipped) say(io, `${mode}: skipped (${reason})`);
      const prompts = await encodePrompts(names, flags, loaded, session.signal);
      const context = contextOf(flags, loaded, session);
      await warmUp(context, [...new Map(arms.map((arm) => [arm.mode, arm])).values()], flags, loaded);
      const runs = await measureAll(context, arms, prompts, flags.trials, (trial, prompt) =>
        say(io, `trial ${trial + 1} of ${flags.trials}: ${prompt}`),
      );
      const verdicts = await verdictsOf(context, runs, prompts, {
        inexactCaches: inexactCaches(loaded.model),
        verifyLossless: flags["verify-lossless"],
        onStep: (arm, prompt) => say(io, `reading again: ${arm.label}, ${prompt}`),
      });
      const report: BenchmarkReport = {
        version: io.version,
        device: cpus()[0]?.model ?? "unknown",
        mlx: packageFile.native.mlx,
        model: loaded.model,
        trials: flags.trials,
        maxNewTokens: flags["max-new-tokens"],
        settings: settingsOf(flags, loaded.model),
        summaries: summarize(runs, loaded.model.drafting?.costs ?? null),
        verdicts,
        skipped,
      };
      const lines = [headerLines, tableLines, detailLines].flatMap((part) => [...part(report), ""]);
      if (peer !== null) lines.push(...peerLines(report, peer), "");
      const table = `${lines.join("\n")}\n`;
      await write(report, flags.json, table, io);
      return [...verdicts.values()].every(({ lossless }) => lossless) ? 0 : 1;
    } catch (error) {
      if (session.signal.aborted) return INTERRUPTED;
      throw error;
    }
  });
}

interface LoadedPair extends LoadedModel {
  /** Why the pair has no drafter of the wanted kind; null: it was not asked for, or it is there. */
  readonly refused: string | null;
}

/** A drafter that cannot be had costs its mode, not the benchmark. */
async function loadPair(
  target: string,
  modes: readonly BenchMode[],
  flags: BenchmarkFlags,
  io: CliIo,
  { engine, signal }: EngineSession,
): Promise<LoadedPair> {
  const specFor = (mode: BenchMode) =>
    loadSpec(target, { ...flags, mode, "max-draft": null }, io, { contextWindow: null, maxBatch: 1, maxQueue: 1 });
  const wanted = loadMode(modes);
  say(io, `loading ${wanted}: target=${target}${flags.drafter === null ? "" : `, drafter=${flags.drafter}`}`);
  try {
    return { ...(await loadModel(engine, specFor(wanted), io)), refused: null };
  } catch (error) {
    if (signal.aborted || !(error instanceof CliError) || (wanted !== "dspark" && wanted !== "dflash")) throw error;
    const refused = error.cause instanceof Error ? error.cause.message : error.message;
    const instead = modes.includes("lookup") || modes.includes("auto") ? "lookup" : "baseline";
    return { ...(await loadModel(engine, specFor(instead), io)), refused };
  }
}

function parsePrompts(text: string | null): PromptName[] {
  const all = Object.keys(PROMPTS) as PromptName[];
  if (text === null) return all;
  const words = text.split(",").map((word) => word.trim());
  const chosen = words.map((word) => {
    const name = all.find((known) => known === word);
    if (name === undefined)
      throw new CliError(`--prompts takes ${all.join(", ")} separated by commas, got '${word}'`, 2);
    return name;
  });
  return [...new Set(chosen)];
}

async function peerText(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CliError(`cannot read --peer-json ${file}: ${reason}`, 2, { cause: error });
  }
}

function encode(prompt: string, flags: BenchmarkFlags, { text }: LoadedModel, signal: AbortSignal) {
  if (!flags["chat-template"]) return Promise.resolve(text.encodeCompletion(prompt));
  return text.encodeChat({ messages: [{ role: "user", content: prompt }] }, signal);
}

function encodePrompts(
  names: readonly PromptName[],
  flags: BenchmarkFlags,
  loaded: LoadedModel,
  signal: AbortSignal,
): Promise<BenchPrompt[]> {
  return Promise.all(names.map(async (name) => ({ name, ids: await encode(PROMPTS[name], flags, loaded, signal) })));
}

function contextOf(flags: BenchmarkFlags, { model, text }: LoadedModel, session: EngineSession): BenchContext {
  return {
    engine: session.engine,
    eosIds: [...new Set([...model.eosIds, ...text.eosIds])],
    maxNewTokens: flags["max-new-tokens"],
    contextWindow: model.contextWindow,
    signal: session.signal,
  };
}

/** One run of each mode, not counted: kernels, caches of the allocator, and what the cap controller learns first. */
async function warmUp(
  context: BenchContext,
  arms: Parameters<typeof measureAll>[1],
  flags: BenchmarkFlags,
  loaded: LoadedModel,
): Promise<void> {
  const ids = await encode(WARMUP.prompt, flags, loaded, context.signal);
  const maxNewTokens = Math.min(WARMUP.tokens, context.maxNewTokens);
  for (const arm of arms) await measure({ ...context, maxNewTokens }, ids, arm);
}

/** Every setting with where it comes from. */
function settingsOf(flags: BenchmarkFlags, { drafting, drafter }: ModelInfo): Record<string, string> {
  const given = (forced: boolean) => (forced ? "forced" : "default");
  const lookup = flags["lookup-drafts"];
  const onOff = (on: boolean) => (on ? "on" : "OFF");
  return {
    ...(drafter !== null && {
      "lookup drafts": `${onOff(drafting?.lookupDrafts ?? false)} (${lookup === null ? "pair default" : "forced"})`,
      "drafter bits": `${flags["drafter-bits"]} (${given(flags["drafter-bits"] !== "4")})`,
      "drafter window": `${drafting?.drafterWindow ?? "all"} (${given(flags["drafter-window"] !== 4096)})`,
      confidence: `${flags["confidence-threshold"]} (${given(flags["confidence-threshold"] !== 0)})`,
    }),
    "long lookup": `${flags["lookup-long-draft"]} (${given(flags["lookup-long-draft"] !== 32)})`,
    "kv bits": `${flags["kv-bits"]} (${given(flags["kv-bits"] !== "0")})`,
    threads: flags.threads === null ? "all usable CPUs (default)" : `${flags.threads} (forced)`,
  };
}

async function write(report: BenchmarkReport, file: string | null, table: string, io: CliIo): Promise<void> {
  const json = `${JSON.stringify(benchmarkJson(report), null, 1)}\n`;
  if (file === "-") {
    io.stderr.write(table);
    io.stdout.write(json);
    return;
  }
  io.stdout.write(table);
  if (file === null) return;
  await writeFile(file, json).catch((error: unknown) => {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CliError(`cannot write --json ${file}: ${reason}`, 1, { cause: error });
  });
}
