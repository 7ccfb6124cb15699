/** Where a converted model lives, and by what its source is recognised (naming: hub.md §9). */
import { createHash } from "node:crypto";
import { existsSync, statSync } from "node:fs";
import path from "node:path";
import { CheckpointError } from "../../checkpoint/errors.ts";
import { ggufParts, ggufStem } from "../../checkpoint/gguf-split.ts";
import { readExact, withFile } from "../../checkpoint/positional-read.ts";

/** Raised whenever the same file would be converted differently: older folders are then made anew. */
export const CONVERSION_VERSION = 1;
const HASHED_BYTES = 1 << 20;

/**
 * The folder for the conversion of `file` (or of the split model that it is part of):
 * `<cache root>/models/<lowercase stem>-<8 hex>`, the hex from SHA-256 of the first MiB and the size.
 * @throws CheckpointError when the file cannot be read
 */
export function conversionDir(cacheRoot: string, file: string): string {
  const { size } = sourceFacts(file);
  const first = ggufParts(file)[0] ?? file;
  const head = withFile(first, (fd, identity) => {
    const bytes = new Uint8Array(Math.min(HASHED_BYTES, identity.size));
    readExact(fd, first, bytes, 0);
    return bytes;
  });
  const hash = createHash("sha256").update(head).update(String(size)).digest("hex").slice(0, 8);
  return path.join(cacheRoot, "models", `${ggufStem(file).toLowerCase()}-${hash}`);
}

/** Size and time of the source, over all parts. */
export function sourceFacts(file: string): { readonly source: string; readonly size: number; readonly mtime: number } {
  let size = 0;
  let mtime = 0;
  for (const part of ggufParts(file)) {
    if (!existsSync(part)) throw new CheckpointError({ file: part, check: "file", message: "does not exist" });
    const stat = statSync(part);
    size += stat.size;
    mtime = Math.max(mtime, Math.floor(stat.mtimeMs));
  }
  return { source: path.resolve(file), size, mtime };
}
