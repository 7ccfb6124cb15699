/** A drafter's folder as the packagings see it, and reads that they share. */
import { ConfigSection } from "../../checkpoint/config-json.ts";
import type { JsonObject } from "../../checkpoint/json.ts";
import type { Checkpoint } from "../../checkpoint/safetensors-set.ts";
import type { RopeScaling, RopeSpec } from "../../nn/rope.ts";
import { DrafterError } from "../errors.ts";
import type { LayerMask } from "../settings.ts";

export interface DrafterFolder {
  readonly dir: string;
  readonly config: ConfigSection;
  readonly checkpoint: Checkpoint;
}

/** Sees everything. */
export const FULL: LayerMask = { window: null, causal: false, windowsBlock: true };

/** Default base of rotations (drafters.md §3). */
const THETA = 1e6;

/** Shape of a tensor, or null when it is not there. */
export function shapeOf({ checkpoint }: DrafterFolder, name: string): readonly number[] | null {
  return checkpoint.tensors.get(name)?.shape ?? null;
}

/** The same file's config with keys replaced or added. */
export function withKeys(config: ConfigSection, keys: JsonObject): ConfigSection {
  return new ConfigSection(config.file, { ...config.json, ...keys }, config.prefix);
}

/** @throws DrafterError naming all keys that are missing */
export function requireKeys(dir: string, config: ConfigSection, keys: readonly string[], what: string): void {
  const missing = keys.filter((key) => !config.has(key));
  if (missing.length === 0) return;
  throw new DrafterError(dir, "missing-keys", `${what} needs ${missing.join(", ")} in ${config.file}`);
}

/** Architectures of the config; [] when it names none. */
export function architectures(config: ConfigSection): readonly string[] {
  return config.strings("architectures", []);
}

/** Target layers as integers. */
export function layerIds(config: ConfigSection, key: string): readonly number[] {
  const ids = config.numbers(key);
  if (!ids.every(Number.isInteger)) config.fail(key, "must be a list of layer numbers");
  return ids;
}

/**
 * The rotation of a drafter's heads, from its own config: theta and an optional YaRN or linear scaling.
 * @param dims rotated features
 */
export function readRope(config: ConfigSection, dims: number): RopeSpec {
  const parameters = config.section("rope_parameters");
  const base = parameters?.number("rope_theta", null) ?? config.number("rope_theta", THETA);
  const neox = config.bool("rope_is_neox_style", config.bool("is_neox_style", true));
  const kinds = [config.section("rope_scaling"), parameters];
  const scaling = kinds.map(readScaling).find((found) => found.kind !== "none") ?? { kind: "none" };
  return { dims, traditional: !neox, base, scaling };
}

function readScaling(section: ConfigSection | null): RopeScaling {
  if (section === null) return { kind: "none" };
  const kind = section.string("rope_type", null) ?? section.string("type", "default");
  switch (kind) {
    case "default":
    case "mrope":
      return { kind: "none" };
    case "linear":
      return { kind: "linear", factor: section.number("factor") };
    case "yarn":
      return {
        kind: "yarn",
        factor: section.number("factor"),
        originalMaxPositions: section.number("original_max_position_embeddings", 4096),
        betaFast: section.number("beta_fast", 32),
        betaSlow: section.number("beta_slow", 1),
        mscale: 1,
        mscaleAllDim: 0,
      };
    default:
      return section.fail(
        "rope_type",
        `${JSON.stringify(kind)} is not read in a drafter (default, linear and yarn are)`,
      );
  }
}

/**
 * Gemma-4's proportional rotation: pairs over the whole head, of which only the first part turns.
 * @param share of the pairs that turn
 */
export function proportionalRope(headDim: number, base: number, share: number): RopeSpec {
  const turning = Math.floor((share * headDim) / 2);
  const factors = Array.from({ length: headDim / 2 }, (_, pair) => (pair < turning ? 1 : Number.POSITIVE_INFINITY));
  return { dims: headDim, traditional: false, base, scaling: { kind: "factors", factors } };
}
