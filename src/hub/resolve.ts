/**
 * From a name to a folder or GGUF file that may be loaded. A pure look-up in a fixed order, and a download only at the
 * end. A copy that is found but cannot be used is reported, never skipped silently: then only the hub's own cache and
 * a download of the same repository may take its place.
 */
import { readdir, stat } from "node:fs/promises";
import { join, resolve as resolvePath } from "node:path";
import { type DownloadOptions, type DownloadTuning, downloadGguf, downloadRepo, type Judge } from "./download.ts";
import { type Environment, type HubSettings, homeFolder, hubSettings } from "./environment.ts";
import { HubError } from "./errors.ts";
import { ggufParts, type ListedFile, listGgufs, type ModelKind } from "./file-selection.ts";
import { fileSize, RepoCache } from "./hf-cache.ts";
import { type ApiTuning, HubApi } from "./hub-api.ts";
import { describeMissing, inspectFolder, onlyGguf } from "./local-models.ts";
import { type LocalSource, localFolders, localRoots } from "./local-sources.ts";
import { checkedRevision, isCommit, type ModelName, nearestNames, parseModelName } from "./names.ts";
import type { DownloadProgress } from "./progress.ts";
import { REGISTRY, registryRow } from "./registry.ts";

/** A question about newer versions must not delay a model that is here. */
const FRESHNESS_LIMIT_MS = 3_000;

export interface ResolveOptions {
  /** Never connect. */
  readonly offline: boolean;
  /** Branch, tag or commit; `@…` in the name wins. Default `main`. */
  readonly revision?: string | undefined;
  readonly kind?: ModelKind | undefined;
  /** Ask the hub for the newest commit and fetch it even if a complete copy is here. */
  readonly refresh?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Twice a second while something is downloaded, and once at its end. */
  readonly onProgress?: ((progress: DownloadProgress) => void) | undefined;
  /** One line worth telling the user. */
  readonly onNotice?: ((text: string) => void) | undefined;
  /** May refuse (by throwing) before weights are fetched or read. */
  readonly judge?: Judge | undefined;
  /** Supplies the GGUF file of a registry row that is shipped with the program; null: not in this build. */
  readonly embedded?: ((id: string) => Promise<string> | null) | undefined;
  readonly env?: Environment | undefined;
  readonly tuning?: Partial<DownloadTuning & ApiTuning> | undefined;
}

export type ModelSource = "path" | "embedded" | LocalSource | "hf-cache" | "download";

export type ResolvedModel = ({ readonly dir: string } | { readonly file: string }) & {
  readonly source: ModelSource;
  readonly repo?: string;
  readonly commit?: string;
};

/**
 * Finds or downloads the model that `name` means. Throws `HubError`, what `judge` throws, and nothing else but system
 * errors of a broken disk.
 */
export async function resolveModel(name: string, options: ResolveOptions): Promise<ResolvedModel> {
  return new Resolution(options).find(name);
}

class Resolution {
  readonly #options: ResolveOptions;
  readonly #env: Environment;
  readonly #settings: HubSettings;
  readonly #kind: ModelKind;

  constructor(options: ResolveOptions) {
    this.#options = options;
    this.#env = options.env ?? process.env;
    this.#settings = hubSettings(this.#env, options.offline);
    this.#kind = options.kind ?? "target";
  }

