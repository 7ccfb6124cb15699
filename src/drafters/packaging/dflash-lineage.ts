/**
 * DSpark heads on DFlash's backbone (Nemotron): causal blocks, sinks and one window for all layers, stated in keys of
 * DFlash's config. drafters.md §3.2.
 */
import type { ConfigSection } from "../../checkpoint/config-json.ts";
import type { DSparkSettings } from "../settings.ts";
import { readDSpark, statedLogitsStart } from "./deepspec.ts";
import type { DrafterFolder } from "./folder.ts";

/** True when one of the keys is there that make a head one of this lineage. */
export function isDFlashLineage(config: ConfigSection): boolean {
  return (
    config.has("dflash_config") ||
    config.bool("dflash_query_causal", false) ||
    config.bool("attention_sink_bias", false)
  );
}

export function readDFlashLineage(folder: DrafterFolder): DSparkSettings {
  const { config } = folder;
  const nested = config.section("dflash_config");
  const causal = config.bool("dflash_query_causal", false) || (nested?.bool("causal", false) ?? false);
  const slides = nested?.bool("use_swa", false) ?? false;
  const nestedWindow = slides ? (nested?.size("swa_window_size", null) ?? null) : null;
  const window = config.size("sliding_window", nestedWindow);
  return readDSpark(folder, config, {
    layout: "dflash-lineage",
    mask: () => ({ window, causal, windowsBlock: true }),
    logitsStart: statedLogitsStart(config),
  });
}
