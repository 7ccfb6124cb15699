/**
 * Where a model folder keeps its chat template: the first of `chat_template.jinja`, `tokenizer_config.json`,
 * `chat_template.json`. A converted GGUF has its templates in `tokenizer_config.json`.
 * `additional_chat_templates/*.jinja` add named ones.
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { TemplateError } from "../jinja/errors.ts";
import { isObject, type JsonObject } from "../tokenizer-json.ts";

export interface TemplateTexts {
  /** File (and key) that the main template was found in. */
  readonly origin: string;
  /** Template texts by name; the only or main one is called `default`. */
  readonly named: ReadonlyMap<string, string>;
}

/** The folder's templates, null if it has none. Throws `TemplateError` for files that cannot be understood. */
export async function readTemplateTexts(dir: string): Promise<TemplateTexts | null> {
  const additional = await readAdditional(dir);
  const main = await readMain(dir);
  if (main === null) return additional.size === 0 ? null : { origin: "additional_chat_templates", named: additional };
  return { origin: main.origin, named: new Map([...additional, ...main.named]) };
}

async function readMain(dir: string): Promise<TemplateTexts | null> {
  const jinja = await readIfThere(join(dir, "chat_template.jinja"));
  if (jinja !== null) return { origin: "chat_template.jinja", named: new Map([["default", jinja]]) };
  for (const file of ["tokenizer_config.json", "chat_template.json"]) {
    const named = parseTemplates((await readJsonObject(dir, file))?.chat_template, file);
    if (named !== null) return { origin: file, named };
  }
  return null;
}

/** The text for a request: `tool_use` when there are tools, else `default`, else the only one there is. */
export function chooseTemplate<T>(templates: ReadonlyMap<string, T>, hasTools: boolean): T {
  const chosen = (hasTools ? templates.get("tool_use") : undefined) ?? templates.get("default");
  if (chosen !== undefined) return chosen;
  const [only, ...others] = templates.values();
  if (only !== undefined && others.length === 0) return only;
  const names = Array.from(templates.keys()).join(", ");
  throw new TemplateError(`this model has several chat templates (${names}) and none is called 'default'`);
}

function parseTemplates(value: unknown, file: string): ReadonlyMap<string, string> | null {
  if (value === undefined || value === null) return null;
  if (typeof value === "string") return new Map([["default", value]]);
  if (!Array.isArray(value)) throw new TemplateError(`${file}: chat_template is neither a string nor a list`);
  const named = new Map<string, string>();
  for (const entry of value) {
    if (!isObject(entry) || typeof entry.name !== "string" || typeof entry.template !== "string") {
      throw new TemplateError(`${file}: an entry of chat_template lacks a name or a template`);
    }
    named.set(entry.name, entry.template);
  }
  return named.size === 0 ? null : named;
}

async function readAdditional(dir: string): Promise<Map<string, string>> {
  const folder = join(dir, "additional_chat_templates");
  const named = new Map<string, string>();
  for (const file of (await listIfThere(folder)).sort()) {
    if (!file.endsWith(".jinja")) continue;
    named.set(file.slice(0, -".jinja".length), await readFile(join(folder, file), "utf8"));
  }
  return named;
}

/** A JSON file's object, null if there is no such file. Throws `TemplateError` for anything but an object. */
export async function readJsonObject(dir: string, file: string): Promise<JsonObject | null> {
  const text = await readIfThere(join(dir, file));
  if (text === null) return null;
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value)) return value;
  } catch (error) {
    throw new TemplateError(`${file} is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  throw new TemplateError(`${file} does not hold a JSON object`);
}

async function readIfThere(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (isAbsent(error)) return null;
    throw error;
  }
}

async function listIfThere(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (isAbsent(error)) return [];
    throw error;
  }
}

function isAbsent(error: unknown): boolean {
  return error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR");
}
