/**
 * The direction of imports: a file knows only its own room and the rooms listed for it. An undeclared edge is mended by
 * moving code, not by an exception here. Reads the import statements themselves, types included.
 */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const root = join(import.meta.dir, "../..");
const source = join(root, "src");

/** A room, and the rooms that it may import. Files directly in `src/` are rooms of their own. */
const TABLE: Readonly<Record<string, readonly string[]>> = {
  checkpoint: [],
  mlx: [],
  text: [],
  web: [],
  hub: ["checkpoint"],
  machine: ["mlx"],
  nn: ["mlx"],
  cache: ["nn", "mlx"],
  models: ["nn", "mlx", "checkpoint"],
  drafters: ["nn", "mlx", "checkpoint"],
  decoding: ["models", "drafters", "cache", "nn", "mlx"],
  engine: ["decoding", "cache", "models", "drafters", "hub", "checkpoint", "nn", "mlx", "machine", "text"],
  server: ["engine", "text", "machine"],
  cli: ["server", "engine", "hub", "machine", "text", "checkpoint"],
  "main.ts": ["cli"],
  library: ["engine", "decoding", "models", "drafters", "text", "hub"],
  "index.ts": ["library", "engine", "decoding", "models", "drafters", "text", "hub"],
};

/** Of `engine` the server sees only these. */
const ENGINE_FOR_SERVER = new Set(["engine/client.ts", "engine/protocol.ts"]);
/** Of `engine` only this folder sees `text`: the grammar worker has the model's tokens as text. */
const TEXT_FOR_ENGINE = "engine/grammar/";
/** The only room that touches native code. */
const FFI_ROOM = "mlx";

interface Edge {
  readonly from: string;
  readonly to: string;
}

const room = (path: string) => path.split("/")[0] ?? path;

/** Specifiers in `text`, a module's source, of every form of import. */
function specifiers(text: string): string[] {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
  const forms = [
    /\bfrom\s*["']([^"'\n]+)["']/g,
    /\bimport\s*["']([^"'\n]+)["']/g,
    /\bimport\s*\(\s*["']([^"'\n]+)["']/g,
    /\brequire\s*\(\s*["']([^"'\n]+)["']/g,
  ];
  return forms.flatMap((form) => [...code.matchAll(form)].map((match) => match[1] ?? ""));
}

const files = [...new Bun.Glob("**/*.ts").scanSync({ cwd: source })].sort();

function edges(file: string): Edge[] {
  return specifiers(readFileSync(join(source, file), "utf8"))
    .filter((specifier) => specifier.startsWith("."))
    .map((specifier) => ({ from: file, to: relative(source, join(source, dirname(file), specifier)) }));
}

/** Why `edge` is not allowed; null when it is. */
function objection({ from, to }: Edge): string | null {
  if (to.startsWith("..")) {
    return to === "../package.json" || to.startsWith("../metal/") ? null : "leaves src/";
  }
  const [own, other] = [room(from), room(to)];
  if (own === other) return null;
  if (TABLE[own]?.includes(other) !== true) return `${own} may not import ${other}`;
  if (own === "server" && other === "engine" && !ENGINE_FOR_SERVER.has(to)) {
    return "the server sees only the engine's client and protocol";
  }
  if (own === "engine" && other === "text" && !from.startsWith(TEXT_FOR_ENGINE)) {
    return "of the engine only the grammar worker sees text";
  }
  return null;
}

describe("imports", () => {
  test("the program has files", () => {
    expect(files.length).toBeGreaterThan(20);
  });

  test("every room is in the table", () => {
    expect([...new Set(files.map(room))].filter((name) => !Object.hasOwn(TABLE, name))).toEqual([]);
  });

  test("the table has no cycle", () => {
    const depth = (name: string, seen: readonly string[]): number => {
      expect(seen).not.toContain(name);
      return 1 + Math.max(0, ...(TABLE[name] ?? []).map((below) => depth(below, [...seen, name])));
    };
    for (const name of Object.keys(TABLE)) depth(name, []);
  });

  test("every edge is declared", () => {
    const wrong = files.flatMap(edges).flatMap((edge) => {
      const why = objection(edge);
      return why === null ? [] : [`src/${edge.from} → src/${edge.to}: ${why}`];
    });
    expect(wrong).toEqual([]);
  });

  test(`bun:ffi is used in ${FFI_ROOM} only`, () => {
    const users = files.filter((file) => specifiers(readFileSync(join(source, file), "utf8")).includes("bun:ffi"));
    expect(users.map(room).filter((name) => name !== FFI_ROOM)).toEqual([]);
  });

  test("the rules refuse what they should", () => {
    expect(objection({ from: "nn/linear.ts", to: "models/llama.ts" })).toBe("nn may not import models");
    expect(objection({ from: "server/app.ts", to: "engine/scheduler.ts" })).toContain("client and protocol");
    expect(objection({ from: "server/app.ts", to: "engine/client.ts" })).toBeNull();
    expect(objection({ from: "engine/scheduler.ts", to: "text/index.ts" })).toContain("only the grammar worker");
    expect(objection({ from: "engine/grammar/host.ts", to: "text/index.ts" })).toBeNull();
    expect(objection({ from: "attic/old.ts", to: "mlx/array.ts" })).toBe("attic may not import mlx");
    expect(
      specifiers('import type { A } from "./a.ts"; await import("../b.ts"); export * from "./c.ts"; // from "./d"'),
    ).toEqual(expect.arrayContaining(["./a.ts", "../b.ts", "./c.ts"]));
  });
});
