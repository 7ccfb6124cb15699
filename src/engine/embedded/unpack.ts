/**
 * Unpacks embedded files into a folder that either is complete or is not there: everything is written and synced in a
 * folder beside it, which is then renamed. Two processes may do this at once (the first to rename wins, the other uses
 * its result), and one that was killed leaves only a partial folder, which a later start removes.
 */
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeSync,
} from "node:fs";
import { hostname } from "node:os";
import { dirname, join } from "node:path";
import type { EmbeddedFile } from "./manifest.ts";

/** A partial folder of another host is left alone for so long: its process may be alive on a shared file system. */
const FOREIGN_PARTIAL_MS_MAX = 24 * 3600 * 1000;
/** The same file time for every unpacking, so that what was derived from a file still matches it: 2020-01-01. */
const FILE_TIME_S = 1577836800;

export class DamagedExecutable extends Error {
  override readonly name = "DamagedExecutable";
  constructor(path: string) {
    super(`the executable is damaged: ${path} inside it does not match its hash; install it again`);
  }
}

/** True when every file is in `folder` with its size; contents were checked when they were written. */
export function isComplete(folder: string, files: readonly EmbeddedFile[]): boolean {
  return files.every((file) => {
    const path = join(folder, file.path);
    // existsSync is false, where statSync throws, for a path through a file or a closed folder.
    const stat = existsSync(path) ? statSync(path, { throwIfNoEntry: false }) : undefined;
    return stat?.isFile() === true && stat.size === file.bytes;
  });
}

/**
 * Makes `folder` hold `files`. Nothing is written when it already does.
 * @throws the file system's error (a `code` such as EROFS or ENOSPC) when the place cannot be written
 * @throws DamagedExecutable
 */
export function unpackInto(folder: string, files: readonly EmbeddedFile[]): void {
  if (isComplete(folder, files)) return;
  mkdirSync(dirname(folder), { recursive: true });
  removeAbandoned(folder);
  const partial = `${folder}.partial-${hostname()}-${process.pid}`;
  rmSync(partial, { recursive: true, force: true });
  try {
    for (const file of files) write(join(partial, file.path), file);
    publish(partial, folder, files);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

function write(path: string, file: EmbeddedFile): void {
  const stored = readFileSync(file.source);
  const bytes = file.compression === "zstd" ? Bun.zstdDecompressSync(stored) : stored;
  const hash = new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
  if (bytes.byteLength !== file.bytes || hash !== file.sha256) {
    throw new DamagedExecutable(file.path);
  }
  mkdirSync(dirname(path), { recursive: true });
  const fd = openSync(path, "wx", 0o755);
  try {
    for (let done = 0; done < bytes.byteLength; ) done += writeSync(fd, bytes, done);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  utimesSync(path, FILE_TIME_S, FILE_TIME_S);
}

/** Renames `partial` to `folder`; a complete folder that another process put there meanwhile is kept instead. */
function publish(partial: string, folder: string, files: readonly EmbeddedFile[]): void {
  for (let attempt = 0; ; attempt += 1) {
    try {
      renameSync(partial, folder);
      return;
    } catch (error) {
      if (isComplete(folder, files)) return;
      // Something incomplete is in the way: a cleaner took files out of it. It cannot be in use, so it may go.
      if (attempt === 3) throw error;
      rmSync(folder, { recursive: true, force: true });
    }
  }
}

/** Removes what killed processes left beside `folder`, of this version or another. */
function removeAbandoned(folder: string): void {
  for (const name of readdirSync(dirname(folder))) {
    const [, host, pid] = /\.partial-(.+)-(\d+)$/.exec(name) ?? [];
    if (host === undefined || pid === undefined) continue;
    const path = join(dirname(folder), name);
    const abandoned = host === hostname() ? !isRunning(Number(pid)) : isOld(path);
    if (abandoned) rmSync(path, { recursive: true, force: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it runs, as another user.
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}

function isOld(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat !== undefined && Date.now() - stat.mtimeMs > FOREIGN_PARTIAL_MS_MAX;
}
