/**
 * What there is to load: the registry with what of it is on this machine, and every model in the folders where names are
 * looked for. Nothing is read but names, sizes and the first bytes, and nothing is fetched.
 */
import { readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { type Environment, hubSettings } from "./environment.ts";
import { HubError } from "./errors.ts";
import type { ListedFile, ModelKind } from "./file-selection.ts";
import { RepoCache } from "./hf-cache.ts";
import { inspectFolder } from "./local-models.ts";
import { localRoots } from "./local-sources.ts";
import { REGISTRY, type RegistryRow, registryRowFor } from "./registry.ts";
import { resolveModel } from "./resolve.ts";

/** Sizes in bytes of what the program ships with for an id; null: nothing in this build. */
export type EmbeddedSizes = (id: string) => { readonly target: number; readonly drafter: number | null } | null;

export interface CatalogueRow {
  readonly row: RegistryRow;
  /** Weights of the target on this machine, in bytes; null: not here. */
  readonly targetBytes: number | null;
  /** Of the drafter that `auto` takes; null: not here, or there is none. */
  readonly drafterBytes: number | null;
  /** Nothing has to be downloaded. */
  readonly ready: boolean;
}

export interface InstalledModel {
  readonly repo: string;
  readonly path: string;
  readonly bytes: number;
  readonly kind: ModelKind;
  readonly registryId: string | null;
  readonly source: "cache" | "lmstudio" | "model_dirs";
}

/** The registry in its order. */
export function catalogue(env: Environment, embedded: EmbeddedSizes): Promise<CatalogueRow[]> {
  return Promise.all(
    REGISTRY.map(async (row): Promise<CatalogueRow> => {
      const shipped = row.embedded ? embedded(row.id) : null;
      if (shipped !== null) {
        return { row, targetBytes: shipped.target, drafterBytes: shipped.drafter, ready: true };
      }
      const drafter = row.dspark ?? row.dflash;
      const targetBytes = await bytesHere(row.repo, "target", env);
      const drafterBytes = drafter === null ? null : await bytesHere(drafter, "drafter", env);
      return {
        row,
        targetBytes,
        drafterBytes,
        ready: targetBytes !== null && (drafter === null || drafterBytes !== null),
      };
    }),
  );
}

/** Weights of a repository that would be loaded without a download; null: it is not here, or not usable. */
async function bytesHere(name: string, kind: ModelKind, env: Environment): Promise<number | null> {
  try {
    const found = await resolveModel(name, { offline: true, kind, env });
    if ("file" in found) return (await stat(found.file)).size;
    const content = await inspectFolder(found.dir, kind);
    return content.kind === "model" ? sum(content.weights) : null;
  } catch (error) {
    if (error instanceof HubError) return null;
    throw error;
  }
}

/** Models before drafters, large ones first. Half a model is not listed. */
export async function installedModels(env: Environment): Promise<InstalledModel[]> {
  const found = [...(await inLocalRoots(env)), ...(await inHubCache(env))];
  return found.sort((a, b) => Number(a.kind === "drafter") - Number(b.kind === "drafter") || b.bytes - a.bytes);
}

async function inLocalRoots(env: Environment): Promise<InstalledModel[]> {
  const found: InstalledModel[] = [];
  for (const { source, dir: root } of localRoots(env)) {
    const place = source === "lmstudio" ? "lmstudio" : source === "model-dirs" ? "model_dirs" : "cache";
    for (const name of await foldersIn(root)) {
      const here = await inspected(join(root, name), name, place);
      if (here !== null) found.push(here);
      else {
        for (const inner of await foldersIn(join(root, name))) {
          const below = await inspected(join(root, name, inner), `${name}/${inner}`, place);
          if (below !== null) found.push(below);
        }
      }
    }
  }
  return found;
}

async function inHubCache(env: Environment): Promise<InstalledModel[]> {
  const { cacheDir } = hubSettings(env, true);
  const found: InstalledModel[] = [];
  for (const folder of await foldersIn(cacheDir)) {
    const [, owner, ...rest] = folder.startsWith("models--") ? folder.split("--") : [];
    if (owner === undefined || rest.length === 0) continue;
    const repo = `${owner}/${rest.join("--")}`;
    const cache = new RepoCache(cacheDir, repo);
    for (const commit of await cache.snapshots()) {
      const model = await inspected(cache.snapshotDir(commit), repo, "cache", await cache.readTree(commit));
      if (model !== null) found.push(model);
    }
  }
  return found;
}

async function inspected(
  dir: string,
  repo: string,
  source: InstalledModel["source"],
  expected: readonly ListedFile[] | null = null,
): Promise<InstalledModel | null> {
  const kind: ModelKind = isDrafterName(repo) ? "drafter" : "target";
  try {
    const content = await inspectFolder(dir, kind, expected);
    const files = content.kind === "model" ? content.weights : content.kind === "ggufs" ? content.files : [];
    if (files.length === 0) return null;
    const registryId = kind === "target" ? (registryRowFor(repo)?.id ?? null) : null;
    return { repo, path: dir, bytes: sum(files), kind, registryId, source };
  } catch (error) {
    if (error instanceof HubError) return null;
    throw error;
  }
}

/** Published drafters say so in their names; a folder is not opened for it. */
function isDrafterName(repo: string): boolean {
  const known = REGISTRY.flatMap(({ dspark, dflash }) => [dspark, dflash]);
  return known.includes(repo) || /dspark|dflash|speculator/i.test(basename(repo));
}

async function foldersIn(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  return entries
    .filter((entry) => (entry.isDirectory() || entry.isSymbolicLink()) && !/^\.|\.partial-/.test(entry.name))
    .map(({ name }) => name)
    .sort();
}

function sum(files: readonly ListedFile[]): number {
  return files.reduce((total, { size }) => total + size, 0);
}
