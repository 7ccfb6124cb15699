/**
 * What is embedded in the executable. This file is what development sees: nothing. When the executable is built,
 * `tools/build/executable.ts` puts a generated module with the same exports in its place.
 */

export interface EmbeddedFile {
  /** Place below the folder into which it is unpacked, with `/`. */
  readonly path: string;
  /** Path in the executable's own file system. `node:fs` can read it whole, but not open it. */
  readonly source: string;
  readonly compression: "zstd" | "none";
  /** Size and hash of the unpacked bytes. */
  readonly bytes: number;
  readonly sha256: string;
}

export interface EmbeddedFiles {
  /** Of the tree that it was built from, with a `+` when that had changes; null: it was no repository. */
  readonly commit: string | null;
  /** Names the folder of the unpacked libraries: the release, and a hash of what is in it. */
  readonly nativeVersion: string;
  readonly native: readonly EmbeddedFile[];
  /** By registry id. */
  readonly models: Readonly<Record<string, EmbeddedFile>>;
  /** Files of the drafter's folder, by registry id of its target. */
  readonly drafters: Readonly<Record<string, readonly EmbeddedFile[]>>;
}

export const embedded: EmbeddedFiles | null = null;
