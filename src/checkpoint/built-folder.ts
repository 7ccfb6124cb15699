/**
 * A folder that is made once from a source and kept: built in `NAME.tmp-<pid>` beside its final place and renamed when
 * complete, so that a folder with its final name and marker is always whole. Folders that a dead process left behind are
 * removed. Naming: hub.md §9.
 */
import { randomBytes } from "node:crypto";
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
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { CheckpointError } from "./errors.ts";

const MARKER = ".converted.json";
/** A build folder of a living process number, untouched for this long, belongs to nobody (as for hub.md §4's locks). */
const ABANDONED_MS = 10 * 60_000;

/** The source of a conversion as it was when it was made. */
export interface ConversionMarker {
  readonly source: string;
  /** Bytes of all parts. */
  readonly size: number;
  /** Milliseconds since 1970, the latest of all parts. */
  readonly mtime: number;
  readonly version: number;
  readonly notes: readonly string[];
}

/** The marker of a complete conversion of exactly this source by this version of ours, else null. */
export function readMarker(
  dir: string,
  wanted: Pick<ConversionMarker, "size" | "mtime" | "version">,
): ConversionMarker | null {
  const file = path.join(dir, MARKER);
  if (!existsSync(file)) return null;
  let marker: unknown;
  try {
    marker = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
  if (!isMarker(marker)) return null;
  const same = marker.version === wanted.version && marker.size === wanted.size && marker.mtime === wanted.mtime;
  return same ? marker : null;
}

/** Creates the empty folder to build in, after removing what dead processes left. */
export function openBuildFolder(outDir: string): string {
  mkdirSync(path.dirname(outDir), { recursive: true });
  removeLeftovers(outDir);
  const plain = `${outDir}.tmp-${process.pid}`;
  // Taken already: by another thread of this process, or by one that was ended in the middle.
  const build = existsSync(plain) ? `${plain}-${randomBytes(4).toString("hex")}` : plain;
  mkdirSync(build);
  return build;
}

/**
 * Writes the marker and moves `build` to its final place. When another process was faster with the same result, that one
 * stays and ours is removed.
 */
export function publish(build: string, outDir: string, marker: ConversionMarker): void {
  writeDurably(path.join(build, MARKER), `${JSON.stringify(marker)}\n`);
  syncFolder(build);
  // Each round either ends or sees that another process published or withdrew a folder meanwhile.
  for (let round = 0; round < 10; round++) {
    if (renamed(build, outDir)) {
      syncFolder(path.dirname(outDir));
      return;
    }
    if (readMarker(outDir, marker) !== null) {
      rmSync(build, { recursive: true, force: true });
      return;
    }
    const stale = `${outDir}.old-${process.pid}`;
    if (renamed(outDir, stale)) rmSync(stale, { recursive: true, force: true });
  }
  throw new CheckpointError({
    file: outDir,
    check: "file",
    message: "is being replaced by another process again and again",
  });
}

/** Writes a small file and flushes it to the disk. */
export function writeDurably(file: string, text: string): void {
  const fd = openSync(file, "wx");
  try {
    writeFileSync(fd, text);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

function isMarker(value: unknown): value is ConversionMarker {
  if (typeof value !== "object" || value === null) return false;
  const m = value as Partial<Record<keyof ConversionMarker, unknown>>;
  const numbers = [m.size, m.mtime, m.version].every((n) => typeof n === "number");
  return (
    numbers && typeof m.source === "string" && Array.isArray(m.notes) && m.notes.every((n) => typeof n === "string")
  );
}

function renamed(from: string, to: string): boolean {
  try {
    renameSync(from, to);
    return true;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : null;
    if (code === "ENOTEMPTY" || code === "EEXIST" || code === "ENOENT") return false;
    throw error;
  }
}

/** Build folders and withdrawn ones of any conversion in the same place whose process is gone. */
function removeLeftovers(outDir: string): void {
  const parent = path.dirname(outDir);
  for (const name of readdirSync(parent)) {
    const match = /\.(?:tmp|old)-(\d+)(?:-[0-9a-f]{8})?$/.exec(name);
    const dir = path.join(parent, name);
    if (match !== null && isDead(Number(match[1]), dir)) rmSync(dir, { recursive: true, force: true });
  }
}

function isDead(pid: number, dir: string): boolean {
  // Our own number: another thread of this process, or a process that had the number before us, as in containers.
  if (pid === process.pid) return Date.now() - lastTouched(dir) > ABANDONED_MS;
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "ESRCH";
  }
}

/** A build in progress writes all the time. */
function lastTouched(dir: string): number {
  const entries = existsSync(dir) ? readdirSync(dir).map((name) => path.join(dir, name)) : [];
  const times = [dir, ...entries].map((file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0);
  return Math.max(...times);
}

function syncFolder(dir: string): void {
  const fd = openSync(dir, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