  async find(text: string): Promise<ResolvedModel> {
    const here = text === "" || text.startsWith("gguf:") ? null : await this.#fromPath(this.#expand(text));
    if (here !== null) return here;
    const name = parseModelName(text);
    if (name.kind === "path")
      throw new HubError(
        "not_found",
        `no model at ${this.#expand(text)}: a folder with config.json and safetensors, or a .gguf file, is needed`,
      );
    if (name.kind === "gguf") return this.#fromGguf(name);
    if (name.kind === "repo") return this.#fromRepo(name.repo, this.#revision(name));
    const row = registryRow(name.name);
    if (row?.embedded === true) {
      const file = await this.#options.embedded?.(row.id);
      if (file !== undefined && file !== null) return { file, source: "embedded", repo: row.repo };
    }
    if (row !== null) return this.#fromRepo(row.repo, this.#revision(name));
    const local = await this.#fromLocalFolders(name.name);
    if (local.found !== null) return local.found;
    throw local.problem ?? new HubError("not_found", await this.#unknown(name.name));
  }

  /** A model at an existing path; null if there is none, so that a name may still mean something else. */
  async #fromPath(path: string): Promise<ResolvedModel | null> {
    const info = await stat(path).catch(() => null);
    if (info === null) return null;
    if (info.isDirectory()) return this.#inspect(path, "path");
    return /\.gguf$/i.test(path) ? { file: await this.#judgedFile(path), source: "path" } : null;
  }

  async #fromRepo(repo: string, revision: string): Promise<ResolvedModel> {
    const local = await this.#fromLocalFolders(repo);
    if (local.found !== null) return local.found;
    const cached = await this.#fromHubCache(repo, revision);
    if (cached.found !== null && !(await this.#wantsNewer(repo, revision, cached.found))) return cached.found;
    if (this.#settings.offline) throw this.#notHere(repo, local.problem, cached.missing);
    const { cacheDir } = this.#settings;
    const got = await downloadRepo(this.#api(), cacheDir, repo, revision, this.#downloadOptions());
    return { ...got, source: "download", repo };
  }

  async #fromGguf(name: ModelName & { kind: "gguf" }): Promise<ResolvedModel> {
    const { repo, file } = name;
    const revision = this.#revision(name);
    const cache = new RepoCache(this.#settings.cacheDir, repo);
    const commit = await this.#cachedCommit(cache, revision);
    const missing = commit === null ? [file] : await missingGgufParts(cache, commit, file);
    if (commit !== null && missing.length === 0) {
      const found = { source: "hf-cache", repo, commit } as const;
      const path = join(cache.snapshotDir(commit), file);
      if (!(await this.#wantsNewer(repo, revision, found))) return { file: await this.#judgedFile(path), ...found };
    }
    if (this.#settings.offline) throw this.#notHere(repo, null, missing);
    const { cacheDir } = this.#settings;
    const got = await downloadGguf(this.#api(), cacheDir, repo, file, revision, this.#downloadOptions());
    return { ...got, source: "download", repo };
  }

  /** Looks through the folders in order. After a copy that cannot be used no further folder is tried. */
  async #fromLocalFolders(name: string): Promise<{ found: ResolvedModel | null; problem: HubError | null }> {
    for (const { source, dir } of localFolders(name, this.#env)) {
      try {
        const found = await this.#inspect(dir, source);
        if (found !== null) return { found: name.includes("/") ? { ...found, repo: name } : found, problem: null };
      } catch (error) {
        if (!(error instanceof HubError) || error.kind !== "unusable") throw error;
        this.#notice(error.message);
        return { found: null, problem: error };
      }
    }
    return { found: null, problem: null };
  }

  /** A complete snapshot of the Hugging Face cache, or what is missing to make one. */
  async #fromHubCache(
    repo: string,
    revision: string,
  ): Promise<{ found: (ResolvedModel & { commit: string }) | null; missing: readonly string[] }> {
    const cache = new RepoCache(this.#settings.cacheDir, repo);
    const commit = await this.#cachedCommit(cache, revision);
    const commits = commit === null && !isCommit(revision) ? await cache.snapshots() : commit === null ? [] : [commit];
    const complete: { dir: string; commit: string; weights: readonly ListedFile[] }[] = [];
    let missing: readonly string[] = [];
    for (const candidate of commits) {
      const dir = cache.snapshotDir(candidate);
      const content = await inspectFolder(dir, this.#kind, await cache.readTree(candidate));
      if (content.kind === "ggufs" && this.#settings.offline) {
        throw new HubError("unusable", listGgufs(content.files, repo));
      }
      if (content.kind === "incomplete") missing = content.missing;
      if (content.kind === "model") complete.push({ dir, commit: candidate, weights: content.weights });
    }
    const [only] = complete;
    if (only === undefined || complete.length > 1) return { found: null, missing };
    await this.#options.judge?.({ dir: only.dir, weights: only.weights });
    return { found: { dir: only.dir, commit: only.commit, source: "hf-cache", repo }, missing: [] };
  }

  async #cachedCommit(cache: RepoCache, revision: string): Promise<string | null> {
    if (!isCommit(revision)) return cache.readRef(revision);
    return (await exists(cache.snapshotDir(revision))) ? revision : null;
  }

  /** Asks the hub whether a branch has moved; only `refresh` acts on it and insists on an answer. */
  async #wantsNewer(repo: string, revision: string, found: { readonly commit?: string }): Promise<boolean> {
    if (this.#settings.offline || isCommit(revision)) return false;
    const { refresh = false, signal } = this.#options;
    try {
      const limit = refresh ? undefined : FRESHNESS_LIMIT_MS;
      const newest = await this.#api().revision(repo, revision, signal, limit);
      if (newest === found.commit) return false;
      if (!refresh) this.#notice(`a newer version of ${repo} is on the hub: "mlx-dspark pull ${repo}" fetches it`);
      return refresh;
    } catch (error) {
      signal?.throwIfAborted();
      if (refresh) throw error;
      const cache = new RepoCache(this.#settings.cacheDir, repo);
      const date = (await stat(cache.snapshotDir(found.commit ?? ""))).mtime.toISOString().slice(0, 10);
      this.#notice(`${new URL(this.#settings.endpoint).host} gave no answer: using the copy of ${repo} of ${date}`);
      return false;
    }
  }

  /** A usable model in a folder, or null if nothing is there. Throws `HubError` "unusable" for half a model. */
  async #inspect(dir: string, source: "path" | LocalSource): Promise<ResolvedModel | null> {
    const content = await inspectFolder(dir, this.#kind);
    if (content.kind === "none") return null;
    if (content.kind === "incomplete") {
      const what = `it is incomplete (missing or empty: ${describeMissing(content.missing)})`;
      throw new HubError("unusable", `found at ${dir}, but ${what}`);
    }
    if (content.kind === "ggufs") return { file: await this.#judgedFile(onlyGguf(dir, content.files)), source };
    await this.#options.judge?.({ dir, weights: content.weights });
    return { dir, source };
  }

  async #judgedFile(path: string): Promise<string> {
    const weights: ListedFile[] = [];
    for (const part of ggufParts(path)) {
      const size = await fileSize(part);
      if (size === null) throw new HubError("unusable", `${part} is missing: a split GGUF file needs all its parts`);
      weights.push({ path: part, size });
    }
    await this.#options.judge?.({ dir: null, weights });
    return path;
  }

  #notHere(repo: string, problem: HubError | null, missing: readonly string[]): HubError {
    const found = problem === null ? "" : `; ${problem.message}`;
    const why = "offline mode is set (--offline or HF_HUB_OFFLINE)";
    if (missing.length === 0) return new HubError("offline", `${repo} is not on this machine and ${why}${found}`);
    const text = `${repo} is not complete on this machine (missing: ${describeMissing(missing)}) and ${why}${found}`;
    return new HubError("offline", text);
  }

  async #unknown(name: string): Promise<string> {
    const folders = await Promise.all(localRoots(this.#env).map(({ dir }) => readdir(dir).catch(() => [])));
    const near = nearestNames(name, [...REGISTRY.map(({ id }) => id), ...folders.flat()]);
    const hint = near.length === 0 ? 'see "mlx-dspark models"' : `did you mean ${near.join(" or ")}?`;
    return `no model "${name}" here: ${hint} Other models are named org/name, or by a path`;
  }

  #revision(name: { readonly revision: string | null }): string {
    return checkedRevision(name.revision ?? this.#options.revision ?? "main");
  }

  #downloadOptions(): DownloadOptions {
    const { signal, onProgress, onNotice, judge, tuning } = this.#options;
    return { kind: this.#kind, signal, onProgress, onNotice, judge, tuning };
  }

  #api(): HubApi {
    return new HubApi(this.#settings, this.#options.tuning);
  }

  #notice(text: string): void {
    this.#options.onNotice?.(text);
  }

  #expand(text: string): string {
    return resolvePath(text === "~" || text.startsWith("~/") ? join(homeFolder(this.#env), text.slice(1)) : text);
  }
}

async function missingGgufParts(cache: RepoCache, commit: string, file: string): Promise<string[]> {
  const tree = await cache.readTree(commit);
  const missing: string[] = [];
  for (const part of ggufParts(file)) {
    const expected = tree?.find(({ path }) => path === part)?.size ?? null;
    const size = await fileSize(join(cache.snapshotDir(commit), part));
    if (size === null || (expected !== null && size !== expected)) missing.push(part);
  }
  return missing;
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null)) !== null;
}
