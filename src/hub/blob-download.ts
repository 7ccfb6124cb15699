/**
 * One blob: fetched in parts over several connections into a preallocated file, verified by its hash, then renamed to
 * its final name. Invariant: a file under the blob's own name is complete and has the right hash; everything else is
 * a `.part` that the next start goes on with.
 */
import { open, rename } from "node:fs/promises";
import { dirname } from "node:path";
import { acquireBlobLock } from "./blob-lock.ts";
import { HubError, TransientFault } from "./errors.ts";
import { PrefixHash } from "./hashing.ts";
import { isCode, PART_SUFFIX, type RepoCache } from "./hf-cache.ts";
import { blobName, changed, type HubApi, type RemoteFile } from "./hub-api.ts";
import { PartFile, type PartIdentity, removeMap, removePart } from "./part-file.ts";
import type { ProgressMeter } from "./progress.ts";
import { Retries, retrying } from "./retries.ts";
import type { Slots } from "./slots.ts";

const SPACE_CHECK_BYTES = 1e9;

/** What all blobs of one download share. */
export interface BlobContext {
  readonly api: HubApi;
  readonly cache: RepoCache;
  readonly commit: string;
  readonly partBytes: number;
  /** One connection per so many bytes still to come: more would only add handshakes. */
  readonly bytesPerConnection: number;
  /** Connections over all blobs. */
  readonly connections: Slots;
  readonly meter: ProgressMeter;
  readonly signal: AbortSignal | undefined;
  readonly notice: (text: string) => void;
  /** Throws if what is missing no longer fits; called every GB. */
  readonly checkSpace: (bytes: number) => Promise<void>;
}

export function partIdentity(file: RemoteFile, commit: string, partBytes: number): PartIdentity {
  return { etag: blobName(file), size: file.size, commit, partBytes };
}

export function partPath(cache: RepoCache, file: RemoteFile): string {
  return cache.blobPath(blobName(file)) + PART_SUFFIX;
}

/**
 * Makes the blob of `file` exist. Waits for another process that fetches it. Throws `HubError` "corrupt" after a
 * second wrong hash, "server" when the file is not what the list promised, "disk_full", or the signal's reason.
 */
export async function downloadBlob(file: RemoteFile, context: BlobContext): Promise<void> {
  const { cache, meter, signal } = context;
  const lock = await acquireBlobLock(cache.lockPath(blobName(file)), signal, () =>
    context.notice(`another process is downloading ${file.path} of ${cache.repo}: waiting for it`),
  );
  try {
    if ((await cache.hasBlob(file)) || (await cache.hasFile(context.commit, file))) {
      meter.resumed(file.size);
      return;
    }
    if (await new BlobDownload(file, context).run()) return;
    context.notice(`the hash of ${file.path} does not match: fetching it once more from the start`);
    const second = new BlobDownload(file, context);
    if (await second.run()) return;
    const expected = `expected ${blobName(file)}, got ${second.hash}`;
    throw new HubError("corrupt", `hash of ${file.path} of "${cache.repo}" does not match (${expected})`);
  } catch (error) {
    throw isCode(error, "ENOSPC") || isCode(error, "EDQUOT") ? diskFull(file, cache) : error;
  } finally {
    await lock.release();
  }
}

/** The server answered a request for a range with the whole file. */
class RangeIgnored extends Error {}

class BlobDownload {
  hash = "";
  readonly #file: RemoteFile;
  readonly #context: BlobContext;
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  #url: Promise<string> | null = null;
  #resumedBytes = 0;
  #receivedBytes = 0;
  #uncheckedBytes = 0;

  constructor(file: RemoteFile, context: BlobContext) {
    this.#file = file;
    this.#context = context;
    const outer = context.signal;
    this.#signal = outer === undefined ? this.#stop.signal : AbortSignal.any([outer, this.#stop.signal]);
  }

