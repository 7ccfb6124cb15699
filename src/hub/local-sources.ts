/**
 * Where a model may already be on this machine, in the order in which it is looked for. Pure names: nothing here is
 * written, and the folders of others (the Python peer's, LM Studio's) are only read.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { wantedCacheRoot } from "./cache-root.ts";
import { type Environment, homeFolder, set } from "./environment.ts";

export type LocalSource = "cache-root" | "peer-cache" | "lmstudio" | "model-dirs";

export interface LocalFolder {
  readonly source: LocalSource;
  readonly dir: string;
}

/** Candidate folders of `org/name` or of a bare name, in order; most of them do not exist. */
export function localFolders(name: string, env: Environment): LocalFolder[] {
  const isRepo = name.includes("/");
  const flat = isRepo ? [name, name.replace("/", "_")] : [name];
  const folders: LocalFolder[] = [];
  for (const form of flat) folders.push({ source: "cache-root", dir: join(wantedCacheRoot(env), "models", form) });
  for (const form of flat) folders.push({ source: "peer-cache", dir: join(peerModels(env), form) });
  if (isRepo) for (const root of lmStudioRoots(env)) folders.push({ source: "lmstudio", dir: join(root, name) });
  const inRoots = isRepo ? [...flat, name.slice(name.indexOf("/") + 1)] : flat;
  for (const root of modelDirs(env)) {
    for (const form of inRoots) folders.push({ source: "model-dirs", dir: join(root, form) });
  }
  return folders;
}

/** Roots that hold models one or two folders deep, for suggestions and listings. */
export function localRoots(env: Environment): LocalFolder[] {
  return [
    { source: "cache-root", dir: join(wantedCacheRoot(env), "models") },
    { source: "peer-cache", dir: peerModels(env) },
    ...lmStudioRoots(env).map((dir): LocalFolder => ({ source: "lmstudio", dir })),
    ...modelDirs(env).map((dir): LocalFolder => ({ source: "model-dirs", dir })),
  ];
}

function peerModels(env: Environment): string {
  return join(homeFolder(env), ".cache", "mlx_dspark", "models");
}

function lmStudioRoots(env: Environment): string[] {
  const home = homeFolder(env);
  const chosen = lmStudioFolder(join(home, ".lmstudio", "settings.json"));
  const roots = [join(home, ".lmstudio", "models"), join(home, ".cache", "lm-studio", "models")];
  return chosen === null || roots.includes(chosen) ? roots : [...roots, chosen];
}

/** The models folder that the user chose in LM Studio, or null. */
function lmStudioFolder(settingsPath: string): string | null {
  try {
    const settings: unknown = JSON.parse(readFileSync(settingsPath, "utf8"));
    if (typeof settings !== "object" || settings === null || !("downloadsFolder" in settings)) return null;
    return typeof settings.downloadsFolder === "string" && settings.downloadsFolder !== ""
      ? settings.downloadsFolder
      : null;
  } catch {
    return null; // No LM Studio, or settings that it would not understand either.
  }
}

function modelDirs(env: Environment): string[] {
  return (set(env.MLX_DSPARK_MODEL_DIRS) ?? "").split(":").filter((dir) => dir !== "");
}
