/**
 * The Hugging Face cache on disk, in the layout that Python's huggingface_hub (2.4.0) reads and writes: blobs named by
 * their hash, snapshots of relative links to them, refs without newline, file lists by commit. Invariant: a name in
 * `blobs/` without our suffix, a link or a ref appears only when what it promises is complete; each appears by rename.
 */
import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { blobName, type RemoteFile } from "./hub-api.ts";
import { isCommit } from "./names.ts";

/** Marks a folder for backup programs; the first line is fixed by the Cache Directory Tagging Specification. */
const CACHEDIR_TAG =
  "Signature: 8a477f597d28d172789f06886806bc55\n" +
  "# This file is a cache directory tag created by mlx-dspark.\n" +
  "# For information about cache directory tags, see:\n" +
  "#\thttps://bford.info/cachedir/\n";

/** Our partial files; Python's `.incomplete` is another thing, because it takes its length for its progress. */
export const PART_SUFFIX = ".mlx-dspark.part";

export type MakeLink = (target: string, path: string) => Promise<void>;

export class RepoCache {
  readonly repo: string;
  /** `…/models--ORG--NAME` */
  readonly root: string;
  readonly #cacheDir: string;
  readonly #makeLink: MakeLink;

  constructor(cacheDir: string, repo: string, makeLink: MakeLink = symlink) {
    this.repo = repo;
    this.root = join(cacheDir, folderName(repo));
    this.#cacheDir = cacheDir;
    this.#makeLink = makeLink;
  }

  blobPath(name: string): string {
    return join(this.root, "blobs", name);
  }

  snapshotDir(commit: string): string {
    return join(this.root, "snapshots", commit);
  }

  lockPath(blob: string): string {
    return join(this.#cacheDir, ".locks", folderName(this.repo), `${blob}.mlx-dspark`);
  }

  /** Makes the folders that a download writes to, and the tag for backup programs. */
  async prepare(): Promise<void> {
    await mkdir(join(this.root, "blobs"), { recursive: true });
    await mkdir(join(this.#cacheDir, ".locks", folderName(this.repo)), { recursive: true });
    try {
      await writeFile(join(this.#cacheDir, "CACHEDIR.TAG"), CACHEDIR_TAG, { flag: "wx" });
    } catch (error) {
      if (!isCode(error, "EEXIST")) throw error;
    }
  }

  /** Commit that a branch or tag meant at the last download, or null. */
  async readRef(revision: string): Promise<string | null> {
    const text = (await readOrNull(join(this.root, "refs", revision)))?.trim() ?? "";
    return isCommit(text) ? text : null;
  }

  /** Notes what a branch or tag means; a commit needs no note. */
  async writeRef(revision: string, commit: string): Promise<void> {
    if (revision !== commit) await writeAtomically(join(this.root, "refs", revision), commit);
  }

  /** Commits that have a snapshot folder, complete or not. */
  async snapshots(): Promise<string[]> {
    try {
      return (await readdir(join(this.root, "snapshots"))).filter(isCommit).sort();
    } catch {
      return []; // No such folder: nothing was ever downloaded.
    }
  }

  /** The file list of a commit as a download noted it, or null. */
  async readTree(commit: string): Promise<RemoteFile[] | null> {
    const text = await readOrNull(join(this.root, "trees", `${commit}.json`));
    if (text === null) return null;
    try {
      const list: unknown = JSON.parse(text);
      return isTreeFile(list) ? Object.entries(list.files).map(([path, entry]) => fromTreeEntry(path, entry)) : null;
    } catch {
      return null; // A damaged list is as good as none: the hub or the folder is asked instead.
    }
  }

  async writeTree(commit: string, files: readonly RemoteFile[]): Promise<void> {
    const sorted = [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
    const entries = Object.fromEntries(sorted.map((file) => [file.path, toTreeEntry(file)]));
    const text = JSON.stringify({ format_version: 1, files: entries }, null, 1);
    await writeAtomically(join(this.root, "trees", `${commit}.json`), text);
  }

  /** True if the file is in the snapshot with the right size, by link or as a plain file. */
  async hasFile(commit: string, file: RemoteFile): Promise<boolean> {
    return (await fileSize(join(this.snapshotDir(commit), file.path))) === file.size;
  }

  async hasBlob(file: RemoteFile): Promise<boolean> {
    return (await fileSize(this.blobPath(blobName(file)))) === file.size;
  }

  /** Puts a complete blob into the snapshot: a relative link, or the file itself where links cannot be made. */
  async link(commit: string, file: RemoteFile): Promise<void> {
    const path = join(this.snapshotDir(commit), file.path);
    const blob = this.blobPath(blobName(file));
    await mkdir(dirname(path), { recursive: true });
    const temporary = `${path}.${randomBytes(4).toString("hex")}.tmp`;
    try {
      await this.#makeLink(relative(dirname(path), blob), temporary);
      await rename(temporary, path);
    } catch (error) {
      await rm(temporary, { force: true });
      if (!["EPERM", "ENOSYS", "ENOTSUP", "EOPNOTSUPP", "EINVAL"].some((code) => isCode(error, code))) throw error;
      await rename(blob, path);
    }
  }

  /** Deletes our own partial files of this repository, nothing else. */
  async removePartFiles(): Promise<void> {
    const blobs = join(this.root, "blobs");
    const names = await readdir(blobs).catch(() => []);
    const ours = names.filter((name) => name.includes(PART_SUFFIX));
    await Promise.all(ours.map((name) => rm(join(blobs, name), { force: true })));
  }
}

/** Writes a small file so that a reader sees the old or the new text, never a part. */
export async function writeAtomically(
  path: string,
  text: string,
  temporary = `${path}.${randomBytes(4).toString("hex")}.tmp`,
): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  try {
    await writeFile(temporary, text);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Size of a regular file (links followed), or null. */
export async function fileSize(path: string): Promise<number | null> {
  try {
    const info = await stat(path);
    return info.isFile() ? info.size : null;
  } catch {
    return null; // Missing, or a dangling link: both mean "not there".
  }
}

export function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

function folderName(repo: string): string {
  return `models--${repo.replace("/", "--")}`;
}

async function readOrNull(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch {
    return null; // Absent and unreadable notes are treated alike: the caller asks another source.
  }
}

interface TreeEntry {
  readonly size: number;
  readonly blob_id: string;
  readonly lfs_sha256?: string;
  readonly lfs_size?: number;
  readonly xet_hash?: string;
}

function toTreeEntry(file: RemoteFile): TreeEntry {
  return {
    size: file.size,
    blob_id: file.oid,
    ...(file.sha256 === null ? {} : { lfs_sha256: file.sha256, lfs_size: file.size }),
    ...(file.xetHash === null ? {} : { xet_hash: file.xetHash }),
  };
}

function fromTreeEntry(path: string, entry: TreeEntry): RemoteFile {
  return {
    path,
    size: entry.lfs_size ?? entry.size,
    oid: entry.blob_id,
    sha256: entry.lfs_sha256 ?? null,
    xetHash: entry.xet_hash ?? null,
  };
}

function isTreeFile(value: unknown): value is { readonly files: Readonly<Record<string, TreeEntry>> } {
  if (typeof value !== "object" || value === null || !("format_version" in value) || value.format_version !== 1) {
    return false;
  }
  if (!("files" in value) || typeof value.files !== "object" || value.files === null) return false;
  return Object.values(value.files).every((entry: unknown) => {
    if (typeof entry !== "object" || entry === null || !("size" in entry) || !("blob_id" in entry)) return false;
    return typeof entry.size === "number" && typeof entry.blob_id === "string";
  });
}