  /** True when the blob is in place; false when the hash was wrong, and the bytes are deleted. */
  async run(): Promise<boolean> {
    const { cache, commit, meter, partBytes } = this.#context;
    const path = partPath(cache, this.#file);
    const blob = cache.blobPath(blobName(this.#file));
    const identity = partIdentity(this.#file, commit, partBytes);
    const part = await PartFile.open(path, identity, `${blob}.incomplete`);
    const hash = new PrefixHash(part, this.#file.sha256 === null ? "git-sha1" : "sha256", this.#signal);
    try {
      this.#resumedBytes = part.size - part.missingBytes;
      meter.resumed(this.#resumedBytes);
      hash.advance();
      await this.#fetch(part, hash);
      this.hash = await hash.finish();
      await part.handle.sync();
    } catch (error) {
      this.#stop.abort(error);
      await hash.settle();
      // On a full disk the map may not be writable either: the older one stays, and the first error counts.
      await part.save().catch(() => undefined);
      throw error;
    } finally {
      await part.close();
    }
    if (this.hash !== blobName(this.#file)) {
      meter.lost(this.#resumedBytes, this.#receivedBytes);
      await removePart(path);
      return false;
    }
    await rename(path, blob);
    await removeMap(path);
    await syncFolder(dirname(blob));
    return true;
  }

  async #fetch(part: PartFile, hash: PrefixHash): Promise<void> {
    try {
      await this.#fetchParts(part, hash);
    } catch (error) {
      if (!(error instanceof RangeIgnored)) throw error;
      await this.#context.connections.run(this.#context.signal, () => this.#fetchStream(part, hash));
    }
  }

  /** The first connection goes ahead alone; the others start when it has shown that ranges work. */
  async #fetchParts(part: PartFile, hash: PrefixHash): Promise<void> {
    const queue = part.missing();
    const round = new AbortController();
    const signal = AbortSignal.any([this.#signal, round.signal]);
    const count = Math.ceil(part.missingBytes / this.#context.bytesPerConnection);
    const others: Promise<void>[] = [];
    let failure: unknown = null;
    const worker = async (onRange: () => void) => {
      try {
        for (let next = queue.shift(); next !== undefined && !signal.aborted; next = queue.shift()) {
          const current = next;
          await this.#context.connections.run(signal, () => this.#fetchPart(part, current, onRange, signal));
          await part.markDone(current);
          hash.advance();
        }
      } catch (error) {
        failure ??= error;
        round.abort(error);
      }
    };
    await worker(() => {
      while (others.length < count - 1) others.push(worker(() => undefined));
    });
    await Promise.all(others);
    if (failure !== null) throw failure;
    this.#context.signal?.throwIfAborted();
  }

  /** Fetches one part, going on in its middle after a broken connection. */
  async #fetchPart(part: PartFile, index: number, onRange: () => void, signal: AbortSignal): Promise<void> {
    const end = part.end(index);
    let at = part.begin(index);
    const retries = new Retries(this.#context.api.retryDelaysMs, signal);
    while (at < end) {
      const url = this.#url ?? this.#locate();
      try {
        const whole = at === 0 && end === part.size;
        const reply = await this.#content(await url, whole ? null : { begin: at, end }, signal);
        if (!whole && reply.status === 200) {
          reply.discard();
          throw new RangeIgnored();
        }
        onRange();
        for await (const chunk of reply.chunks()) {
          if (at + chunk.length > end) throw changed(this.#file.path, new URL(reply.url).host);
          await part.write(chunk, at);
          at += chunk.length;
          retries.progressed();
          await this.#count(chunk.length, part);
        }
        if (at < end) throw endedEarly(this.#file);
      } catch (error) {
        if (error instanceof TransientFault && error.linkExpired && this.#url === url) this.#url = null;
        await this.#giveUpOrWait(error, retries, at - part.begin(index));
      }
    }
  }

  /** For servers without ranges: one stream from byte 0; parts that are there already are read past. */
  async #fetchStream(part: PartFile, hash: PrefixHash): Promise<void> {
    const signal = this.#context.signal;
    const retries = new Retries(this.#context.api.retryDelaysMs, signal);
    while (part.missing().length > 0) {
      const url = this.#url ?? this.#locate();
      let at = 0;
      let open = 0;
      try {
        const reply = await this.#content(await url, null, signal);
        for await (const chunk of reply.chunks()) {
          if (at + chunk.length > part.size) throw changed(this.#file.path, new URL(reply.url).host);
          for (let from = 0; from < chunk.length; ) {
            const index = Math.floor((at + from) / part.partBytes);
            const piece = chunk.subarray(from, Math.min(chunk.length, part.end(index) - at));
            if (!part.isDone(index)) {
              await part.write(piece, at + from);
              open += piece.length;
              await this.#count(piece.length, part);
              if (at + from + piece.length === part.end(index)) {
                await part.markDone(index);
                hash.advance();
                retries.progressed();
                open = 0;
              }
            }
            from += piece.length;
          }
          at += chunk.length;
        }
        if (at < part.size) throw endedEarly(this.#file);
      } catch (error) {
        if (error instanceof TransientFault && error.linkExpired && this.#url === url) this.#url = null;
        this.#forget(open);
        await this.#giveUpOrWait(error, retries, 0);
      }
    }
  }

  /** Waits before another try, or takes back what this part has counted and fails. */
  async #giveUpOrWait(error: unknown, retries: Retries, counted: number): Promise<void> {
    try {
      await retries.wait(error);
    } catch (final) {
      this.#forget(counted);
      throw final;
    }
  }

  #content(url: string, range: { begin: number; end: number } | null, signal: AbortSignal | undefined) {
    const { api, cache, commit } = this.#context;
    const { path, size } = this.#file;
    return api.content({ repo: cache.repo, commit, path, size }, url, range, signal);
  }

  /** Asks once where the bytes are, for all connections. Small files that git keeps itself come from the hub. */
  #locate(): Promise<string> {
    const { api, cache, commit } = this.#context;
    const file = this.#file;
    const find = async () => {
      if (file.sha256 === null) return api.fileUrl(cache.repo, commit, file.path);
      const ask = () => api.locate(cache.repo, commit, file.path, this.#signal);
      const found = await retrying(ask, api.retryDelaysMs, this.#signal);
      const same = (found.size ?? file.size) === file.size && (found.sha256 ?? file.sha256) === file.sha256;
      if (!same) throw changed(file.path, new URL(api.endpoint).host);
      return found.url;
    };
    this.#url = find();
    return this.#url;
  }

  async #count(bytes: number, part: PartFile): Promise<void> {
    this.#receivedBytes += bytes;
    this.#context.meter.received(this.#file.path, bytes);
    this.#uncheckedBytes += bytes;
    if (this.#uncheckedBytes < SPACE_CHECK_BYTES) return;
    this.#uncheckedBytes = 0;
    await this.#context.checkSpace(part.missingBytes);
  }

  #forget(bytes: number): void {
    this.#receivedBytes -= bytes;
    this.#context.meter.lost(0, bytes);
  }
}

function endedEarly(file: RemoteFile): TransientFault {
  return new TransientFault(new HubError("unreachable", `the server ended the transfer of ${file.path} early`));
}

function diskFull(file: RemoteFile, cache: RepoCache): HubError {
  const kept = "what was fetched is kept: free some space and load again to go on";
  return new HubError("disk_full", `the disk is full while writing ${file.path} to ${cache.root}; ${kept}`);
}

async function syncFolder(dir: string): Promise<void> {
  const handle = await open(dir, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
