/** What a decode step reads of a checkpoint's weights (memory.md §8): experts by share, an untied embedding not at all. */
import type { ConfigSection } from "../checkpoint/config-json.ts";
import type { WeightFootprint } from "./protocol.ts";

const EXPERTS = ["num_experts", "num_local_experts", "n_routed_experts"];
const PER_TOKEN = ["num_experts_per_tok", "experts_per_token"];

/** Experts of a config, in its text part or at its top. */
export function expertsOf(config: ConfigSection): { readonly experts: number; readonly perToken: number | null } {
  const sections = [config.section("text_config"), config].filter((section) => section !== null);
  const first = (keys: readonly string[]) => {
    for (const section of sections) {
      for (const key of keys) {
        const value = section.value(key);
        if (typeof value === "number") return value;
      }
    }
    return null;
  };
  const experts = first(EXPERTS) ?? 0;
  return { experts: experts > 1 ? experts : 0, perToken: experts > 1 ? first(PER_TOKEN) : null };
}

/**
 * @param tensors names with their bytes in the file
 * @param residentBytes what they take once loaded: all parts are scaled by it
 */
export function footprint(
  tensors: Iterable<readonly [name: string, bytes: number]>,
  { experts, perToken }: { readonly experts: number; readonly perToken: number | null },
  residentBytes: number,
): WeightFootprint {
  let [total, expert, embed] = [0, 0, 0];
  let tied = true;
  for (const [name, bytes] of tensors) {
    total += bytes;
    if (experts > 0 && isExpert(name)) expert += bytes;
    if (name.includes("embed_tokens")) embed += bytes;
    if (/(?:^|\.)lm_head\./.test(name)) tied = false;
  }
  const share = experts > 0 && perToken !== null ? Math.min(1, perToken / experts) : 1;
  const active = total - (tied ? 0 : embed) - expert * (1 - share);
  const scale = total > 0 ? residentBytes / total : 0;
  return {
    totalBytes: residentBytes,
    activeBytes: Math.round(active * scale),
    expertBytes: Math.round(expert * scale),
    embedBytes: Math.round(embed * scale),
    experts,
    expertsPerToken: perToken,
    activeIsEstimate: experts > 0 && perToken === null,
  };
}

/** Stacked as MLX saves them, or one by one as the original repositories do. */
function isExpert(name: string): boolean {
  return name.includes(".switch_mlp.") || /\.experts\.\d+\./.test(name);
}
