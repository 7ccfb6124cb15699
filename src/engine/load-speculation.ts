/**
 * From the spec's wishes to a speculator for a loaded target: which mode, which drafter, what drafts cost on this machine.
 * In `auto` whatever is missing only lowers the mode; what was asked for by name and cannot be had is an error.
 */
import { cpus, release } from "node:os";
import { basename } from "node:path";
import { CheckpointError } from "../checkpoint/errors.ts";
import { openCheckpoint } from "../checkpoint/safetensors-set.ts";
import { calibrate, calibrationPlan, fallbackCap } from "../decoding/calibrate.ts";
import { calibrationKey, weightFingerprint } from "../decoding/calibration-key.ts";
import { CalibrationStore, costsOf } from "../decoding/calibration-store.ts";
import { type CalibratedPair, PairWork, tapDifference } from "../decoding/calibration-work.ts";
import { CapController } from "../decoding/cap-controller.ts";
import { CostCurves } from "../decoding/cost-curves.ts";
import { Speculator } from "../decoding/speculator.ts";
import type { Drafter } from "../drafters/drafter.ts";
import { loadDrafter, tapOffsetFrom } from "../drafters/load.ts";
import { cacheRoot } from "../hub/cache-root.ts";
import { HubError } from "../hub/errors.ts";
import { type RegistryRow, registryRowFor } from "../hub/registry.ts";
import { resolveModel } from "../hub/resolve.ts";
import { cpuThreads } from "../mlx/cpu.ts";
import { device, kernelsFingerprint, mlxVersion } from "../mlx/native.ts";
import type { LoadedTarget } from "../models/load.ts";
import type { TargetModel } from "../models/target.ts";
import type { ComputeChoice } from "../nn/select.ts";
import { keptBandwidth, measureBandwidth } from "./bandwidth.ts";
import { downloadNumbers } from "./download-progress.ts";
import { embeddedDrafterFolder } from "./embedded/files.ts";
import type { LoadProgress, LoadSpec, ModelInfo } from "./protocol.ts";

export interface SpeculationContext {
  readonly spec: LoadSpec;
  readonly target: LoadedTarget;
  readonly compute: ComputeChoice;
  /** Folder of the target. */
  readonly dir: string;
  /** Repository, or the name that was asked for: what the registry is searched by. */
  readonly targetName: string;
  readonly vocab: number;
  readonly signal: AbortSignal;
  readonly report: (phase: LoadProgress["phase"], detail: string, part?: Partial<LoadProgress>) => void;
  readonly note: (text: string) => void;
}

export interface Speculation {
  /** null: baseline. */
  readonly speculator: Speculator | null;
  readonly mode: ModelInfo["mode"];
  readonly drafterName: string | null;
}

const NONE: Speculation = { speculator: null, mode: "baseline", drafterName: null };
/** Where a tapped forward may differ from the plain one: nowhere but in rounding. */
const TAP_TOLERANCE = 1e-3;
/** Longest base draft of lookup alone. */
const LOOKUP_CAP = 32;
/** Total rows whose cost is measured at least: long lookup drafts are priced by it. */
const ROWS_MEASURED_MIN = 33;
/** Of context when its cost is measured; below, the difference to the calibration depth is too small to be seen. */
const DEPTH_MIN = 1536;
const DEPTH_MAX = 4096;
/** Keys and values that this may take for a moment. */
const DEPTH_BYTES_MAX = 512 << 20;

