/**
 * From the name in a LoadSpec to a model in memory: resolve (and download), convert a GGUF, load, each with progress.
 * Runs on the engine thread; the long parts yield to its event loop, so that a cancelled load stops.
 */
import { basename } from "node:path";
import { kvStates } from "../cache/state-factory.ts";
import { readModelConfig } from "../checkpoint/config-json.ts";
import { resolveQuantization } from "../checkpoint/quantization.ts";
import { checkRemoteCode } from "../checkpoint/remote-code.ts";
import { openCheckpoint } from "../checkpoint/safetensors-set.ts";
import { vocabularySize } from "../checkpoint/vocabulary.ts";
import type { GrammarCompiler } from "../decoding/constraint.ts";
import type { Speculator } from "../decoding/speculator.ts";
import type { Drafter } from "../drafters/drafter.ts";
import { cacheRoot } from "../hub/cache-root.ts";
import type { CheckpointPreview } from "../hub/download.ts";
import { conversionDir, convertGguf } from "../hub/gguf/convert-gguf.ts";
import { type ResolvedModel, resolveModel } from "../hub/resolve.ts";
import { setCpuThreads } from "../mlx/cpu.ts";
import { mlxVersion } from "../mlx/native.ts";
import { type LoadedTarget, loadTarget } from "../models/load.ts";
import { familyOf, isOurModelType } from "../models/registry.ts";
import { chooseCompute } from "../nn/select.ts";
import { keptBandwidth } from "./bandwidth.ts";
import { downloadNumbers, downloadText } from "./download-progress.ts";
import { contextNote, fittingWindow, workingSetBytes } from "./fitting-window.ts";
import { expertsOf, footprint } from "./footprint.ts";
import type { GrammarMeter } from "./grammar/metrics.ts";
import { GrammarPool } from "./grammar/pool.ts";
import { loadSpeculation, type Speculation } from "./load-speculation.ts";
import type { DraftingInfo, LoadProgress, LoadSpec, ModelInfo, WeightFootprint } from "./protocol.ts";

export interface LoadContext {
  readonly onProgress: (progress: LoadProgress) => void;
  /** After each piece of the weights: reading them keeps the thread to itself, but for what is done here. */
  readonly onTensor?: () => void;
  readonly signal: AbortSignal;
  /** Path of the GGUF that is shipped with the program; null: not in this build. */
  readonly embedded: (id: string) => Promise<string> | null;
  /** Counts what the model's grammars do. */
  readonly grammars?: GrammarMeter;
}

export interface ReadyModel {
  readonly target: LoadedTarget;
  /** null: nothing is drafted. */
  readonly speculator: Speculator | null;
  readonly info: ModelInfo;
  /** Logits beyond this are padding. */
  readonly vocab: number;
  /** null: no tokenizer to compile grammars for. */
  readonly grammars: GrammarCompiler | null;
}

/** Context window of a model whose config names none, in tokens. */
const UNKNOWN_WINDOW = 8192;

/** @throws CheckpointError, HubError, MlxError, or the signal's reason */
export async function loadModel(spec: LoadSpec, context: LoadContext): Promise<ReadyModel> {
  const notes: string[] = [];
  const report = (phase: LoadProgress["phase"], detail: string, part: Partial<LoadProgress> = {}) =>
    context.onProgress({
      phase,
      detail,
      fraction: null,
      bytesDone: null,
      bytesTotal: null,
      bytesPerSecond: null,
      ...part,
    });
  report("resolve", `looking for ${spec.model}`);
  const found = await resolveModel(spec.model, {
    offline: spec.offline,
    signal: context.signal,
    embedded: context.embedded,
    judge,
    onNotice: (text) => notes.push(text),
    onProgress: (progress) => report("download", downloadText(progress), downloadNumbers(progress)),
  });
  const dir = "dir" in found ? found.dir : await convert(found.file, report, context.signal, notes);
  context.signal.throwIfAborted();
  report("load", `loading ${basename(dir)}`);
  // The pool is the process's: a load without a wish must not inherit that of the load before.
  setCpuThreads(spec.threads);
  const compute = chooseCompute(process.env);
  const target = loadTarget(dir, compute.compute, {
    dtype: compute.dtype,
    onBytes: (done, total) => {
      report("load", `loading ${basename(dir)}`, { fraction: done / total, bytesDone: done, bytesTotal: total });
      context.onTensor?.();
      context.signal.throwIfAborted();
    },
  });
  let drafter: Drafter | null = null;
  try {
    const vocab = Math.min(vocabularySize(dir) ?? target.model.vocabSize, target.model.vocabSize);
    const speculation = await loadSpeculation({
      spec,
      target,
      compute,
      dir,
      vocab,
      targetName: found.repo ?? spec.model,
      signal: context.signal,
      report,
      note: (text) => notes.push(text),
    });
    drafter = speculation.speculator?.drafter ?? null;
    const info = describe({ target, speculation, backend: compute.description, spec, found, dir, vocab, notes });
    return {
      target,
      speculator: speculation.speculator,
      info,
      vocab,
      grammars: new GrammarPool({ dir, vocabSize: vocab, ...(context.grammars && { meter: context.grammars }) }),
    };
  } catch (error) {
    drafter?.dispose();
    target.model.dispose();
    throw error;
  }
}

