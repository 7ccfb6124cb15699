/** Whether a drafter belongs to a target: widths, vocabulary and taps, before any weight is read. drafters.md §1.1, §7. */
import type { TargetParts } from "../nn/target-parts.ts";
import { DrafterError } from "./errors.ts";
import type { DrafterSettings } from "./settings.ts";

/**
 * @param contextWidth in-width of the fusing matrix
 * @throws DrafterError with both numbers
 */
export function checkAgainstTarget(
  dir: string,
  settings: DrafterSettings,
  contextWidth: number | null,
  target: Pick<TargetParts, "vocabSize" | "hiddenSize" | "layers">,
): void {
  const refuse = (reason: DrafterError["reason"], message: string): never => {
    throw new DrafterError(dir, reason, message);
  };
  const { taps, vocab, backbone } = settings;
  const list = `[${taps}]`;
  if (taps.length === 0) refuse("taps", "names no target layers to tap");
  if (taps.some((tap, i) => i > 0 && tap <= (taps[i - 1] ?? 0))) {
    refuse("taps", `taps ${list} are not strictly ascending, so that their order in the fused rows is unknown`);
  }
  if ((taps[0] ?? 0) < -1) refuse("taps", `taps ${list} begin below -1, the embedding's output`);
  const last = taps.at(-1) ?? 0;
  if (last >= target.layers - 1) {
    const message = `taps layer ${last}, the target has layers 0 to ${target.layers - 1} and its last one is not tapped`;
    refuse("taps", `${message}: the drafter belongs to another target`);
  }
  const wanted = taps.length * target.hiddenSize;
  if (contextWidth !== null && contextWidth !== wanted) {
    const widths = `${taps.length} taps of ${target.hiddenSize}`;
    refuse("context-width", `fc takes ${contextWidth} values, the target gives ${wanted} (${widths})`);
  }
  if (vocab > target.vocabSize) {
    refuse("vocabulary", `has a vocabulary of ${vocab}, the target one of ${target.vocabSize}`);
  }
  const borrows = settings.kind !== "dspark" || !settings.ownEmbed || !settings.ownHead;
  if (borrows && backbone.hidden !== target.hiddenSize) {
    const widths = `${backbone.hidden} wide, the target's ${target.hiddenSize}`;
    refuse("context-width", `uses the target's embedding or head, but its own hidden states are ${widths}`);
  }
}
