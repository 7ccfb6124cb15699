/** What a family file exports: which model types it serves, and how a model of it is built from config and weights. */
import type { ConfigSection } from "../checkpoint/config-json.ts";
import type { Compute } from "../nn/compute.ts";
import type { TargetModel } from "./target.ts";
import type { WeightReader } from "./weight-reader.ts";

export interface Family {
  /** The family's name, and the `model_type`s that it serves. */
  readonly name: string;
  readonly modelTypes: readonly string[];
  build(config: ConfigSection, weights: WeightReader, compute: Compute): TargetModel;
  /** Tensors that such checkpoints hold and the model does not use. */
  drops(name: string, config: ConfigSection): boolean;
}
