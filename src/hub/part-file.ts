/**
 * A partial file with holes, and the map of its finished parts beside it (`….part.json`). Invariant: the map on disk
 * never claims bytes that are not on disk (data is synced first); whatever else survives a crash is fetched again, and
 * the final hash decides anyway.
 */
import { type FileHandle, open, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { fileSize, isCode, writeAtomically } from "./hf-cache.ts";

/** Parts between two writes of the map (64 MiB at the usual 16): what a crash costs, besides the parts in flight. */
const SAVE_EVERY_PARTS = 4;
/** An `.incomplete` of an older Python or of the npm package that nobody has touched for so long is abandoned. */
const ABANDONED_MS = 600_000;

export interface PartIdentity {
  readonly etag: string;
  readonly size: number;
  readonly commit: string;
  /** Size of a part for a new file; a resumed one keeps its own. */
  readonly partBytes: number;
}

export class PartFile {
  readonly path: string;
  readonly size: number;
  readonly partBytes: number;
  readonly handle: FileHandle;
  readonly #identity: PartIdentity;
  readonly #done: boolean[];
  #unsavedParts = 0;
  #saving: Promise<void> = Promise.resolve();

  private constructor(path: string, handle: FileHandle, identity: PartIdentity, partBytes: number, done: boolean[]) {
    this.path = path;
    this.size = identity.size;
    this.partBytes = partBytes;
    this.handle = handle;
    this.#identity = identity;
    this.#done = done;
  }

  /** Opens the partial file of a blob at `path`, resuming what is there, or starts an empty one of full length. */
  static async open(path: string, identity: PartIdentity, incompletePath: string): Promise<PartFile> {
    const map = (await readMap(path, identity)) ?? (await adoptIncomplete(path, identity, incompletePath));
    const partBytes = map?.partBytes ?? identity.partBytes;
    const count = Math.ceil(identity.size / partBytes);
    const handle = await open(path, map === null ? "w+" : "r+");
    try {
      await handle.truncate(identity.size);
    } catch (error) {
      await handle.close();
      throw error;
    }
    const part = new PartFile(path, handle, identity, partBytes, map?.done ?? new Array<boolean>(count).fill(false));
    // A first map takes its place on the disk while there is some: a full disk can then still be noted in it.
    if (map === null && count > SAVE_EVERY_PARTS) await part.save();
    return part;
  }

  get count(): number {
    return this.#done.length;
  }

  isDone(part: number): boolean {
    return this.#done[part] === true;
  }

  begin(part: number): number {
    return part * this.partBytes;
  }

  /** First byte after the part. */
  end(part: number): number {
    return Math.min(this.size, (part + 1) * this.partBytes);
  }

  missing(): number[] {
    return this.#done.flatMap((done, part) => (done ? [] : [part]));
  }

  get missingBytes(): number {
    return this.missing().reduce((sum, part) => sum + this.end(part) - this.begin(part), 0);
  }

  async write(bytes: Uint8Array, position: number): Promise<void> {
    for (let from = 0; from < bytes.length; ) {
      const { bytesWritten } = await this.handle.write(bytes, from, bytes.length - from, position + from);
      from += bytesWritten;
    }
  }

  /** Notes that all bytes of a part are written; saves the map every few parts. */
  async markDone(part: number): Promise<void> {
    this.#done[part] = true;
    if (++this.#unsavedParts >= SAVE_EVERY_PARTS) await this.save();
  }

  /** Forgets everything fetched so far: the hash said that some of it is wrong. */
  async reset(): Promise<void> {
    this.#done.fill(false);
    await this.save();
  }

  /** Syncs the data, then writes the map. Saves in turn: a later map is never overwritten by an earlier one. */
  save(): Promise<void> {
    const next = this.#saving.then(() => this.#saveNow());
    this.#saving = next.catch(() => undefined); // The caller of this save gets its error; the next save tries anew.
    return next;
  }

  async #saveNow(): Promise<void> {
    this.#unsavedParts = 0;
    const done = [...this.#done];
    await this.handle.datasync();
    const { etag, size, commit } = this.#identity;
    const text = JSON.stringify({ etag, size, part_bytes: this.partBytes, done: toBitmap(done), url_commit: commit });
    const path = mapPath(this.path);
    try {
      await writeAtomically(path, text, `${path}.tmp`);
    } catch (error) {
      if (!isCode(error, "ENOSPC")) throw error;
      await writeFile(path, text, { flag: "r+" }); // The text has always the same length: its place is there.
    }
  }

  async close(): Promise<void> {
    await this.#saving;
    await this.handle.close();
  }
}

/** Bytes of a blob that an interrupted download has left at `path`, for planning; 0 if none. */
export async function resumableBytes(path: string, identity: PartIdentity): Promise<number> {
  const map = await readMap(path, identity);
  if (map === null) return 0;
  const missing = map.done.filter((done) => !done).length;
  const lastMissing = map.done.at(-1) === false;
  const lastBytes = identity.size - (map.done.length - 1) * map.partBytes;
  return identity.size - missing * map.partBytes + (lastMissing ? map.partBytes - lastBytes : 0);
}

/** Deletes a partial file with its map. */
export async function removePart(path: string): Promise<void> {
  await rm(path, { force: true });
  await removeMap(path);
}

export async function removeMap(path: string): Promise<void> {
  await rm(mapPath(path), { force: true });
  await rm(`${mapPath(path)}.tmp`, { force: true });
}

interface PartMap {
  readonly partBytes: number;
  readonly done: boolean[];
}

function mapPath(path: string): string {
  return `${path}.json`;
}

/** The map, if it is sound, describes this very blob, and its file is there. */
async function readMap(path: string, identity: PartIdentity): Promise<PartMap | null> {
  if ((await fileSize(path)) !== identity.size) return null;
  let value: unknown;
  try {
    value = JSON.parse(await readFile(mapPath(path), "utf8"));
  } catch {
    return null; // No map or a damaged one: nothing is known about the bytes, so they are fetched again.
  }
  if (typeof value !== "object" || value === null) return null;
  if (!("etag" in value && "size" in value && "part_bytes" in value && "done" in value)) return null;
  const { etag, size, part_bytes: partBytes, done } = value;
  if (etag !== identity.etag || size !== identity.size || typeof done !== "string") return null;
  if (typeof partBytes !== "number" || !Number.isSafeInteger(partBytes) || partBytes <= 0) return null;
  const count = Math.ceil(identity.size / partBytes);
  const bytes = Buffer.from(done, "base64");
  if (bytes.length !== Math.ceil(count / 8)) return null;
  return { partBytes, done: Array.from({ length: count }, (_, i) => (((bytes[i >> 3] ?? 0) >> (i & 7)) & 1) === 1) };
}

/** Takes over an abandoned `<etag>.incomplete`: its length is a contiguous prefix; the final hash verifies it. */
async function adoptIncomplete(path: string, identity: PartIdentity, incompletePath: string): Promise<PartMap | null> {
  const info = await stat(incompletePath).catch(() => null);
  if (info === null || !info.isFile() || info.size === 0 || info.size > identity.size) return null;
  if (Date.now() - info.mtimeMs < ABANDONED_MS) return null;
  await rename(incompletePath, path);
  const count = Math.ceil(identity.size / identity.partBytes);
  const whole = info.size === identity.size ? count : Math.floor(info.size / identity.partBytes);
  return { partBytes: identity.partBytes, done: Array.from({ length: count }, (_, part) => part < whole) };
}

function toBitmap(done: readonly boolean[]): string {
  const bytes = Buffer.alloc(Math.ceil(done.length / 8));
  done.forEach((isDone, i) => {
    if (isDone) bytes[i >> 3] = (bytes[i >> 3] ?? 0) | (1 << (i & 7));
  });
  return bytes.toString("base64");
}
