/**
 * A hub on this machine: the five calls of the Hugging Face hub for repositories held in memory, LFS files redirected
 * to a second port (the download host, which refuses a token), every request recorded, and faults on demand. Also
 * steered over HTTP: `POST /_fault`, `GET /_log`, `POST /_reset`.
 */
import { createHash } from "node:crypto";
import { serveWire, type WireReply, type WireRequest, type WireServer } from "./wire.ts";

export type Fault = {
  /** Regular expression on the path of the request (with query). */
  readonly match: string;
  readonly method?: string;
  /** How many requests it hits; default 1. */
  readonly times?: number;
  /** Requests that match and pass before the first hit. */
  readonly skip?: number;
} & (
  | { readonly kind: "cut"; readonly after: number }
  | { readonly kind: "stall"; readonly after: number; readonly ms: number }
  | { readonly kind: "slow"; readonly bytes_per_s: number }
  | { readonly kind: "status"; readonly code: number; readonly error_code?: string; readonly retry_after?: number }
  | { readonly kind: "corrupt"; readonly offset: number }
  | { readonly kind: "short"; readonly bytes: number }
  | { readonly kind: "wrongtotal" | "norange" | "expire" | "swap" | "redirectloop" }
  | { readonly kind: "etag"; readonly form: "weak" | "none" | "lowercase" }
);

export type RepoState = "open" | "gated" | "private" | "missing" | "disabled";

export interface LoggedRequest {
  readonly method: string;
  readonly path: string;
  readonly range: string | null;
  readonly auth: string | null;
  readonly host: "hub" | "cdn";
  /** Milliseconds since the hub started. */
  readonly t: number;
}

type Files = ReadonlyMap<string, Uint8Array>;

interface Repo {
  state: RepoState;
  main: string;
  readonly commits: Map<string, Files>;
}

/** The only token that opens gated and private repositories. */
export const GOOD_TOKEN = "hf_goodTokenOfTheTests";
const PAGE = 1000;

export class LocalHub {
  readonly log: LoggedRequest[] = [];
  readonly #repos = new Map<string, Repo>();
  readonly #start = performance.now();
  #faults: { fault: Fault; left: number; skip: number }[] = [];
  #signature = 1;
  #oldestSignature = 1;
  #hub: WireServer | null = null;
  #cdn: WireServer | null = null;

  async start(): Promise<this> {
    this.#hub = await serveWire((request) => this.#answer(request, "hub"));
    this.#cdn = await serveWire((request) => this.#answer(request, "cdn"));
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#hub?.port}`;
  }

  stop(): void {
    this.#hub?.close();
    this.#cdn?.close();
  }

  /** Adds a repository, or a new commit on its `main`. Returns the commit. */
  put(repo: string, files: Readonly<Record<string, Uint8Array | string>>): string {
    const bytes = new Map(Object.entries(files).map(([path, data]) => [path, toBytes(data)]));
    const hash = createHash("sha1");
    for (const [path, data] of bytes) hash.update(`${path}\0${data.length}\0`).update(data);
    const commit = hash.digest("hex");
    const known = this.#repos.get(repo) ?? { state: "open", main: commit, commits: new Map() };
    known.commits.set(commit, bytes);
    known.main = commit;
    this.#repos.set(repo, known);
    return commit;
  }

  setState(repo: string, state: RepoState): void {
    const known = this.#repos.get(repo);
    if (known !== undefined) known.state = state;
  }

  fault(fault: Fault): void {
    this.#faults.push({ fault, left: fault.times ?? 1, skip: fault.skip ?? 0 });
  }

  /** Forgets faults and log; repositories stay. */
  reset(): void {
    this.#faults = [];
    this.log.length = 0;
  }

  /** The log as short lines: `METHOD host path[ range]`, signatures and addresses left out. */
  lines(): string[] {
    return this.log.map(({ method, path, range, host }) => {
      const short = path.replace(/\?.*/, "").replace(/[0-9a-f]{40}/g, "COMMIT");
      return `${method} ${host} ${short}${range === null ? "" : ` ${range.replace("bytes=", "")}`}`;
    });
  }

