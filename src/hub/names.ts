/**
 * The grammar of model names: a path, `gguf:<owner>/<repo>/<file>`, `org/name`, or a bare name (registry id or local
 * folder), each but a path with an optional `@<branch, tag or commit>`. Parsing touches no disk: whether a text that
 * looks like a name exists as a path is asked by the caller first.
 */
import { HubError } from "./errors.ts";

export type ModelName =
  | { readonly kind: "path"; readonly path: string }
  | { readonly kind: "gguf"; readonly repo: string; readonly file: string; readonly revision: string | null }
  | { readonly kind: "repo"; readonly repo: string; readonly revision: string | null }
  | { readonly kind: "bare"; readonly name: string; readonly revision: string | null };

const REPO = /^[A-Za-z0-9][\w.-]{0,95}\/[A-Za-z0-9][\w.-]{0,95}$/;
const BARE = /^[A-Za-z0-9][\w.-]{0,190}$/;
const REVISION = /^[A-Za-z0-9][\w./-]{0,254}$/;

/** Splits and checks a name. Throws `HubError` "bad_name" that says which form is wrong. */
export function parseModelName(text: string): ModelName {
  if (text === "" || text.includes("\0")) throw new HubError("bad_name", "the model name is empty");
  if (text.startsWith("gguf:")) return parseGguf(text);
  if (/^(\/|\.\/|\.\.\/|~)/.test(text) || text === "." || text === "..") return { kind: "path", path: text };
  const { body, revision } = splitRevision(text);
  if (body.includes("/")) return { kind: "repo", repo: checkedRepo(body, text), revision };
  if (!BARE.test(body) || body.includes("..")) {
    throw new HubError("bad_name", `"${text}" is no model name: give a registry id, org/name, or a path (./folder)`);
  }
  return { kind: "bare", name: body, revision };
}

/** True for a full commit hash: such a revision needs no look-up and never changes. */
export function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}$/.test(revision);
}

function parseGguf(text: string): ModelName {
  const { body, revision } = splitRevision(text.slice("gguf:".length));
  const [owner = "", name = "", ...rest] = body.split("/");
  const file = rest.join("/");
  if (rest.length === 0 || !/\.gguf$/i.test(file)) {
    throw new HubError("bad_name", `"${text}" must be gguf:<owner>/<repo>/<file>.gguf`);
  }
  if (unsafePath(file)) throw new HubError("bad_name", `"${text}": the file may not leave its repository`);
  return { kind: "gguf", repo: checkedRepo(`${owner}/${name}`, text), file, revision };
}

function splitRevision(text: string): { body: string; revision: string | null } {
  const at = text.lastIndexOf("@");
  if (at < 0) return { body: text, revision: null };
  return { body: text.slice(0, at), revision: checkedRevision(text.slice(at + 1)) };
}

/** A revision that is safe as a file name below `refs/` and in an address. Throws `HubError` "bad_name". */
export function checkedRevision(revision: string): string {
  if (REVISION.test(revision) && !revision.includes("..") && !revision.includes("//") && !revision.endsWith("/")) {
    return revision;
  }
  throw new HubError("bad_name", `"${revision}" is no revision: give a branch, a tag or a commit of 40 hex digits`);
}

function checkedRepo(repo: string, text: string): string {
  if (REPO.test(repo) && !repo.includes("--") && !repo.includes("..")) return repo;
  throw new HubError("bad_name", `"${text}" is no repository name (org/name); a local folder needs ./ or / before it`);
}

/**
 * True for a path that must not be written below a folder: absolute, leaving it, or with characters or names that
 * some file system reads otherwise (backslash, control characters, Windows device names).
 */
export function unsafePath(path: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
  if (path === "" || /[\\\x00-\x1f\x7f]/.test(path) || /^[A-Za-z]:/.test(path)) return true;
  return path
    .split("/")
    .some((part) => part === "" || part === "." || part === ".." || /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i.test(part));
}

/** The candidates nearest to `name` by edit distance (at most a third of its length away), best first, three at most. */
export function nearestNames(name: string, candidates: readonly string[]): string[] {
  const wanted = name.toLowerCase();
  const limit = Math.max(2, Math.ceil(wanted.length / 3));
  return [...new Set(candidates)]
    .map((candidate) => ({ candidate, distance: editDistance(wanted, candidate.toLowerCase()) }))
    .filter(({ candidate, distance }) => distance <= limit || candidate.toLowerCase().includes(wanted))
    .sort((a, b) => a.distance - b.distance || a.candidate.localeCompare(b.candidate))
    .slice(0, 3)
    .map(({ candidate }) => candidate);
}

/** Levenshtein distance, one row at a time. */
export function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitute = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, substitute));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
