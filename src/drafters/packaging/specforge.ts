/** SpecForge's and SGLang's layout: a plain qwen3 config with DSpark's keys inside `dflash_config`. drafters.md §3.4. */
import type { ConfigSection } from "../../checkpoint/config-json.ts";
import type { DSparkSettings } from "../settings.ts";
import { readDSpark } from "./deepspec.ts";
import { type DrafterFolder, FULL, withKeys } from "./folder.ts";

export function isSpecForge(config: ConfigSection): boolean {
  return config.section("dflash_config")?.string("projector_type", "") === "dspark";
}

export function readSpecForge(folder: DrafterFolder): DSparkSettings {
  const config = hoisted(folder.config, ["target_layer_ids", "mask_token_id", "block_size", "markov_rank"]);
  // The anchor's slot predicts; the loop that ships with these heads starts one later and accepts half as much.
  return readDSpark(folder, config, { layout: "specforge", mask: () => FULL, logitsStart: 0 });
}

/** Keys of `dflash_config` that the top level lacks, moved there. */
export function hoisted(config: ConfigSection, keys: readonly string[]): ConfigSection {
  const nested = config.section("dflash_config");
  const moved = keys.filter((key) => !config.has(key) && nested?.has(key));
  return withKeys(config, Object.fromEntries(moved.map((key) => [key, nested?.value(key)])));
}
