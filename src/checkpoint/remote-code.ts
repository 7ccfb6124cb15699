/**
 * Model folders that ask for Python of their own (`auto_map`, `model_file`). We never run it: such a folder loads with a
 * note when its model_type is one that we implement ourselves, and is refused otherwise (models-dense.md §1.2).
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { type ConfigSection, readJsonSection } from "./config-json.ts";
import { CheckpointError } from "./errors.ts";

const FILES = [
  "config.json",
  "tokenizer_config.json",
  "processor_config.json",
  "preprocessor_config.json",
  "generation_config.json",
];
const KEYS = ["model_file", "auto_map"];
const NESTED = ["text_config", "vision_config", "audio_config"];

/**
 * @param isOurs whether a model_type is implemented here
 * @returns notes (empty when the folder asks for no code)
 * @throws CheckpointError naming every `file:key`
 */
export function checkRemoteCode(dir: string, config: ConfigSection, isOurs: (modelType: string) => boolean): string[] {
  const found = FILES.flatMap((name) => requests(path.join(dir, name)).map((key) => `${name}:${key}`));
  if (found.length === 0) return [];
  const modelType = config.string("model_type", "");
  const where = found.join(", ");
  if (isOurs(modelType)) return [`${where}: the Python code that these name is not used; ${modelType} is built in`];
  throw new CheckpointError({
    file: dir,
    check: "remote-code",
    message: `${where}: the model needs Python code of its own, which is never run here (model_type ${JSON.stringify(modelType)})`,
  });
}

function requests(file: string): string[] {
  if (!existsSync(file)) return [];
  let section: ConfigSection;
  try {
    section = readJsonSection(file);
  } catch (error) {
    // A malformed side file is reported (or ignored) by whoever needs it; it asks for nothing here.
    if (error instanceof CheckpointError) return [];
    throw error;
  }
  const out = KEYS.filter((key) => isTruthy(section.value(key)));
  for (const name of NESTED) {
    const nested = section.value(name);
    if (typeof nested !== "object" || Array.isArray(nested)) continue;
    const inner = section.section(name);
    out.push(...KEYS.filter((key) => isTruthy(inner?.value(key))).map((key) => `${name}.${key}`));
  }
  return out;
}

/** Python's truth: empty strings, lists and objects are false. */
function isTruthy(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (typeof value === "object" && value !== null) return Object.keys(value).length > 0;
  return Boolean(value);
}
