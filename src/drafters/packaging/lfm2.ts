/** LiquidAI's layout for LFM2.5: taps and mask inside `dflash_config`, rotations often interleaved. drafters.md §3.6. */
import type { ConfigSection } from "../../checkpoint/config-json.ts";
import type { DSparkSettings } from "../settings.ts";
import { readDSpark } from "./deepspec.ts";
import { architectures, type DrafterFolder, FULL } from "./folder.ts";
import { hoisted } from "./specforge.ts";

export function isLfm2(config: ConfigSection): boolean {
  const nested = config.section("dflash_config");
  return (
    architectures(config).some((name) => name.includes("DSpark")) &&
    !config.has("target_layer_ids") &&
    nested?.has("target_layer_ids") === true &&
    !nested.has("projector_type")
  );
}

export function readLfm2(folder: DrafterFolder): DSparkSettings {
  const config = hoisted(folder.config, ["target_layer_ids", "mask_token_id", "block_size"]);
  return readDSpark(folder, config, { layout: "lfm2", mask: () => FULL, logitsStart: 0 });
}
