/**
 * The rotation that a config asks for, from either nesting: `rope_theta` + `rope_scaling`, or `rope_parameters`
 * (transformers ≥ 5). Both are read in every family (models-dense.md §3.3, §3.7).
 */
import type { ConfigSection } from "../checkpoint/config-json.ts";
import type { RopeScaling, RopeSpec } from "../nn/rope.ts";

/** @param thetaDefault base when the config names none; null: it is required */
export function readRope(config: ConfigSection, headDim: number, thetaDefault: number | null): RopeSpec {
  const parameters = config.section("rope_parameters");
  const nested = parameters?.number("rope_theta", null) ?? null;
  const theta = config.number("rope_theta", nested ?? thetaDefault);
  if (theta === null) return config.fail("rope_theta", "is required (a number), here or in rope_parameters");
  const factors = config.numbers("rope_freqs", null);
  const section = config.section("rope_scaling") ?? parameters;
  return {
    dims: headDim,
    traditional: config.bool("rope_traditional", false),
    base: theta,
    scaling: factors !== null ? { kind: "factors", factors } : readScaling(section, config),
  };
}

function readScaling(section: ConfigSection | null, config: ConfigSection): RopeScaling {
  if (section === null) return { kind: "none" };
  const kind = section.string("type", null) ?? section.string("rope_type", "default");
  const maxPositions = () => config.size("max_position_embeddings");
  switch (kind) {
    case "default":
    case "mrope":
      return { kind: "none" };
    case "linear":
      return { kind: "linear", factor: section.number("factor") };
    case "dynamic":
      return { kind: "dynamic", factor: section.number("factor"), maxPositions: maxPositions() };
    case "llama3":
      return {
        kind: "llama3",
        factor: section.number("factor"),
        lowFreqFactor: section.number("low_freq_factor", 1),
        highFreqFactor: section.number("high_freq_factor", 4),
        originalMaxPositions: section.number("original_max_position_embeddings", 8192),
      };
    case "yarn":
      return {
        kind: "yarn",
        factor: section.number("factor"),
        originalMaxPositions: section.number("original_max_position_embeddings", 4096),
        betaFast: section.number("beta_fast", 32),
        betaSlow: section.number("beta_slow", 1),
        mscale: section.number("mscale", 1),
        mscaleAllDim: section.number("mscale_all_dim", 0),
      };
    case "longrope":
      return {
        kind: "longrope",
        longFactor: section.numbers("long_factor"),
        originalMaxPositions: section.number("original_max_position_embeddings"),
        maxPositions: maxPositions(),
        longMscale: section.number("long_mscale", null),
      };
    default:
      return section.fail("rope_type", `unknown rope type ${JSON.stringify(kind)}`);
  }
}
