/** Flags about what a model does beside answering, shared by `serve` and `generate` (tool-calls.md §6). */
import type { Effort } from "../text/index.ts";
import { optionalChoiceFlag, switchFlag } from "./flags.ts";

const EFFORTS: readonly Effort[] = ["low", "medium", "high", "xhigh"];

export const thinkingFlags = {
  thinking: switchFlag("let the model think as its template says; --no-thinking asks it not to", true),
  "reasoning-effort": optionalChoiceFlag(EFFORTS, {
    help: "how much to think, of the values that the template knows the nearest",
    defaultText: "the template's",
  }),
};
