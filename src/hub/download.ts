/**
 * From a repository at a revision to a complete snapshot in the Hugging Face cache. Order: commit, file list, free
 * space, configuration and tokenizer, the caller's judgement, weights, and last the ref: so nothing large is fetched
 * in vain, and a ref never points to an incomplete snapshot.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type BlobContext, downloadBlob, partIdentity, partPath } from "./blob-download.ts";
import { HubError } from "./errors.ts";
import {
  checkPaths,
  describeUnusable,
  ggufParts,
  INDEX_FILE,
  type ListedFile,
  listGgufs,
  type ModelKind,
  selectGgufs,
  selectSmallFiles,
  selectWeights,
} from "./file-selection.ts";
import { checkFreeSpace, type FreeBytes, freeBytesOf } from "./free-space.ts";
import { type MakeLink, RepoCache } from "./hf-cache.ts";
import type { HubApi, RemoteFile } from "./hub-api.ts";
import { isCommit } from "./names.ts";
import { resumableBytes } from "./part-file.ts";
import { type DownloadProgress, ProgressMeter } from "./progress.ts";
import { Slots } from "./slots.ts";

/** What is known of a model before its weights are fetched or read. */
export interface CheckpointPreview {
  /** Folder with `config.json`, index and tokenizer files; null for a GGUF file, which holds its own configuration. */
  readonly dir: string | null;
  readonly weights: readonly ListedFile[];
}

/** Refuses a model by throwing; what it throws is what the caller of the resolution gets. */
export type Judge = (preview: CheckpointPreview) => void | Promise<void>;

export interface DownloadTuning {
  readonly partBytes: number;
  readonly bytesPerConnection: number;
  readonly connections: number;
  readonly files: number;
  readonly freeBytes: FreeBytes;
  readonly makeLink?: MakeLink;
}

export const DOWNLOAD_TUNING: DownloadTuning = {
  partBytes: 16 * 1024 * 1024,
  bytesPerConnection: 32 * 1024 * 1024,
  connections: 8,
  files: 4,
  freeBytes: freeBytesOf,
};

export interface DownloadOptions {
  readonly kind: ModelKind;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: DownloadProgress) => void) | undefined;
  readonly onNotice?: ((text: string) => void) | undefined;
  readonly judge?: Judge | undefined;
  readonly tuning?: Partial<DownloadTuning> | undefined;
}

/** Downloads a safetensors model; what is there already is kept. Returns its snapshot folder. */
export function downloadRepo(
  api: HubApi,
  cacheDir: string,
  repo: string,
  revision: string,
  options: DownloadOptions,
): Promise<{ readonly dir: string; readonly commit: string }> {
  return runDownload(api, cacheDir, repo, revision, options, async (job) => {
    const known = await job.cache.readTree(job.commit);
    const files = known ?? (await api.tree(repo, job.commit, options.signal));
    checkPaths(files, repo);
    const small = selectSmallFiles(files);
    const hasIndex = small.some((file) => file.path === INDEX_FILE);
    const likely = selectWeights(files, null, options.kind, repo);
    if (likely.length === 0 && !hasIndex) throw describeUnusable(files, repo);
    if (!small.some((file) => file.path === "config.json")) {
      throw new HubError("unusable", `"${repo}" has no config.json: it is no complete model`);
    }
    await job.plan([...small, ...likely]);
    await job.cache.prepare();
    if (known === null) await job.cache.writeTree(job.commit, files);
    await job.fetch(small);

    const dir = job.cache.snapshotDir(job.commit);
    const index = hasIndex ? await readFile(join(dir, INDEX_FILE), "utf8") : null;
    const weights = selectWeights(files, index, options.kind, repo);
    await options.judge?.({ dir, weights });
    await job.plan([...small, ...weights]);
    await job.fetch(weights);
    await job.cache.writeRef(revision, job.commit);
    return { dir, commit: job.commit };
  });
}

/** Downloads one GGUF file, with all its parts if it is split. Returns the path of the (first) file. */
export function downloadGguf(
  api: HubApi,
  cacheDir: string,
  repo: string,
  path: string,
  revision: string,
  options: DownloadOptions,
): Promise<{ readonly file: string; readonly commit: string }> {
  return runDownload(api, cacheDir, repo, revision, options, async (job) => {
    const parts = ggufParts(path);
    const infos = new Map((await api.pathsInfo(repo, job.commit, parts, options.signal)).map((f) => [f.path, f]));
    const files = parts.flatMap((part) => infos.get(part) ?? []);
    const absent = parts.find((part) => !infos.has(part));
    if (absent !== undefined) {
      const others = selectGgufs(await api.tree(repo, job.commit, options.signal));
      const list = others.length === 0 ? "it has no GGUF files" : listGgufs(others, repo);
      throw new HubError("not_found", `"${repo}" has no file "${absent}"; ${list}`);
    }
    await options.judge?.({ dir: null, weights: files });
    await job.plan(files);
    await job.cache.prepare();
    await job.fetch(files);
    await job.cache.writeRef(revision, job.commit);
    return { file: join(job.cache.snapshotDir(job.commit), parts[0] ?? path), commit: job.commit };
  });
}