/** @throws CheckpointError, DrafterError, HubError, MlxError, or the signal's reason */
export async function loadSpeculation(context: SpeculationContext): Promise<Speculation> {
  const wishes = context.spec.speculation;
  if (wishes.mode === "baseline") return NONE;
  const found = wishes.mode === "lookup" ? null : await findDrafter(context);
  if (found === null) return { speculator: await lookupOnly(context), mode: "lookup", drafterName: null };
  const { compute, target } = context;
  context.report("load", `loading the drafter ${found.name}`);
  const drafter = loadDrafter(found.path, target.model, {
    compute: compute.compute,
    dtype: compute.dtype,
    bits: wishes.drafterBits,
    windowTokens: wishes.drafterWindow,
    cacheRoot: cacheRoot(),
    tapOffset: tapOffsetFrom(process.env),
    ...(wishes.mode === "dspark" || wishes.mode === "dflash" ? { mode: wishes.mode } : {}),
  });
  try {
    for (const text of drafter.notes) context.note(text);
    const pair = pairOf(context, drafter);
    const off = tapDifference(pair, drafter.taps);
    if (!(off <= TAP_TOLERANCE)) {
      throw new CheckpointError({
        file: context.dir,
        check: "config",
        message: `a tapped forward differs from the plain one by ${off}: use --mode lookup or baseline`,
      });
    }
    const mode = drafter.kind === "dspark" ? "dspark" : "dflash";
    const curves = await measuredCurves(context, pair, mode, found.path);
    const { maxDraft, lookupDrafts, lookupLongDraft, confidenceThreshold } = wishes;
    const pinned = typeof maxDraft === "number" ? maxDraft : null;
    const controller = curves === null ? fallbackCap(mode, drafter.maxDraft) : newController(curves, drafter.maxDraft);
    const speculator = new Speculator({
      drafter,
      cap: pinned ?? controller,
      curves,
      // In dflash the block is long and wide itself: lookup only when it is asked for.
      lookup: lookupDrafts ?? mode === "dspark",
      longDraft: lookupLongDraft,
      confidenceThreshold,
    });
    return { speculator, mode, drafterName: found.name };
  } catch (error) {
    drafter.dispose();
    throw error;
  }
}

function newController(curves: CostCurves, maxCap: number): CapController {
  return new CapController(curves, { maxCap });
}

async function lookupOnly(context: SpeculationContext): Promise<Speculator> {
  const curves = await measuredCurves(context, pairOf(context, null), "lookup", null);
  return new Speculator({
    drafter: null,
    cap: 0,
    curves,
    lookup: true,
    longDraft: context.spec.speculation.lookupLongDraft,
    confidenceThreshold: 0,
  });
}

function pairOf({ target, spec, vocab }: SpeculationContext, drafter: Drafter | null): CalibratedPair {
  return { model: target.model, layout: target.stateLayout, kvBits: spec.kvBits, vocab, drafter };
}

interface FoundDrafter {
  /** Folder or GGUF file. */
  readonly path: string;
  readonly name: string;
}

/** An explicit drafter, else the registry's; null in `auto` when there is none at hand. */
async function findDrafter(context: SpeculationContext): Promise<FoundDrafter | null> {
  const { mode, drafter } = context.spec.speculation;
  if (drafter !== null) return fetchDrafter(context, drafter);
  const row = registryRowFor(context.targetName);
  const embedded = row === null || mode === "dflash" ? null : embeddedDrafterFolder(row.id);
  if (embedded !== null && row !== null) return { path: embedded, name: `${row.id}-dspark` };
  const repo = knownDrafter(context.targetName, mode);
  if (repo === null) return null;
  try {
    return await fetchDrafter(context, repo);
  } catch (error) {
    if (mode !== "auto" || !(error instanceof HubError) || error.kind === "cancelled") throw error;
    context.note(`no drafter (${error.message}): drafting by lookup`);
    return null;
  }
}

/**
 * The registry's drafter of a target; null in `auto` when it has none.
 * @throws HubError `not_found` when the mode needs one
 */
export function knownDrafter(targetName: string, mode: LoadSpec["speculation"]["mode"]): string | null {
  const row = registryRowFor(targetName);
  const repo = row === null ? null : registeredDrafter(row, mode);
  if (repo !== null || mode === "auto") return repo;
  throw new HubError(
    "not_found",
    `no ${mode} drafter is known for ${targetName}: name one with --drafter, or use --mode auto or lookup`,
  );
}

function registeredDrafter(row: RegistryRow, mode: LoadSpec["speculation"]["mode"]): string | null {
  if (mode === "dspark") return row.dspark;
  if (mode === "dflash") return row.dflash;
  return row.dspark ?? row.dflash;
}

