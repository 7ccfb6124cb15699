/** The target families, by the config's `model_type`. Adding one is its file and a line here. */
import { CheckpointError } from "../checkpoint/errors.ts";
import type { Family } from "./family.ts";
import { llama } from "./llama.ts";
import { qwen2 } from "./qwen2.ts";
import { qwen3 } from "./qwen3.ts";

const FAMILIES: readonly Family[] = [llama, qwen2, qwen3];

export function isOurModelType(modelType: string): boolean {
  return FAMILIES.some((family) => family.modelTypes.includes(modelType));
}

/** @throws CheckpointError naming the types that are there */
export function familyOf(modelType: string, file: string): Family {
  const family = FAMILIES.find((candidate) => candidate.modelTypes.includes(modelType));
  if (family !== undefined) return family;
  const known = FAMILIES.flatMap((candidate) => candidate.modelTypes).join(", ");
  throw new CheckpointError({
    file,
    check: "config",
    message: `model_type ${JSON.stringify(modelType)} is not supported; supported are ${known}`,
  });
}