  #answer(request: WireRequest, host: "hub" | "cdn"): WireReply {
    const control = this.#control(request);
    if (control !== null) return control;
    this.log.push({
      method: request.method,
      path: request.path,
      range: request.headers.get("range") ?? null,
      auth: request.headers.get("authorization") ?? null,
      host,
      t: performance.now() - this.#start,
    });
    const fault = this.#takeFault(request);
    if (fault?.kind === "status") {
      const headers: Record<string, string> = {};
      if (fault.error_code !== undefined) headers["X-Error-Code"] = fault.error_code;
      if (fault.retry_after !== undefined) headers["Retry-After"] = String(fault.retry_after);
      return { status: fault.code, headers, body: new Uint8Array(0) };
    }
    if (fault?.kind === "redirectloop") return redirect(request.path);
    if (fault?.kind === "expire") this.#oldestSignature = this.#signature + 1;
    const reply = host === "cdn" ? this.#fromCdn(request, fault) : this.#fromHub(request, fault);
    return fault === null ? reply : distort(reply, fault);
  }

  #control(request: WireRequest): WireReply | null {
    if (request.path === "/_log") return json(this.log);
    if (request.path === "/_reset") {
      this.reset();
      return json(true);
    }
    if (request.path !== "/_fault") return null;
    const fault: Fault = JSON.parse(request.body);
    this.fault(fault);
    return json(true);
  }

  #takeFault(request: WireRequest): Fault | null {
    for (const entry of this.#faults) {
      const { fault } = entry;
      if (entry.left <= 0 || !new RegExp(fault.match).test(request.path)) continue;
      if (fault.method !== undefined && fault.method !== request.method) continue;
      if (entry.skip-- > 0) continue;
      entry.left--;
      return fault;
    }
    return null;
  }

  #fromHub(request: WireRequest, fault: Fault | null): WireReply {
    const url = new URL(request.path, "http://hub");
    const api = /^\/api\/models\/([^/]+\/[^/]+)\/(revision|tree|paths-info)\/([^/]+)$/.exec(url.pathname);
    const file = /^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/.exec(url.pathname);
    const name = api?.[1] ?? file?.[1] ?? "";
    const repo = this.#repos.get(name);
    const refusal = repoRefusal(repo, request.headers.get("authorization") ?? null, api?.[2] === "revision");
    if (refusal !== null) return refusal;
    if (repo === undefined) return refused(404, "RepoNotFound");
    const revision = decodeURIComponent(api?.[3] ?? file?.[2] ?? "");
    const commit = revision === "main" ? repo.main : revision;
    const files = repo.commits.get(commit);
    if (files === undefined) return refused(404, "RevisionNotFound");
    if (api?.[2] === "revision") {
      const siblings = [...files.keys()].map((rfilename) => ({ rfilename }));
      const gated = repo.state === "gated" ? "manual" : false;
      return json({ id: name, modelId: name, sha: commit, private: repo.state === "private", gated, siblings });
    }
    if (api?.[2] === "paths-info") {
      const { paths }: { paths: string[] } = JSON.parse(request.body);
      return json(paths.flatMap((path) => treeEntry(path, files.get(path)) ?? []));
    }
    if (api?.[2] === "tree") {
      const reply = treePage(url, files, this.url);
      if (fault?.kind === "swap") this.put(name, Object.fromEntries([...files].map(([k, v]) => [k, flipped(v, 0)])));
      return reply;
    }
    return this.#resolveFile(request, name, commit, decodeURIComponent(file?.[3] ?? ""), files);
  }

  #resolveFile(request: WireRequest, repo: string, commit: string, path: string, files: Files): WireReply {
    const bytes = files.get(path);
    if (bytes === undefined) return refused(404, "EntryNotFound");
    const common = { "X-Repo-Commit": commit, "Accept-Ranges": "bytes" };
    if (!isLfs(path)) return ranged(request, bytes, { ...common, ETag: `"${gitSha1(bytes)}"` });
    this.#signature++;
    const location = `http://127.0.0.1:${this.#cdn?.port}/cdn/${repo}/${commit}/${path}?sig=${this.#signature}`;
    const linked = { "X-Linked-Size": String(bytes.length), "X-Linked-Etag": `"${sha256(bytes)}"` };
    return { status: 302, headers: { ...common, ...linked, Location: location }, body: new Uint8Array(0) };
  }

  #fromCdn(request: WireRequest, fault: Fault | null): WireReply {
    if (request.headers.has("authorization")) return refused(400, "TokenSentToTheDownloadHost");
    const url = new URL(request.path, "http://cdn");
    if (Number(url.searchParams.get("sig")) < this.#oldestSignature) return refused(403, "Expired");
    const [, owner, name, commit = "", ...rest] = url.pathname.split("/").filter((part) => part !== "");
    const bytes = this.#repos
      .get(`${owner}/${name}`)
      ?.commits.get(commit)
      ?.get(decodeURIComponent(rest.join("/")));
    if (bytes === undefined) return refused(404, "NoSuchKey");
    const plain: WireRequest = fault?.kind === "norange" ? { ...request, headers: new Map() } : request;
    return ranged(plain, bytes, { ETag: `"${sha256(bytes)}"` });
  }
}

function repoRefusal(repo: Repo | undefined, auth: string | null, isInfo: boolean): WireReply | null {
  const allowed = auth === `Bearer ${GOOD_TOKEN}`;
  if (auth !== null && !allowed) return refused(401, null);
  if (repo === undefined || repo.state === "missing" || (repo.state === "private" && !allowed)) {
    return refused(auth === null ? 401 : 404, "RepoNotFound");
  }
  if (repo.state === "disabled") return refused(403, "DisabledRepo");
  // The hub tells about a gated repository, but gives neither files nor their addresses.
  return repo.state === "gated" && !allowed && !isInfo ? refused(auth === null ? 401 : 403, "GatedRepo") : null;
}

