/**
 * The five calls of the Hugging Face hub that this project needs, typed and checked, with the hub's refusals turned
 * into errors that say what to do. After `revision` everything is asked by commit, never by branch.
 */
import { version } from "../../package.json" with { type: "json" };
import type { HubSettings } from "./environment.ts";
import { HubError, TransientFault } from "./errors.ts";
import { HTTP_TUNING, type HttpReply, type HttpTuning, HubHttp } from "./http.ts";
import { RETRY_DELAYS_MS, retrying } from "./retries.ts";

/** Longest JSON reply taken: a page of 1,000 files is about 200 kB. */
const JSON_LIMIT_BYTES = 64 * 1024 * 1024;
/** 1,000 files a page; no model has more than a few thousand. */
const MAX_PAGES = 200;
const MAX_RETRY_AFTER_MS = 60_000;

export interface RemoteFile {
  readonly path: string;
  readonly size: number;
  /** Git blob SHA-1 (of the pointer, for an LFS file). */
  readonly oid: string;
  /** SHA-256 of the bytes of an LFS file, else null. */
  readonly sha256: string | null;
  readonly xetHash: string | null;
}

/** Name of a file's blob in the cache, and the hash that its bytes must have: SHA-256 of LFS files, else git SHA-1. */
export function blobName(file: RemoteFile): string {
  return file.sha256 ?? file.oid;
}

export interface FileLocation {
  /** Where the bytes are; may be signed and expire. */
  readonly url: string;
  readonly size: number | null;
  readonly sha256: string | null;
}

export interface ApiTuning {
  readonly http: HttpTuning;
  readonly retryDelaysMs: readonly number[];
}

export class HubApi {
  readonly endpoint: string;
  readonly retryDelaysMs: readonly number[];
  readonly #settings: HubSettings;
  readonly #http: HubHttp;

  constructor(settings: HubSettings, tuning: Partial<ApiTuning> = {}) {
    this.endpoint = settings.endpoint;
    this.retryDelaysMs = tuning.retryDelaysMs ?? RETRY_DELAYS_MS;
    this.#settings = settings;
    this.#http = new HubHttp({ ...settings, userAgent: `mlx-dspark/${version}` }, tuning.http ?? HTTP_TUNING);
  }

  /**
   * The commit that a branch, tag or commit means. With `limitMs` one try of at most that time, for a question
   * whose answer is only nice to have.
   */
  async revision(repo: string, revision: string, signal?: AbortSignal, limitMs?: number): Promise<string> {
    const url = `${this.endpoint}/api/models/${repo}/revision/${encodeURIComponent(revision)}`;
    const asked = { repo, revision };
    const limit = limitMs === undefined ? signal : anyOf(signal, AbortSignal.timeout(limitMs));
    const { value } = await this.#json("GET", url, asked, limit, undefined, limitMs === undefined);
    const commit = record(value)?.sha;
    if (typeof commit === "string" && /^[0-9a-f]{40}$/.test(commit)) return commit;
    throw new HubError("server", `${this.#host} gave no commit for "${repo}"`);
  }

