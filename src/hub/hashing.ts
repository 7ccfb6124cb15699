/**
 * The hash of a file that is being written in parts: SHA-256 of LFS files, else git's blob SHA-1 (which puts
 * `blob <size>\0` before the bytes). Follows the contiguous prefix of finished parts while they are still in the page
 * cache, so that a sequential download is not read a second time from the disk.
 */
import type { PartFile } from "./part-file.ts";

/** One read; large enough to keep the hash (1.6 GB/s) busy. */
const READ_BYTES = 8 * 1024 * 1024;

export class PrefixHash {
  readonly #part: PartFile;
  readonly #hasher: Bun.CryptoHasher;
  readonly #signal: AbortSignal | undefined;
  #frontier = 0;
  #tail: Promise<void> = Promise.resolve();

  constructor(part: PartFile, kind: "sha256" | "git-sha1", signal: AbortSignal | undefined) {
    this.#part = part;
    this.#signal = signal;
    this.#hasher = new Bun.CryptoHasher(kind === "sha256" ? "sha256" : "sha1");
    if (kind === "git-sha1") this.#hasher.update(`blob ${part.size}\0`);
  }

  /** Hashes on as far as parts are finished, in the background. Errors appear in `finish`. */
  advance(): void {
    this.#tail = this.#tail.then(() => this.#follow());
    this.#tail.catch(() => undefined); // Kept in the chain for `finish`.
  }

  /** The hash in hex. All parts must be finished. */
  async finish(): Promise<string> {
    this.advance();
    await this.#tail;
    if (this.#frontier !== this.#part.count) throw new Error(`hash asked with part ${this.#frontier} missing`);
    return this.#hasher.digest("hex");
  }

  /** Waits until no read is under way, whatever its outcome: the file may be closed then. */
  async settle(): Promise<void> {
    await this.#tail.catch(() => undefined);
  }

  async #follow(): Promise<void> {
    while (this.#frontier < this.#part.count && this.#part.isDone(this.#frontier)) {
      const end = this.#part.end(this.#frontier);
      for (let at = this.#part.begin(this.#frontier); at < end; ) {
        this.#signal?.throwIfAborted();
        const buffer = new Uint8Array(Math.min(READ_BYTES, end - at));
        const { bytesRead } = await this.#part.handle.read(buffer, 0, buffer.length, at);
        if (bytesRead === 0) throw new Error(`${this.#part.path} became shorter while it was written`);
        this.#hasher.update(buffer.subarray(0, bytesRead));
        at += bytesRead;
      }
      this.#frontier++;
    }
  }
}