function distort(reply: WireReply, fault: Fault): WireReply {
  if (fault.kind === "cut" || fault.kind === "stall") return { ...reply, manner: fault };
  if (fault.kind === "slow") return { ...reply, manner: { kind: "slow", bytesPerS: fault.bytes_per_s } };
  if (fault.kind === "short") return { ...reply, manner: { kind: "short", bytes: fault.bytes } };
  if (fault.kind === "corrupt") return { ...reply, body: flipped(reply.body, fault.offset) };
  if (fault.kind === "wrongtotal") {
    const range = (reply.headers["Content-Range"] ?? "").replace(/\/\d+$/, "/99");
    return { ...reply, headers: { ...reply.headers, "Content-Range": range } };
  }
  if (fault.kind !== "etag") return reply;
  const entries = Object.entries(reply.headers);
  const isEtag = ([name]: [string, string]) => /etag$/i.test(name);
  if (fault.form === "none")
    return { ...reply, headers: Object.fromEntries(entries.filter((entry) => !isEtag(entry))) };
  const changed = entries.map((entry): [string, string] => {
    const [name, value] = entry;
    if (fault.form === "lowercase") return [name.toLowerCase(), value];
    return isEtag(entry) ? [name, `W/${value}`] : entry;
  });
  return { ...reply, headers: Object.fromEntries(changed) };
}

function treePage(url: URL, files: Files, base: string): WireReply {
  const start = Number(url.searchParams.get("cursor") ?? 0);
  const all = [...files];
  const folders = [
    ...new Set(all.flatMap(([path]) => (path.includes("/") ? [path.slice(0, path.lastIndexOf("/"))] : []))),
  ];
  const page = all.slice(start, start + PAGE).flatMap(([path, bytes]) => treeEntry(path, bytes) ?? []);
  const directories =
    start === 0 ? folders.map((path) => ({ type: "directory", path, size: 0, oid: "0".repeat(40) })) : [];
  const reply = json([...directories, ...page]);
  if (start + PAGE >= all.length) return reply;
  const next = `${base}${url.pathname}?recursive=true&cursor=${start + PAGE}`;
  return { ...reply, headers: { ...reply.headers, Link: `<${next}>; rel="next"` } };
}

function treeEntry(path: string, bytes: Uint8Array | undefined): object | null {
  if (bytes === undefined) return null;
  const size = bytes.length;
  if (!isLfs(path)) return { type: "file", path, size, oid: gitSha1(bytes) };
  const oid = sha256(bytes);
  const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${oid}\nsize ${size}\n`;
  const lfs = { oid, size, pointerSize: pointer.length };
  return { type: "file", path, size, oid: gitSha1(toBytes(pointer)), lfs };
}

function ranged(request: WireRequest, bytes: Uint8Array, headers: Record<string, string>): WireReply {
  const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.get("range") ?? "");
  if (range === null) return { status: 200, headers, body: bytes };
  const begin = Number(range[1]);
  const end = Math.min(Number(range[2]) + 1, bytes.length);
  if (begin >= bytes.length) return refused(416, null);
  const contentRange = `bytes ${begin}-${end - 1}/${bytes.length}`;
  return { status: 206, headers: { ...headers, "Content-Range": contentRange }, body: bytes.subarray(begin, end) };
}

function isLfs(path: string): boolean {
  return /\.(safetensors|gguf|bin)$/.test(path);
}

function redirect(location: string): WireReply {
  return { status: 302, headers: { Location: location }, body: new Uint8Array(0) };
}

function refused(status: number, code: string | null): WireReply {
  return { status, headers: code === null ? {} : { "X-Error-Code": code }, body: toBytes("refused") };
}

function json(value: unknown): WireReply {
  return { status: 200, headers: { "Content-Type": "application/json" }, body: toBytes(JSON.stringify(value)) };
}

function toBytes(data: Uint8Array | string): Uint8Array {
  return typeof data === "string" ? new TextEncoder().encode(data) : data;
}

function flipped(bytes: Uint8Array, offset: number): Uint8Array {
  const copy = Uint8Array.from(bytes);
  copy[offset] = (copy[offset] ?? 0) ^ 1;
  return copy;
}

const hashes = new WeakMap<Uint8Array, string>();

/** SHA-256 in hex, remembered: the hub states it with every reply. */
export function sha256(bytes: Uint8Array): string {
  const known = hashes.get(bytes) ?? createHash("sha256").update(bytes).digest("hex");
  hashes.set(bytes, known);
  return known;
}

export function gitSha1(bytes: Uint8Array): string {
  return createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");
}