  /** All files of a commit, over all pages. */
  async tree(repo: string, commit: string, signal?: AbortSignal): Promise<RemoteFile[]> {
    const files: RemoteFile[] = [];
    let url: string | null = `${this.endpoint}/api/models/${repo}/tree/${commit}?recursive=true`;
    for (let page = 0; url !== null; page++) {
      if (page === MAX_PAGES) throw new HubError("server", `the file list of "${repo}" does not end`);
      const reply = await this.#json("GET", url, { repo, revision: commit }, signal);
      files.push(...this.#files(reply.value, repo));
      url = nextPage(reply.headers.get("link"), url);
    }
    return files;
  }

  /** The named files of a commit; those that do not exist are left out by the hub. */
  async pathsInfo(repo: string, commit: string, paths: readonly string[], signal?: AbortSignal): Promise<RemoteFile[]> {
    const url = `${this.endpoint}/api/models/${repo}/paths-info/${commit}`;
    const body = JSON.stringify({ paths, expand: true });
    const { value } = await this.#json("POST", url, { repo, revision: commit }, signal, body);
    return this.#files(value, repo);
  }

  /** Where the bytes of a file are (HEAD, one try): the download host's address, with size and hash as promised. */
  async locate(repo: string, commit: string, path: string, signal?: AbortSignal): Promise<FileLocation> {
    const url = this.fileUrl(repo, commit, path);
    const reply = await this.#http.request({ method: "HEAD", url, redirects: "own", signal });
    reply.discard();
    const location = reply.headers.get("location");
    const redirected = reply.status >= 300 && reply.status < 400 && location !== null;
    if (reply.status !== 200 && !redirected) throw this.#refusal(reply, { repo, revision: commit, path });
    const served = reply.headers.get("x-repo-commit");
    if (served !== null && served !== commit) throw changed(path, this.#host);
    const etag = bareEtag(reply.headers.get("x-linked-etag"));
    return {
      url: redirected ? new URL(location, reply.url).href : reply.url,
      size: wholeNumber(reply.headers.get("x-linked-size")),
      sha256: etag !== null && /^[0-9a-f]{64}$/.test(etag) ? etag : null,
    };
  }

  /**
   * Asks for the bytes `begin … end − 1` of `url` (without `range`, for all), one try. The reply's status is 200 or
   * 206; 206 has the range that was asked for. `size` is the file's size; another one is fatal.
   */
  async content(
    file: { readonly repo: string; readonly commit: string; readonly path: string; readonly size: number },
    url: string,
    range: { readonly begin: number; readonly end: number } | null,
    signal?: AbortSignal,
  ): Promise<HttpReply> {
    const headers: Record<string, string> = range === null ? {} : { range: `bytes=${range.begin}-${range.end - 1}` };
    const reply = await this.#http.request({ method: "GET", url, headers, signal });
    try {
      this.#checkContent(reply, file, range);
      return reply;
    } catch (error) {
      reply.discard();
      throw error;
    }
  }

  /** Address of a file: every part of the path encoded, slashes kept. */
  fileUrl(repo: string, commit: string, path: string): string {
    return `${this.endpoint}/${repo}/resolve/${commit}/${path.split("/").map(encodeURIComponent).join("/")}`;
  }

  #checkContent(
    reply: HttpReply,
    file: { readonly repo: string; readonly commit: string; readonly path: string; readonly size: number },
    range: { readonly begin: number; readonly end: number } | null,
  ): void {
    const foreign = new URL(reply.url).origin !== new URL(this.endpoint).origin;
    if (reply.status === 206 && range !== null) {
      const expected = `bytes ${range.begin}-${range.end - 1}/${file.size}`;
      if (reply.headers.get("content-range")?.trim() !== expected) throw changed(file.path, this.#host);
    } else if (reply.status === 200) {
      const length = wholeNumber(reply.headers.get("content-length"));
      if (length !== null && length !== file.size) throw changed(file.path, this.#host);
    } else if (reply.status === 416) {
      throw changed(file.path, this.#host);
    } else if (reply.status === 403 && foreign) {
      const message = `${new URL(reply.url).host} refuses ${file.path} of "${file.repo}" (HTTP 403)`;
      throw new TransientFault(new HubError("denied", message), { waitMs: 0, linkExpired: true });
    } else {
      throw this.#refusal(reply, { repo: file.repo, revision: file.commit, path: file.path });
    }
  }

  async #json(
    method: "GET" | "POST",
    url: string,
    asked: { readonly repo: string; readonly revision: string },
    signal: AbortSignal | undefined,
    body?: string,
    retry = true,
  ): Promise<{ value: unknown; headers: Headers }> {
    const once = async () => {
      const headers: Record<string, string> = body === undefined ? {} : { "content-type": "application/json" };
      const reply = await this.#http.request({ method, url, headers, signal, ...(body === undefined ? {} : { body }) });
      if (reply.status !== 200) {
        reply.discard();
        throw this.#refusal(reply, asked);
      }
      return { text: await reply.text(JSON_LIMIT_BYTES), headers: reply.headers };
    };
    const { text, headers } = await (retry ? retrying(once, this.retryDelaysMs, signal) : once());
    try {
      return { value: JSON.parse(text), headers };
    } catch {
      throw new HubError("server", `${this.#host} answered ${new URL(url).pathname} with something that is no JSON`);
    }
  }

  #files(value: unknown, repo: string): RemoteFile[] {
    if (!Array.isArray(value)) throw new HubError("server", `the file list of "${repo}" is malformed`);
    return value.flatMap((entry) => {
      const file = record(entry);
      if (file?.type === "directory") return [];
      const lfs = record(file?.lfs);
      const { path, oid } = file ?? {};
      const size = lfs?.size ?? file?.size;
      const sha256 = lfs?.oid ?? null;
      const xetHash = file?.xetHash;
      const sound =
        typeof path === "string" &&
        typeof oid === "string" &&
        /^[0-9a-f]{40}$/.test(oid) &&
        typeof size === "number" &&
        Number.isSafeInteger(size) &&
        size >= 0 &&
        (sha256 === null || (typeof sha256 === "string" && /^[0-9a-f]{64}$/.test(sha256)));
      if (!sound) throw new HubError("server", `the file list of "${repo}" is malformed`);
      return [{ path, oid, size, sha256, xetHash: typeof xetHash === "string" ? xetHash : null }];
    });
  }

  /** The hub's refusal as an error: its own code first, the status otherwise. */
  #refusal(
    reply: HttpReply,
    asked: { readonly repo: string; readonly revision: string; readonly path?: string },
  ): Error {
    const { repo, revision, path } = asked;
    const code = reply.headers.get("x-error-code");
    const status = reply.status;
    const noToken = this.#settings.token === null;
    if (code === "RepoNotFound" || (status === 401 && code === null && noToken)) {
      const text = `no repository "${repo}" on ${this.#host}, or it is private: check the name, or set HF_TOKEN`;
      return new HubError("not_found", text);
    }
    if (code === "GatedRepo") {
      const whose = noToken ? "no token is set" : `the token of ${this.#settings.tokenSource} has no access`;
      const text = `"${repo}" is gated: accept its terms at ${this.endpoint}/${repo} with the account of your token`;
      return new HubError("denied", `${text} (${whose})`);
    }
    if (code === "RevisionNotFound") return new HubError("not_found", `"${repo}" has no revision "${revision}"`);
    if (code === "EntryNotFound") return new HubError("not_found", `"${repo}" has no file "${path ?? ""}"`);
    if (code === "DisabledRepo") return new HubError("denied", `"${repo}" was disabled by ${this.#host}`);
    if (status === 401) {
      return new HubError("denied", `${this.#host} does not accept the token of ${this.#settings.tokenSource}`);
    }
    const what = path === undefined ? `"${repo}"` : `${path} of "${repo}"`;
    const final = new HubError(
      status >= 500 || status === 429 ? "unreachable" : status === 404 ? "not_found" : "server",
      `${new URL(reply.url).host} answered HTTP ${status} for ${what}`,
    );
    if (status === 429) return new TransientFault(final, retryAfter(reply.headers));
    return status >= 500 || status === 408 ? new TransientFault(final) : final;
  }

  get #host(): string {
    return new URL(this.endpoint).host;
  }
}

/** The error for a file that is not what the hub's own list promised. */
export function changed(path: string, host: string): HubError {
  return new HubError("server", `${path}: the file changed on the server (${host}); try again`);
}

function retryAfter(headers: Headers): { waitMs?: number } {
  const seconds = wholeNumber(headers.get("retry-after"));
  return seconds === null ? {} : { waitMs: Math.min(seconds * 1000, MAX_RETRY_AFTER_MS) };
}

/** `"abc"` and `W/"abc"` → `abc`. */
function bareEtag(text: string | null): string | null {
  return text === null ? null : text.replace(/^W\//, "").replaceAll('"', "").toLowerCase();
}

function nextPage(link: string | null, from: string): string | null {
  const target = /<([^>]+)>\s*;[^,]*rel="?next"?/.exec(link ?? "")?.[1];
  return target === undefined ? null : new URL(target, from).href;
}

function wholeNumber(text: string | null): number | null {
  return text !== null && /^\d+$/.test(text.trim()) ? Number(text) : null;
}

function record(value: unknown): Record<string, unknown> | null {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value))
    : null;
}

function anyOf(signal: AbortSignal | undefined, other: AbortSignal): AbortSignal {
  return signal === undefined ? other : AbortSignal.any([signal, other]);
}
