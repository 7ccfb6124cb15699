/**
 * One process at a time fetches a blob: a lock file made exclusively, naming its owner. It is touched every minute;
 * the lock of a process that is gone on this host, or untouched for ten minutes, is taken over. Python needs no lock
 * against us: it downloads under names of its own and renames equal bytes.
 */
import { randomBytes } from "node:crypto";
import { open, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { hostname } from "node:os";
import { isCode } from "./hf-cache.ts";
import { abortable } from "./retries.ts";

const TOUCH_MS = 60_000;
const STALE_MS = 600_000;
const POLL_MS = 100;
/** A lock whose text is not there yet belongs to a process between two system calls; much older, to a dead one. */
const EMPTY_STALE_MS = 10_000;

interface Owner {
  readonly pid: number;
  readonly host: string;
  readonly started: number;
}

export interface BlobLock {
  release(): Promise<void>;
}

/** Waits for the lock. `onWait` is called once if another process has it. The folder must exist. */
export async function acquireBlobLock(
  path: string,
  signal: AbortSignal | undefined,
  onWait: () => void,
): Promise<BlobLock> {
  let told = false;
  for (;;) {
    signal?.throwIfAborted();
    if (await tryCreate(path)) return heldLock(path);
    if (await takeOver(path)) continue;
    if (!told) onWait();
    told = true;
    await abortable(POLL_MS, signal);
  }
}

async function tryCreate(path: string): Promise<boolean> {
  const owner: Owner = { pid: process.pid, host: hostname(), started: Date.now() };
  try {
    const handle = await open(path, "wx");
    try {
      await handle.writeFile(JSON.stringify(owner));
    } finally {
      await handle.close();
    }
    return true;
  } catch (error) {
    if (isCode(error, "EEXIST")) return false;
    throw error;
  }
}

function heldLock(path: string): BlobLock {
  const timer = setInterval(() => {
    const now = new Date();
    utimes(path, now, now).catch(() => clearInterval(timer)); // Removed under us: nothing is left to keep fresh.
  }, TOUCH_MS);
  timer.unref();
  return {
    release: async () => {
      clearInterval(timer);
      await rm(path, { force: true });
    },
  };
}

/** Removes a stale lock. It is renamed first: of two processes that judge it stale, one gets it. */
async function takeOver(path: string): Promise<boolean> {
  const before = await staleText(path);
  if (before === null) return false;
  const aside = `${path}.${randomBytes(4).toString("hex")}.stale`;
  try {
    await rename(path, aside);
  } catch (error) {
    if (isCode(error, "ENOENT")) return true; // Released or taken over meanwhile: try to create it.
    throw error;
  }
  const text = await readFile(aside, "utf8");
  if (text === before) {
    await rm(aside, { force: true });
    return true;
  }
  await rename(aside, path); // A new owner's lock, created between the look and the rename: put it back.
  return false;
}

/** The lock's text if its owner is gone, null if it is held or not there. */
async function staleText(path: string): Promise<string | null> {
  try {
    const text = await readFile(path, "utf8");
    const ageMs = Date.now() - (await stat(path)).mtimeMs;
    const owner = parseOwner(text);
    if (owner === null) return ageMs > EMPTY_STALE_MS ? text : null;
    const gone = owner.host === hostname() && !isAlive(owner.pid);
    return gone || ageMs > STALE_MS ? text : null;
  } catch (error) {
    if (isCode(error, "ENOENT")) return null;
    throw error;
  }
}

function parseOwner(text: string): Owner | null {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || !("pid" in value) || !("host" in value)) return null;
    const { pid, host } = value;
    if (typeof pid !== "number" || typeof host !== "string") return null;
    return { pid, host, started: "started" in value && typeof value.started === "number" ? value.started : 0 };
  } catch {
    return null; // Half-written: judged by its age alone.
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return isCode(error, "EPERM");
  }
}
