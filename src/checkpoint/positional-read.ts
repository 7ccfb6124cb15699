/**
 * Positional reads of exact byte ranges. Nothing here reads a whole file, follows the file position, or returns fewer
 * bytes than were asked for: a short read means that the file was truncated meanwhile, and throws.
 */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { CheckpointError } from "./errors.ts";

/** Largest single read: below the 2 GiB limit that read(2) has on Linux and macOS. */
const READ_BYTES_MAX = 1 << 30;

/** What identifies the bytes of a file between validation and load. */
export interface FileIdentity {
  readonly file: string;
  readonly size: number;
  readonly mtimeMs: number;
  readonly ino: number;
}

/**
 * Fills `into` from byte `position` of the open file `fd`.
 * @throws CheckpointError ("changed") when the file ends earlier
 */
export function readExact(fd: number, file: string, into: Uint8Array, position: number): void {
  let done = 0;
  while (done < into.byteLength) {
    const length = Math.min(into.byteLength - done, READ_BYTES_MAX);
    const count = readSync(fd, into, done, length, position + done);
    if (count === 0) {
      throw new CheckpointError({
        file,
        check: "changed",
        message: `ends at byte ${position + done} while ${into.byteLength - done} more were expected; it was truncated`,
      });
    }
    done += count;
  }
}

/** Opens `file` for reading, refuses anything but a regular file, runs `use`, closes. */
export function withFile<T>(file: string, use: (fd: number, identity: FileIdentity) => T): T {
  let fd: number;
  try {
    fd = openSync(file, "r");
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new CheckpointError({ file, check: "file", message: `cannot be opened: ${reason}` });
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw new CheckpointError({ file, check: "file", message: "is not a regular file" });
    return use(fd, { file, size: stat.size, mtimeMs: stat.mtimeMs, ino: stat.ino });
  } finally {
    closeSync(fd);
  }
}

/**
 * Refuses a file whose size, time or inode differ from what was validated.
 * @throws CheckpointError ("changed")
 */
export function assertUnchanged(fd: number, expected: FileIdentity): void {
  const stat = fstatSync(fd);
  if (stat.size !== expected.size || stat.mtimeMs !== expected.mtimeMs || stat.ino !== expected.ino) {
    throw new CheckpointError({
      file: expected.file,
      check: "changed",
      message: "was changed since its header was checked; load again",
    });
  }
}