interface Described {
  readonly target: LoadedTarget;
  readonly speculation: Speculation;
  readonly backend: string;
  readonly spec: LoadSpec;
  readonly found: ResolvedModel;
  readonly dir: string;
  readonly vocab: number;
  readonly notes: readonly string[];
}

/** What is told of a loaded model. @throws RangeError when the model does not fit the spec's options */
function describe({ target, speculation, backend, spec, found, dir, vocab, notes }: Described): ModelInfo {
  const { model } = target;
  // States are made per request; what they refuse is refused here, once.
  for (const state of model.newStates(kvStates(spec.kvBits, target.stateLayout), 1)) state.dispose();
  const kvBits = spec.kvBits === 0 ? 32 : spec.kvBits;
  const kvBytesPerToken = (model.kvValuesPerToken * kvBits) / 8;
  const own = model.maxPositions ?? UNKNOWN_WINDOW;
  const resident = target.weightBytes + (speculation.speculator?.drafter?.bytes ?? 0);
  const wanted =
    spec.contextWindow === "auto"
      ? fittingWindow({ resident, kvBytesPerToken, rows: spec.maxBatch }, workingSetBytes())
      : spec.contextWindow;
  const window = Math.min(own, wanted ?? own);
  const tight = contextNote({ resident, kvBytesPerToken, rows: 1 }, window, workingSetBytes());
  return {
    id: shownName(found, spec.model),
    requested: spec.model,
    dir,
    family: model.family,
    mode: speculation.mode,
    drafter: speculation.drafterName,
    drafting: speculation.speculator === null ? null : draftingInfo(speculation.speculator, spec),
    vocabSize: vocab,
    contextWindow: window,
    eosIds: target.eosIds,
    samplingDefaults: target.samplingDefaults,
    weightBytes: target.weightBytes,
    footprint: footprintOf(dir, target.weightBytes),
    bandwidth: keptBandwidth(cacheRoot()),
    mlx: mlxVersion(),
    kvBytesPerToken,
    backend,
    quantization: target.quantization === null ? null : quantizationText(target.quantization),
    notes: [...notes, ...target.notes, ...(tight === null ? [] : [tight])],
  };
}

function footprintOf(dir: string, residentBytes: number): WeightFootprint {
  const { tensors } = openCheckpoint(dir);
  const sizes = [...tensors].map(([name, { bytes }]) => [name, bytes] as const);
  return footprint(sizes, expertsOf(readModelConfig(dir).config), residentBytes);
}

function draftingInfo(speculator: Speculator, { speculation }: LoadSpec): DraftingInfo {
  const { drafter, cap, curves, lookup, confidenceThreshold } = speculator.options;
  const costs = curves?.costs;
  const window = drafter?.kind === "dspark" ? speculation.drafterWindow : 0;
  return {
    maxDraft: typeof cap === "number" ? speculator.cap : "auto",
    lookupDrafts: lookup,
    confidenceThreshold,
    drafterWindow: window > 0 ? window : null,
    drafterBytes: drafter?.bytes ?? 0,
    costs:
      costs === undefined
        ? null
        : {
            verify: costs.verify,
            drafter: costs.drafter,
            overhead: costs.overhead ?? 0,
            plain: costs.plain ?? null,
            depth0: curves?.depth0 ?? 0,
            depthSlope: costs.depthSlope ?? null,
          },
  };
}

/** Refuses what would be refused at load before any weight is fetched. */
export function judge(preview: CheckpointPreview): void {
  if (preview.dir === null) return;
  const { config } = readModelConfig(preview.dir);
  checkRemoteCode(preview.dir, config, isOurModelType);
  familyOf(config.string("model_type"), config.file);
  resolveQuantization(preview.dir, config);
}

async function convert(
  file: string,
  report: (phase: LoadProgress["phase"], detail: string, part?: Partial<LoadProgress>) => void,
  signal: AbortSignal,
  notes: string[],
): Promise<string> {
  const text = `converting ${basename(file)} (once)`;
  const { dir, notes: losses } = await convertGguf(file, conversionDir(cacheRoot(), file), {
    signal,
    onProgress: ({ bytesDone, bytesTotal }) =>
      report("convert", text, { fraction: bytesDone / bytesTotal, bytesDone, bytesTotal }),
  });
  notes.push(...losses);
  return dir;
}

/** The last part of the repository or path, as clients see it. */
function shownName(found: ResolvedModel, requested: string): string {
  if (found.repo !== undefined) return basename(found.repo);
  return basename("dir" in found ? found.dir : found.file).replace(/\.gguf$/i, "") || requested;
}

function quantizationText({ bits, groupSize, mode }: { bits: number; groupSize: number; mode: string }): string {
  return mode === "affine" ? `${bits}-bit, groups of ${groupSize}` : mode;
}
