/**
 * Brings a drafter's source into the form that is loaded: GGUF files and NVFP4 folders are converted once into
 * `<cache root>/drafters`; other folders are used as they are.
 */
import { rmSync, statSync } from "node:fs";
import path from "node:path";
import { openBuildFolder, publish, readMarker } from "../../checkpoint/built-folder.ts";
import { readModelConfig } from "../../checkpoint/config-json.ts";
import { openCheckpoint } from "../../checkpoint/safetensors-set.ts";
import { DrafterError } from "../errors.ts";
import { isModelOpt, writeUnpackedNvfp4 } from "./nvfp4.ts";
import { readGgufDrafter, writeGgufDrafter } from "./prism-gguf.ts";

/** Raised whenever the same source would be converted differently. */
const CONVERSION_VERSION = 1;

/**
 * The folder to load for `source`.
 * @param cacheRoot null: what needs a conversion is refused
 * @throws DrafterError, CheckpointError
 */
export function preparedFolder(source: string, cacheRoot: string | null): string {
  if (/\.gguf$/i.test(source)) {
    const name = path
      .basename(source)
      .toLowerCase()
      .replace(/\.gguf$/, "");
    return converted(source, name, cacheRoot, [source], (dir) => writeGgufDrafter(readGgufDrafter(source), dir));
  }
  const { config } = readModelConfig(source);
  if (!isModelOpt(source, config)) return source;
  const files = openCheckpoint(source, { drafter: true }).files.map((header) => header.file);
  const sources = [config.file, ...files];
  return converted(source, `${path.basename(path.resolve(source))}-bf16`, cacheRoot, sources, (dir) =>
    writeUnpackedNvfp4(source, config, dir),
  );
}

function converted(
  source: string,
  name: string,
  cacheRoot: string | null,
  files: readonly string[],
  write: (dir: string) => void,
): string {
  if (cacheRoot === null) {
    throw new DrafterError(source, "gguf", "must be converted, and there is no cache folder for the result");
  }
  const stats = files.map((file) => statSync(file));
  const size = stats.reduce((sum, stat) => sum + stat.size, 0);
  const mtime = stats.reduce((latest, stat) => Math.max(latest, Math.floor(stat.mtimeMs)), 0);
  const marker = { source: path.resolve(source), size, mtime, version: CONVERSION_VERSION, notes: [] };
  const dir = path.join(cacheRoot, "drafters", name);
  if (readMarker(dir, marker) !== null) return dir;
  const build = openBuildFolder(dir);
  try {
    write(build);
    publish(build, dir, marker);
  } catch (error) {
    rmSync(build, { recursive: true, force: true });
    throw error;
  }
  return dir;
}
