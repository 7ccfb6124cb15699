/**
 * The one place for everything that mlx-dspark keeps: native libraries, converted models, drafters, calibration.
 * `$MLX_DSPARK_CACHE`, else `$XDG_CACHE_HOME/mlx-dspark`, else `~/.cache/mlx-dspark`, on macOS too. If it cannot be
 * written, a temporary folder takes its place, said once: this user's own one, so that the next start finds what this
 * one unpacked and converted.
 */
import { accessSync, constants, lstatSync, mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type Environment, homeFolder, set } from "./environment.ts";

const fallbacks = new Map<string, string>();

/** Where the cache root should be, writable or not. */
export function wantedCacheRoot(env: Environment = process.env): string {
  const own = set(env.MLX_DSPARK_CACHE);
  if (own !== null) return resolve(own);
  return join(set(env.XDG_CACHE_HOME) ?? join(homeFolder(env), ".cache"), "mlx-dspark");
}

/**
 * The cache root, created and writable. When the wanted folder cannot be written, a temporary one takes its place
 * and `say` gets one line about it. The process's environment then names it, so that threads and children started
 * later agree without saying it again.
 */
export function cacheRoot(
  env: Environment = process.env,
  say: (line: string) => void = (line) => console.error(line),
): string {
  const wanted = wantedCacheRoot(env);
  const known = fallbacks.get(wanted);
  if (known !== undefined) return known;
  try {
    mkdirSync(wanted, { recursive: true });
    accessSync(wanted, constants.W_OK | constants.X_OK);
    return wanted;
  } catch (error) {
    const temporary = temporaryRoot();
    fallbacks.set(wanted, temporary);
    if (env === process.env) process.env.MLX_DSPARK_CACHE = temporary;
    const reason = error instanceof Error && "code" in error ? String(error.code) : String(error);
    say(`cache folder ${wanted} is not writable (${reason}): using ${temporary}; set MLX_DSPARK_CACHE to choose one`);
    return temporary;
  }
}

/**
 * A temporary folder that no other user can write to: libraries are loaded from below it. It has a fixed name for
 * this user, unless somebody else took that name.
 */
export function temporaryRoot(): string {
  const user = process.getuid?.() ?? 0;
  const fixed = join(tmpdir(), `mlx-dspark-${user}`);
  if (lstatSync(fixed, { throwIfNoEntry: false }) === undefined) mkdirSync(fixed, { recursive: true, mode: 0o700 });
  const stat = lstatSync(fixed);
  const ours = stat.isDirectory() && stat.uid === user && (stat.mode & 0o022) === 0;
  return ours ? fixed : mkdtempSync(join(tmpdir(), "mlx-dspark-"));
}
