/**
 * A provider entry in a client's own configuration file. Written only when the user asks for it, whole or not at all, and
 * what was there before stays beside it under another name.
 */
import { copyFile, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { CliError } from "../errors.ts";

/** @param edit from the present text (null: no such file) to the new one; throws when it does not understand it */
export async function editConfig(
  path: string,
  edit: (present: string | null) => string,
): Promise<{ readonly backup: string | null; readonly changed: boolean }> {
  const present = await textOf(path);
  let next: string;
  try {
    next = edit(present);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CliError(`${path} was left as it is: ${reason}`, 1, { cause: error });
  }
  if (next === present) return { backup: null, changed: false };
  await mkdir(dirname(path), { recursive: true });
  const backup = present === null ? null : `${path}.before-mlx-dspark-${stamp(new Date())}`;
  if (backup !== null) await copyFile(path, backup);
  const partial = `${path}.partial-${process.pid}`;
  // Keys may be in it.
  await writeFile(partial, next, { mode: 0o600 });
  await rename(partial, path);
  return { backup, changed: true };
}

async function textOf(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw error;
  }
}

/** 20260131-142501 */
function stamp(time: Date): string {
  return time.toISOString().slice(0, 19).replace(/[-:]/g, "").replace("T", "-");
}
