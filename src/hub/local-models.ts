/**
 * What a folder on this machine holds: a safetensors model, GGUF files, or nothing, and whether it is complete. Only
 * names, sizes and the first bytes are looked at; the contents are validated when they are loaded.
 */
import { open, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { HubError } from "./errors.ts";
import {
  INDEX_FILE,
  indexShards,
  type ListedFile,
  type ModelKind,
  selectGgufs,
  selectSmallFiles,
  selectWeights,
} from "./file-selection.ts";
import { fileSize } from "./hf-cache.ts";

export type FolderContent =
  | { readonly kind: "none" }
  | { readonly kind: "model"; readonly weights: readonly ListedFile[] }
  | { readonly kind: "ggufs"; readonly files: readonly ListedFile[] }
  /** Something of a model is there, but `missing` files are not, or are empty or mere LFS pointers. */
  | { readonly kind: "incomplete"; readonly missing: readonly string[] };

/**
 * Looks into a folder. `expected` is the file list of the repository if one is known: then every chosen file must be
 * there with its size. Throws `HubError` "unusable" for an index that no folder can satisfy.
 */
export async function inspectFolder(
  dir: string,
  kind: ModelKind,
  expected: readonly ListedFile[] | null = null,
): Promise<FolderContent> {
  const present = await listFolder(dir);
  if (present.length === 0) return { kind: "none" };
  const has = (path: string) => present.some((file) => file.path === path);
  const listed = expected ?? present;
  const anyWeights = has(INDEX_FILE) || selectWeights(present, null, kind, dir).length > 0;
  const ggufs = selectGgufs(present);
  if (!anyWeights && ggufs.length > 0) return { kind: "ggufs", files: ggufs };
  if (!has("config.json") && !anyWeights) return { kind: "none" };

  const index = has(INDEX_FILE) ? await readFile(join(dir, INDEX_FILE), "utf8") : null;
  const names =
    index === null ? selectWeights(listed, null, kind, dir).map(({ path }) => path) : indexShards(index, dir);
  const needed = new Set(["config.json", ...names, ...(expected === null ? [] : pathsOf(selectSmallFiles(expected)))]);
  const missing: string[] = [];
  for (const path of needed) {
    const size = expected?.find((file) => file.path === path)?.size ?? null;
    if (!(await isSound(join(dir, path), size))) missing.push(path);
  }
  if (names.length === 0) missing.push("*.safetensors");
  if (missing.length > 0) return { kind: "incomplete", missing };
  return { kind: "model", weights: present.filter(({ path }) => names.includes(path)) };
}

/**
 * The one GGUF file of a folder that holds nothing else. Throws `HubError` "unusable" with a list when there are
 * several: a quantization is never chosen silently.
 */
export function onlyGguf(dir: string, files: readonly ListedFile[]): string {
  const [file] = files;
  if (file !== undefined && files.length === 1) return join(dir, file.path);
  const list = files.map(({ path, size }) => `  ${join(dir, path)} (${(size / 1e9).toFixed(2)} GB)`);
  throw new HubError(
    "unusable",
    [`found at ${dir}, but it has several GGUF files: name one of them`, ...list].join("\n"),
  );
}

/** Short text for "found at D, but …". */
export function describeMissing(missing: readonly string[]): string {
  const shown = missing.slice(0, 3).join(", ");
  return missing.length > 3 ? `${shown}, … (${missing.length} files)` : shown;
}

/** Regular files of a folder, links followed, and those of `additional_chat_templates/`. Empty if it does not exist. */
async function listFolder(dir: string): Promise<ListedFile[]> {
  const files: ListedFile[] = [];
  for (const folder of ["", "additional_chat_templates/"]) {
    const names = await readdir(join(dir, folder)).catch(() => []);
    for (const name of names.sort()) {
      const size = await fileSize(join(dir, folder, name));
      if (size !== null) files.push({ path: folder + name, size });
    }
  }
  return files;
}

/** Present, of the expected size if one is known, not empty, and not the pointer that git leaves without LFS. */
async function isSound(path: string, size: number | null): Promise<boolean> {
  const found = await fileSize(path);
  if (found === null || (size !== null && found !== size)) return false;
  if (size !== null || !path.endsWith(".safetensors")) return true;
  if (found < 10) return false;
  const handle = await open(path, "r");
  try {
    const head = Buffer.alloc(8);
    await handle.read(head, 0, head.length, 0);
    return head.toString("latin1") !== "version ";
  } finally {
    await handle.close();
  }
}

function pathsOf(files: readonly ListedFile[]): string[] {
  return files.map(({ path }) => path);
}