interface Job {
  readonly cache: RepoCache;
  readonly commit: string;
  /** Announces all files of the download and checks that what is missing fits on the disk. */
  plan(files: readonly RemoteFile[]): Promise<void>;
  /** Fetches and links files, several at a time, in order. */
  fetch(files: readonly RemoteFile[]): Promise<void>;
}

async function runDownload<T>(
  api: HubApi,
  cacheDir: string,
  repo: string,
  revision: string,
  options: DownloadOptions,
  work: (job: Job) => Promise<T>,
): Promise<T> {
  const { signal } = options;
  const tuning = { ...DOWNLOAD_TUNING, ...options.tuning };
  const cache = new RepoCache(cacheDir, repo, tuning.makeLink);
  try {
    signal?.throwIfAborted();
    const commit = isCommit(revision) ? revision : await api.revision(repo, revision, signal);
    return await inTurn(`${cache.root}@${commit}`, signal, async () => {
      const meter = new ProgressMeter(repo, options.onProgress ?? (() => undefined));
      const context: BlobContext = {
        api,
        cache,
        commit,
        partBytes: tuning.partBytes,
        bytesPerConnection: tuning.bytesPerConnection,
        connections: new Slots(tuning.connections),
        meter,
        signal,
        notice: options.onNotice ?? (() => undefined),
        checkSpace: (bytes) => checkFreeSpace(cache.root, bytes, tuning.freeBytes),
      };
      try {
        return await work({
          cache,
          commit,
          plan: async (files) => {
            meter.plan(files.length, sum(files.map((file) => file.size)));
            await context.checkSpace(sum(await Promise.all(files.map((file) => missingBytes(file, context)))));
          },
          fetch: (files) => fetchFiles(files, context, tuning.files),
        });
      } finally {
        meter.stop();
      }
    });
  } catch (error) {
    if (!signal?.aborted) throw error;
    const kept = "partial files kept — loading it again resumes";
    throw new HubError("cancelled", `download of ${repo} cancelled (${kept})`);
  }
}

/** The first failure stops all; it is thrown when every file has come to rest. */
async function fetchFiles(files: readonly RemoteFile[], context: BlobContext, atATime: number): Promise<void> {
  const stop = new AbortController();
  const signal = context.signal === undefined ? stop.signal : AbortSignal.any([context.signal, stop.signal]);
  const slots = new Slots(atATime);
  const inner = { ...context, signal };
  const results = await Promise.allSettled(
    files.map((file) =>
      slots
        .run(signal, () => fetchFile(file, inner))
        .catch((error) => {
          stop.abort(error);
          throw error;
        }),
    ),
  );
  if (stop.signal.aborted) throw stop.signal.reason;
  const failed = results.find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

async function fetchFile(file: RemoteFile, context: BlobContext): Promise<void> {
  const { cache, commit, meter } = context;
  if (await cache.hasFile(commit, file)) {
    meter.resumed(file.size);
  } else {
    if (await cache.hasBlob(file)) meter.resumed(file.size);
    else await downloadBlob(file, context);
    if (!(await cache.hasFile(commit, file))) await cache.link(commit, file);
  }
  meter.fileDone(file.path);
}

/** Bytes of a file that still have to be fetched. */
async function missingBytes(file: RemoteFile, context: BlobContext): Promise<number> {
  const { cache, commit, partBytes } = context;
  if ((await cache.hasFile(commit, file)) || (await cache.hasBlob(file))) return 0;
  return file.size - (await resumableBytes(partPath(cache, file), partIdentity(file, commit, partBytes)));
}

const running = new Map<string, Promise<unknown>>();

/**
 * Downloads of the same commit in this process go one after another: the second finds what the first has fetched, and
 * goes on by itself if the first was cancelled.
 */
async function inTurn<T>(key: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  for (let before = running.get(key); before !== undefined; before = running.get(key)) await settled(before, signal);
  const run = work();
  running.set(key, run);
  try {
    return await run;
  } finally {
    running.delete(key);
  }
}

function settled(promise: Promise<unknown>, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const left = () => reject(signal?.reason);
    const done = () => {
      signal?.removeEventListener("abort", left);
      resolve();
    };
    if (signal?.aborted) left();
    signal?.addEventListener("abort", left, { once: true });
    promise.then(done, done);
  });
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, n) => total + n, 0);
}
