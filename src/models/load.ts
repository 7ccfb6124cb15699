/** From a folder with config.json and safetensors to a model whose weights are in memory. */
import { readModelConfig } from "../checkpoint/config-json.ts";
import { CheckpointError } from "../checkpoint/errors.ts";
import { type QuantizationSpec, resolveQuantization } from "../checkpoint/quantization.ts";
import { checkRemoteCode } from "../checkpoint/remote-code.ts";
import { openCheckpoint } from "../checkpoint/safetensors-set.ts";
import { BlockLedger } from "../nn/block-ledger.ts";
import type { Compute } from "../nn/compute.ts";
import type { StateLayout } from "../nn/layer-state.ts";
import { familyOf, isOurModelType } from "./registry.ts";
import type { TargetModel } from "./target.ts";
import { type ReadOptions, WeightReader } from "./weight-reader.ts";

export interface LoadedTarget {
  readonly model: TargetModel;
  /** The states that its rows need. */
  readonly stateLayout: StateLayout;
  readonly eosIds: readonly number[];
  readonly samplingDefaults: { readonly temperature?: number; readonly topP?: number; readonly topK?: number };
  readonly quantization: QuantizationSpec | null;
  readonly weightBytes: number;
  readonly notes: readonly string[];
}

/**
 * Checks everything that can be checked without reading a weight, then reads tensor by tensor.
 * @throws CheckpointError
 */
export function loadTarget(dir: string, compute: Compute, options: ReadOptions): LoadedTarget {
  const { config, generation, eosIds, notes } = readModelConfig(dir);
  const codeNotes = checkRemoteCode(dir, config, isOurModelType);
  const family = familyOf(config.string("model_type"), config.file);
  const quantization = resolveQuantization(dir, config);
  if (quantization.layout !== "none" && quantization.layout !== "mlx") {
    throw new CheckpointError({
      file: config.file,
      check: "quantization",
      message: `the ${quantization.layout} layout is not read directly: convert the checkpoint to MLX's format first`,
    });
  }
  const checkpoint = openCheckpoint(dir);
  const weights = new WeightReader(checkpoint, quantization, options);
  const ledger = new BlockLedger(compute, (taken) => weights.handOver(taken));
  try {
    const model = family.build(config, weights, ledger.compute);
    weights.finish((name) => family.drops(name, config));
    return {
      model,
      stateLayout: compute.stateLayout,
      eosIds,
      samplingDefaults: samplingDefaults(generation),
      quantization: quantization.defaults,
      weightBytes: weights.residentBytes,
      notes: [...notes, ...codeNotes, ...checkpoint.notes],
    };
  } catch (error) {
    ledger.discard();
    weights.discard();
    throw error;
  }
}

function samplingDefaults(generation: ReturnType<typeof readModelConfig>["generation"]) {
  if (generation === null || !generation.bool("do_sample", true)) return {};
  const temperature = generation.number("temperature", null);
  const topP = generation.number("top_p", null);
  const topK = generation.int("top_k", null);
  return {
    ...(temperature === null ? {} : { temperature }),
    ...(topP === null ? {} : { topP }),
    ...(topK === null ? {} : { topK }),
  };
}
