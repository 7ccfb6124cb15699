/** The prompts that acceptance and losslessness are measured on, as ids of SmolLM2. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { TextModel } from "../../src/text/index.ts";

export interface BenchPrompt {
  readonly kind: string;
  readonly ids: readonly number[];
}

export interface BenchPrompts {
  readonly prompts: readonly BenchPrompt[];
  readonly eosIds: readonly number[];
}

/**
 * @param folder of the target, with tokenizer and template
 * @param file one JSON object a line: `kind` and `prompt`, or `messages`
 */
export async function readPrompts(
  folder: string,
  file = join(import.meta.dir, "prompts.jsonl"),
): Promise<BenchPrompts> {
  const text = await TextModel.load(folder);
  const lines = readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "");
  const prompts = await Promise.all(
    lines.map(async (line) => {
      const { kind, prompt, messages } = JSON.parse(line) as {
        kind: string;
        prompt?: string;
        messages?: readonly { readonly role: "user"; readonly content: string }[];
      };
      const conversation = messages ?? [{ role: "user" as const, content: prompt ?? "" }];
      return { kind, ids: (await text.encodeChat({ messages: [...conversation] })).ids };
    }),
  );
  return { prompts, eosIds: text.eosIds };
}
