/**
 * From a drafter's folder or GGUF file to a drafter in memory, for one target. Everything that can be refused is refused
 * before a weight is read. No code of a checkpoint is ever run: an `auto_map` is ignored.
 */
import { readModelConfig } from "../checkpoint/config-json.ts";
import { openCheckpoint } from "../checkpoint/safetensors-set.ts";
import { evaluate, int32Array, keep, type MlxArray, scope } from "../mlx/array.ts";
import { BlockLedger } from "../nn/block-ledger.ts";
import type { Compute } from "../nn/compute.ts";
import { makeRope } from "../nn/rope.ts";
import type { TargetParts } from "../nn/target-parts.ts";
import { BlockDrafter } from "./block-drafter.ts";
import { buildBackbone } from "./build-backbone.ts";
import { buildHead } from "./build-heads.ts";
import { DrafterError } from "./errors.ts";
import { readSettings, type WantedMode } from "./packaging/detect.ts";
import { type DrafterFolder, shapeOf } from "./packaging/folder.ts";
import { preparedFolder } from "./packaging/prepare.ts";
import type { DrafterSettings } from "./settings.ts";
import { checkAgainstTarget } from "./target-checks.ts";
import { checkTensors, tensorTable } from "./tensor-table.ts";
import { type DrafterBits, DrafterWeights } from "./weights.ts";

/** Packed to this unless told otherwise. */
export const DRAFTER_BITS: DrafterBits = 4;
/** Context rows that a head without a window of its own attends to; the best of the lengths measured at 32k. */
export const DRAFTER_WINDOW_TOKENS = 4096;

export interface LoadDrafterOptions {
  /** As for the target (nn/select.ts). */
  readonly compute: Compute;
  /** What floats are widened to at load; null keeps the file's. */
  readonly dtype: "float32" | null;
  /** `--drafter-bits`; 0 keeps the checkpoint's precision. */
  readonly bits?: DrafterBits;
  /** `--drafter-window`; 0: the whole context. */
  readonly windowTokens?: number;
  /** A mode that the user insists on. */
  readonly mode?: WantedMode;
  /** Folder below which converted checkpoints are kept (`<root>/drafters`); null: such checkpoints are refused. */
  readonly cacheRoot?: string | null;
  /** Added to tap ids of layouts that count inputs of layers; null: their own. See `tapOffsetFrom`. */
  readonly tapOffset?: number | null;
}

/**
 * The expert switch MLX_DSPARK_TAP_OFFSET, by which the reading of published tap ids can be compared on real weights.
 * @throws RangeError when it is no integer
 */
export function tapOffsetFrom(env: Readonly<Record<string, string | undefined>>): number | null {
  const text = env.MLX_DSPARK_TAP_OFFSET?.trim() ?? "";
  if (text === "") return null;
  if (!/^[+-]?\d{1,3}$/.test(text)) throw new RangeError(`MLX_DSPARK_TAP_OFFSET must be an integer, found "${text}"`);
  return Number(text);
}

/**
 * @param source folder with config.json and safetensors, or a .gguf file
 * @param target what the drafter borrows and is checked against; must outlive the drafter
 * @throws DrafterError when it is no drafter that we run or not one for this target; CheckpointError for damaged files
 */
export function loadDrafter(source: string, target: TargetParts, options: LoadDrafterOptions): BlockDrafter {
  const dir = preparedFolder(source, options.cacheRoot ?? null);
  const folder = openFolder(dir);
  const settings = readSettings(folder, options.mode ?? null, options.tapOffset ?? null);
  checkShape(dir, settings);
  checkAgainstTarget(dir, settings, shapeOf(folder, "fc.weight")?.[1] ?? null, target);
  checkTensors(dir, folder.checkpoint.tensors, tensorTable(settings, target.hiddenSize));
  return build(folder, settings, target, options);
}

function openFolder(dir: string): DrafterFolder {
  const { config } = readModelConfig(dir);
  const opened = openCheckpoint(dir, { drafter: true });
  // Codebooks are parameters without a module; some exports put `.weight` behind them all the same.
  const renamed = [...opened.tensors].map(
    ([name, place]) => [name.replace(/_codebook\.weight$/, "_codebook"), place] as const,
  );
  return { dir, config, checkpoint: { ...opened, tensors: new Map(renamed) } };
}

/** Widths that follow from tensors must be whole. */
function checkShape(dir: string, { backbone }: DrafterSettings): void {
  const { heads, kvHeads, headDim } = backbone;
  if ([heads, kvHeads].every(Number.isInteger) && heads % kvHeads === 0) return;
  throw new DrafterError(dir, "tensors", `heads of ${headDim}: the projections hold ${heads} and ${kvHeads} of them`);
}

function build(
  folder: DrafterFolder,
  settings: DrafterSettings,
  target: TargetParts,
  options: LoadDrafterOptions,
): BlockDrafter {
  const { dir, checkpoint } = folder;
  const { compute, dtype, bits = DRAFTER_BITS, windowTokens = DRAFTER_WINDOW_TOKENS } = options;
  const { offsetNorms, eps } = settings.backbone;
  // Fused blocks keep weights in any precision and compute in float32.
  const vectorDtype = compute.stateLayout === "packed" ? "float32" : dtype;
  const weights = new DrafterWeights(checkpoint, { bits, matrixDtype: dtype, vectorDtype, offsetNorms, eps });
  const ledger = new BlockLedger(compute, (taken) => weights.handOver(taken));
  const rope = makeRope(settings.backbone.rope);
  try {
    const backbone = buildBackbone(settings, weights, ledger.compute, rope, windowTokens);
    const head = buildHead(settings, { dir, weights, target, compute: ledger.compute });
    return new BlockDrafter({
      kind: settings.kind,
      layout: settings.layout,
      taps: settings.taps,
      block: settings.block,
      logitsStart: settings.logitsStart,
      backbone,
      head,
      masks: maskIds(settings),
      bytes: weights.bytes,
      notes: checkpoint.notes,
    });
  } catch (error) {
    ledger.discard();
    weights.discard();
    rope.dispose();
    throw error;
  }
}

function maskIds({ block, maskId }: DrafterSettings): MlxArray {
  return scope(() => {
    const ids = keep(int32Array(Array.from({ length: block - 1 }, () => maskId)));
    evaluate([ids]);
    return ids;
  });
}
