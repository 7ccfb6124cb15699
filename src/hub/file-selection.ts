/**
 * Which files of a repository or folder make a model. Allow lists only: no code, no PyTorch pickles, nothing below the
 * root but extra chat templates and a GGUF file that was named. The same rules choose what to download and what must
 * be there for a local copy to be complete.
 */
import { HubError } from "./errors.ts";
import { unsafePath } from "./names.ts";

export const INDEX_FILE = "model.safetensors.index.json";

/** A drafter differs in that its weights may have any name. */
export type ModelKind = "target" | "drafter";

export interface ListedFile {
  readonly path: string;
  readonly size: number;
}

const SMALL_FILES: ReadonlySet<string> = new Set([
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "chat_template.jinja",
  "chat_template.json",
  "hf_quant_config.json",
  "quantize_config.json",
  "processor_config.json",
  "preprocessor_config.json",
  INDEX_FILE,
]);

/** Preference among quantizations of a GGUF repository; only suggested, never chosen. */
const GGUF_ORDER = ["Q4_K_M", "Q4_0", "Q5_K_M", "Q8_0", "F16"];

/** Throws `HubError` "unusable" if any path of a list could leave its folder or confuse a file system. */
export function checkPaths(files: readonly ListedFile[], repo: string): void {
  const bad = files.find((file) => unsafePath(file.path));
  if (bad === undefined) return;
  throw new HubError(
    "unusable",
    `the file list of "${repo}" has an unsafe path (${JSON.stringify(bad.path)}): refused`,
  );
}

/** Configuration, tokenizer, templates and index: everything that is judged before weights are fetched. */
export function selectSmallFiles<F extends ListedFile>(files: readonly F[]): F[] {
  return files.filter(({ path }) => SMALL_FILES.has(path) || /^additional_chat_templates\/[^/]+\.jinja$/.test(path));
}

/**
 * The weight files. With an index exactly the shards that it names, in the order of their names; without one the
 * safetensors files of the root. Throws `HubError` "unusable" when the index is malformed, names files elsewhere or
 * files that do not exist.
 */
export function selectWeights<F extends ListedFile>(
  files: readonly F[],
  indexText: string | null,
  kind: ModelKind,
  repo: string,
): F[] {
  if (indexText === null) return sorted(files.filter(({ path }) => isRootWeight(path, kind)));
  const names = indexShards(indexText, repo);
  const byPath = new Map(files.map((file) => [file.path, file]));
  const absent = names.filter((name) => !byPath.has(name));
  if (absent.length > 0) {
    const more = absent.length > 1 ? ` and ${absent.length - 1} more` : "";
    throw new HubError("unusable", `${INDEX_FILE} of "${repo}" names ${absent[0]}${more}, which is not there`);
  }
  return names.flatMap((name) => byPath.get(name) ?? []);
}

/** Shard names of an index, each once, sorted. They are plain names in the same folder, else `HubError` "unusable". */
export function indexShards(indexText: string, repo: string): string[] {
  let map: unknown;
  try {
    const index: unknown = JSON.parse(indexText);
    map = typeof index === "object" && index !== null && "weight_map" in index ? index.weight_map : undefined;
  } catch {
    map = undefined; // Reported below, as any other malformed index.
  }
  if (typeof map !== "object" || map === null || Array.isArray(map)) {
    throw new HubError("unusable", `${INDEX_FILE} of "${repo}" has no weight_map`);
  }
  const names = new Set<string>();
  for (const name of Object.values(map)) {
    if (typeof name !== "string" || name.includes("/") || unsafePath(name) || !name.endsWith(".safetensors")) {
      throw new HubError("unusable", `${INDEX_FILE} of "${repo}" names ${JSON.stringify(name)}, no file of its folder`);
    }
    names.add(name);
  }
  return [...names].sort();
}

/** A repository that holds weights only in formats that are not read here: says which. */
export function describeUnusable(files: readonly ListedFile[], repo: string): HubError {
  const ggufs = selectGgufs(files);
  if (ggufs.length > 0) return new HubError("unusable", listGgufs(ggufs, repo));
  const pickles = files.some(({ path }) => /\.(bin|pt|pth|ckpt)$/.test(path));
  const reason = pickles
    ? "it has only PyTorch pickle files (.bin), which are not loaded: look for a safetensors version"
    : "it has no safetensors or GGUF weights";
  return new HubError("unusable", `"${repo}" cannot be loaded: ${reason}`);
}

/** GGUF models of a list, projector files and later parts of split files left out. */
export function selectGgufs<F extends ListedFile>(files: readonly F[]): F[] {
  return sorted(
    files.filter(({ path }) => {
      const name = path.split("/").at(-1) ?? "";
      const split = splitOf(name);
      return /\.gguf$/i.test(name) && !/^mmproj/i.test(name) && (split === null || split.part === 1);
    }),
  );
}

/** All parts of a GGUF file: itself, or `…-00001-of-0000N.gguf` up to N. */
export function ggufParts(path: string): string[] {
  const split = splitOf(path);
  if (split === null) return [path];
  return Array.from({ length: split.count }, (_, i) => `${split.stem}-${pad(i + 1)}-of-${pad(split.count)}.gguf`);
}

/** The error text for a repository of GGUF files: all of them with sizes, and the name to type for one of them. */
export function listGgufs(files: readonly ListedFile[], repo: string): string {
  const preferred = GGUF_ORDER.flatMap((type) => files.filter(({ path }) => path.toUpperCase().includes(type)))[0];
  const example = preferred ?? files[0];
  const lines = files.map(({ path, size }) => `  ${path} (${(size / 1e9).toFixed(2)} GB)`);
  return [`"${repo}" has GGUF files: name one, e.g. gguf:${repo}/${example?.path ?? ""}`, ...lines].join("\n");
}

function isRootWeight(path: string, kind: ModelKind): boolean {
  if (path.includes("/") || !path.endsWith(".safetensors")) return false;
  return kind === "drafter" || !/^consolidated|\.fp32\.|^adapter_model/.test(path);
}

function splitOf(path: string): { stem: string; part: number; count: number } | null {
  const match = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/.exec(path);
  if (match === null) return null;
  const [, stem = "", part, count] = match;
  return Number(count) >= 1 ? { stem, part: Number(part), count: Number(count) } : null;
}

function pad(n: number): string {
  return String(n).padStart(5, "0");
}

function sorted<F extends ListedFile>(files: readonly F[]): F[] {
  return [...files].sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0));
}