async function fetchDrafter(context: SpeculationContext, name: string): Promise<FoundDrafter> {
  const { spec, signal, report } = context;
  const found = await resolveModel(name, {
    kind: "drafter",
    offline: spec.offline,
    signal,
    onNotice: context.note,
    onProgress: (progress) => report("download", `downloading the drafter ${progress.repo}`, downloadNumbers(progress)),
  });
  const path = "dir" in found ? found.dir : found.file;
  return { path, name: basename(found.repo ?? path) };
}

/** Cost curves from the store, else measured now and kept; null when they could not be had, which costs only speed. */
async function measuredCurves(
  context: SpeculationContext,
  pair: CalibratedPair,
  mode: "dspark" | "dflash" | "lookup",
  drafterPath: string | null,
): Promise<CostCurves | null> {
  const { spec, report, signal } = context;
  const store = new CalibrationStore(cacheRoot(), context.note);
  try {
    const key = calibrationKey({
      device: `${device} ${context.compute.description} ${cpus()[0]?.model ?? ""}`,
      cores: cpuThreads(),
      osMajor: Number.parseInt(release(), 10) || 0,
      power: "ac",
      mlxVersion: mlxVersion(),
      kernels: kernelsFingerprint(),
      mode,
      target: fingerprint(context.dir, false),
      drafter: drafterPath === null || drafterPath.endsWith(".gguf") ? drafterPath : fingerprint(drafterPath, true),
      drafterBits: drafterPath === null ? null : spec.speculation.drafterBits,
      context: 512,
      kvBits: spec.kvBits === 0 ? null : spec.kvBits,
      tags: [],
    });
    if (keptBandwidth(cacheRoot()) === null) {
      report("warmup", "measuring the memory of this machine (once)");
      measureBandwidth(cacheRoot());
    }
    const kept = store.load(key);
    if (kept !== null) return new CostCurves(costsOf(kept));
    report("warmup", "measuring what drafts cost on this machine (once)");
    const maxCap = pair.drafter?.maxDraft ?? LOOKUP_CAP;
    const maxBatch = Math.max(spec.maxBatch, Math.ceil(ROWS_MEASURED_MIN / (maxCap + 1)));
    const depths = depthsFor(pair.model, spec.kvBits);
    const plan = calibrationPlan({ maxCap, maxBatch, wholeBlock: pair.drafter?.kind !== "dspark", depths });
    const work = new PairWork(pair);
    try {
      const { entry, problems } = await calibrate(work, plan, {
        between: async (done, of) => {
          report("warmup", "measuring what drafts cost on this machine (once)", { fraction: done / of });
          await new Promise((resolve) => setImmediate(resolve));
          signal.throwIfAborted();
        },
      });
      signal.throwIfAborted();
      for (const problem of problems) context.note(`calibration: ${problem}`);
      if (entry === null) return null;
      store.save(key, entry);
      return new CostCurves(costsOf(entry));
    } finally {
      work.dispose();
    }
  } catch (error) {
    signal.throwIfAborted();
    context.note(`calibration failed: ${error instanceof Error ? error.message : String(error)}`);
    return null;
  }
}

/** Where the cost of context is measured, a second time: as deep as the model and some memory allow. */
function depthsFor({ kvValuesPerToken, maxPositions }: TargetModel, kvBits: 0 | 4 | 8): number[] {
  const bytes = kvValuesPerToken * (kvBits === 0 ? 4 : kvBits / 8);
  const room = bytes === 0 ? 0 : Math.floor(DEPTH_BYTES_MAX / bytes);
  const depth = Math.min(DEPTH_MAX, room, (maxPositions ?? DEPTH_MAX) - ROWS_MEASURED_MIN);
  return depth < DEPTH_MIN ? [] : [depth];
}

function fingerprint(dir: string, drafter: boolean): string {
  const { tensors } = openCheckpoint(dir, { drafter });
  return weightFingerprint([...tensors].map(([name, { shape, dtype }]) => ({ name, shape, dtype })));
}
