/**
 * Which layout a drafter's folder has, in an order in which no test is fooled by an earlier layout's keys, and the
 * refusal of everything that looks like a drafter and is none of ours, by its name. drafters.md §7.
 */
import { DrafterError } from "../errors.ts";
import type { DrafterSettings } from "../settings.ts";
import { readDeepSpec } from "./deepspec.ts";
import { isDFlashLineage, readDFlashLineage } from "./dflash-lineage.ts";
import { architectures, type DrafterFolder, shapeOf } from "./folder.ts";
import { isLfm2, readLfm2 } from "./lfm2.ts";
import { isSpecForge, readSpecForge } from "./specforge.ts";
import { isSpeculators, readSpeculators, speculatorsAlgorithms } from "./speculators.ts";
import { isDFlash2, readDFlash } from "./zlab-dflash.ts";

/** A mode that the user insists on; null: whatever the folder is. */
export type WantedMode = "dspark" | "dflash" | null;

/** From this block size on, a DFlash head with Markov tensors and no confidence head is not a mislabelled DSpark. */
const HYBRID_BLOCK = 16;

/**
 * @param tapOffset for layouts that count inputs of layers; null: their own
 * @throws DrafterError
 */
export function readSettings(folder: DrafterFolder, wanted: WantedMode, tapOffset: number | null): DrafterSettings {
  const { dir } = folder;
  if (!isSpeculators(folder.config)) refuseOthers(folder, wanted);
  const settings = resolved(folder, tapOffset);
  if (wanted !== null && wanted !== (settings.kind === "dspark" ? "dspark" : "dflash")) {
    const message = `--mode ${wanted} was asked for, but this is a ${settings.kind} drafter; leave the mode at auto`;
    throw new DrafterError(dir, "mode", message);
  }
  return settings;
}

function resolved(folder: DrafterFolder, tapOffset: number | null): DrafterSettings {
  const { config, dir } = folder;
  if (isSpeculators(config)) {
    const other = speculatorsAlgorithms(config).find((name) => name !== "dspark");
    if (other !== undefined) throw new DrafterError(dir, "algorithm", algorithmMessage(other));
    return readSpeculators(folder, tapOffset ?? undefined);
  }
  const names = architectures(config);
  if (isDFlash2(config)) return readDFlash(folder);
  if (isSpecForge(config)) return readSpecForge(folder);
  if (isLfm2(config)) return readLfm2(folder);
  const isDSpark = markovRank(folder) > 0 || names.some((name) => name.includes("DSpark"));
  if (!isDSpark && (names.includes("DFlashDraftModel") || config.has("dflash_config"))) return readDFlash(folder);
  return isDFlashLineage(config) ? readDFlashLineage(folder) : readDeepSpec(folder);
}

function algorithmMessage(algorithm: string): string {
  return (
    `is a speculators checkpoint of the algorithm ${JSON.stringify(algorithm)}; only dspark is translated. ` +
    "Use --mode dflash with a z-lab head, or --mode lookup (or auto without a drafter)"
  );
}

/** Rank of the Markov head, by tensor or by the top level of the config; 0: none. */
function markovRank(folder: DrafterFolder): number {
  return shapeOf(folder, "markov_head.markov_w1.weight")?.[1] ?? folder.config.int("markov_rank", 0);
}

/** Layouts that are known and not run. */
function refuseOthers(folder: DrafterFolder, wanted: WantedMode): void {
  const { config, dir, checkpoint } = folder;
  const refuse = (reason: DrafterError["reason"], message: string): never => {
    throw new DrafterError(dir, reason, message);
  };
  const names = architectures(config);
  const named = (part: string) => names.find((name) => name.toLowerCase().includes(part));
  if (config.keys().some((key) => key.startsWith("dspark_")) && !config.has("block_size")) {
    refuse(
      "embedded",
      "is a full target model with an embedded drafter, not a standalone one; use a separate DSpark drafter, or --mode lookup",
    );
  }
  const eagleKey = ["eagle_config", "eagle_aux_hidden_state_layer_ids"].find((key) => config.has(key));
  const eagle = named("eagle") ?? eagleKey;
  if (eagle !== undefined) refuse("eagle", `is an EAGLE drafter (${eagle}), which is not run; ${OTHERS}`);
  const medusa = named("medusa");
  if (medusa !== undefined) refuse("medusa", `is a Medusa drafter (${medusa}), which is not run; ${OTHERS}`);
  const mtp = names.find((name) => name.includes("MTP"));
  if (mtp !== undefined) refuse("mtp", `is an MTP drafter (${mtp}), which is not run; ${OTHERS}`);
  const tensors = [...checkpoint.tensors.keys()];
  const dfly =
    names.find((name) => name.startsWith("DFly")) ??
    tensors.find((name) => name.startsWith("layer_fusion_weights") || name.startsWith("hidden_correction."));
  if (dfly !== undefined) refuse("dfly", `is a DFly drafter (${dfly}), which is not supported; ${OTHERS}`);
  refuseHybrid(folder, wanted);
}

const OTHERS = "use a DSpark or DFlash drafter, or --mode lookup";

function refuseHybrid(folder: DrafterFolder, wanted: WantedMode): void {
  const { config, dir } = folder;
  const rank = markovRank(folder);
  if (rank === 0) return;
  const block = config.size("block_size", config.section("dflash_config")?.size("block_size", null) ?? 0);
  const labelled = architectures(config).includes("DFlashDraftModel");
  const noConfidence = shapeOf(folder, "confidence_head.proj.weight") === null;
  if (wanted === "dflash" || (labelled && block >= HYBRID_BLOCK && noConfidence)) {
    const message = `is a DFlash drafter with a Markov head of rank ${rank}; such hybrids are not run, ${OTHERS}`;
    throw new DrafterError(dir, "hybrid", message);
  }
}
