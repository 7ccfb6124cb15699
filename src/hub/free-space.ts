/**
 * Is there room for what is still to come? Asked before anything is created and again every GB, because others write
 * to the same volume. The margin keeps the machine usable afterwards.
 */
import { stat, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { HubError } from "./errors.ts";

/** File system overhead, and what stays free. */
const OVERHEAD = 1.02;
const MARGIN_BYTES = 2e9;

/** Free bytes of the volume that holds `dir` (which exists). */
export type FreeBytes = (dir: string) => Promise<number>;

export async function freeBytesOf(dir: string): Promise<number> {
  const info = await statfs(dir);
  return info.bavail * info.bsize;
}

/** Throws `HubError` "disk_full" unless `bytes` more fit on the volume of `dir`, which need not exist yet. */
export async function checkFreeSpace(dir: string, bytes: number, freeBytes: FreeBytes): Promise<void> {
  if (bytes <= 0) return;
  const existing = await nearestExisting(dir);
  const free = await freeBytes(existing);
  const needed = bytes * OVERHEAD + MARGIN_BYTES;
  if (free >= needed) return;
  const mount = await mountPoint(existing);
  throw new HubError(
    "disk_full",
    `needs ${gigabytes(needed)} GB (2 GB of it stay free), ${gigabytes(free)} GB free on ${mount}; ` +
      "free some space or set HF_HOME to another volume",
  );
}

function gigabytes(bytes: number): string {
  return (bytes / 1e9).toFixed(1);
}

async function nearestExisting(dir: string): Promise<string> {
  for (let at = dir; ; at = dirname(at)) {
    if ((await stat(at).catch(() => null)) !== null || dirname(at) === at) return at;
  }
}

/** The highest folder above `dir` on the same device. */
async function mountPoint(dir: string): Promise<string> {
  const { dev } = await stat(dir);
  let at = dir;
  while (dirname(at) !== at && (await stat(dirname(at))).dev === dev) at = dirname(at);
  return at;
}
