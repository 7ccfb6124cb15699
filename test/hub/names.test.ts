/** The grammar of names, edit distance, the registry's matching, file selection, and the cache root. */
import { describe, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import fc from "fast-check";
import { cacheRoot, wantedCacheRoot } from "../../src/hub/cache-root.ts";
import { ggufParts, indexShards, selectGgufs, selectSmallFiles, selectWeights } from "../../src/hub/file-selection.ts";
import { editDistance, nearestNames, parseModelName, unsafePath } from "../../src/hub/names.ts";
import { REGISTRY, registryRow, registryRowFor } from "../../src/hub/registry.ts";

describe("names", () => {
  test.each([
    ["org/name", { kind: "repo", repo: "org/name", revision: null }],
    ["org/name@v1.0", { kind: "repo", repo: "org/name", revision: "v1.0" }],
    ["org/name@refs/pr/1", { kind: "repo", repo: "org/name", revision: "refs/pr/1" }],
    ["Qwen3-8B", { kind: "bare", name: "Qwen3-8B", revision: null }],
    ["qwen3-8b@main", { kind: "bare", name: "qwen3-8b", revision: "main" }],
    ["./a b", { kind: "path", path: "./a b" }],
    ["/a@b", { kind: "path", path: "/a@b" }],
    ["~/m", { kind: "path", path: "~/m" }],
    ["gguf:o/r/f.gguf", { kind: "gguf", repo: "o/r", file: "f.gguf", revision: null }],
    ["gguf:o/r/sub/dir/f.GGUF@v2", { kind: "gguf", repo: "o/r", file: "sub/dir/f.GGUF", revision: "v2" }],
  ])("%s", (text, expected) => {
    expect(parseModelName(text)).toEqual(expected as never);
  });

  test.each([
    "",
    "a/b/c",
    "org/",
    "/",
    "-org/x",
    "org/-x",
    "o--g/x",
    "org/a..b",
    "org/a b",
    "a..b",
    ".hidden",
    "gguf:o/r",
    "gguf:o/r/f.bin",
    "gguf:o/r/../f.gguf",
    "gguf:o/r//f.gguf",
    "org/x@",
    "org/x@../y",
    "org/x@-f",
    "a\0b",
    `${"a".repeat(97)}/b`,
  ])("refused: %j", (text) => {
    if (text === "/") expect(parseModelName(text).kind).toBe("path");
    else expect(() => parseModelName(text)).toThrow(expect.objectContaining({ name: "HubError", kind: "bad_name" }));
  });

  test("no text makes a repository or file name that leaves its folder", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom("a", "B", "/", ".", "-", "_", "@", "\\", "~", ":", " ") }),
        (text) => {
          let name: ReturnType<typeof parseModelName>;
          try {
            name = parseModelName(`gguf:${text}`.slice(text.length % 2 === 0 ? 0 : 5));
          } catch (error) {
            expect(error).toMatchObject({ kind: "bad_name" });
            return;
          }
          if (name.kind === "path") return;
          if (name.kind === "gguf") expect(unsafePath(name.file)).toBe(false);
          const id = name.kind === "bare" ? name.name : name.repo;
          expect(unsafePath(id)).toBe(false);
          expect(id).not.toMatch(/\.\.|\\|^\//);
        },
      ),
    );
  });

  test("edit distance is a metric", () => {
    const word = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 8 });
    fc.assert(
      fc.property(word, word, word, (a, b, c) => {
        expect(editDistance(a, b)).toBe(editDistance(b, a));
        expect(editDistance(a, b) === 0).toBe(a === b);
        expect(editDistance(a, c)).toBeLessThanOrEqual(editDistance(a, b) + editDistance(b, c));
        expect(editDistance(a, b)).toBeGreaterThanOrEqual(Math.abs(a.length - b.length));
      }),
    );
    expect(editDistance("kitten", "sitting")).toBe(3);
  });

  test("nearest names: close ones, best first", () => {
    expect(nearestNames("qwen3-4", ["qwen3-4b", "qwen3-14b", "gemma-4-12b"])).toEqual(["qwen3-4b", "qwen3-14b"]);
    expect(nearestNames("xyz", ["qwen3-4b"])).toEqual([]);
  });
});

describe("registry", () => {
  test("ids are unique, lower case, and lead to valid repositories", () => {
    expect(new Set(REGISTRY.map(({ id }) => id)).size).toBe(REGISTRY.length);
    for (const { id, repo } of REGISTRY) {
      expect(parseModelName(id)).toEqual({ kind: "bare", name: id.toLowerCase(), revision: null });
      expect(parseModelName(repo).kind).toBe("repo");
      expect(registryRow(id.toUpperCase())?.id).toBe(id);
      expect(registryRowFor(repo)?.id).toBe(id);
    }
    expect(registryRow("qwen3")).toBeNull();
  });

  test("matches by the last path part, dashes or not, whatever the quantization", () => {
    expect(registryRowFor("/models/Qwen3-14B-4bit/")?.id).toBe("qwen3-14b");
    expect(registryRowFor("someone/minicpm5-2b-it")?.id).toBe("minicpm5-2b");
    expect(registryRowFor("qwen3-8b/other")).toBeNull();
  });
});

describe("files", () => {
  const list = (...paths: string[]) => paths.map((path) => ({ path, size: 1 }));
  const paths = (files: readonly { path: string }[]) => files.map(({ path }) => path);

  test("small files by allow list", () => {
    const files = list(
      "config.json",
      "sub/config.json",
      "x.py",
      "README.md",
      "tokenizer.model",
      "additional_chat_templates/a.jinja",
    );
    expect(paths(selectSmallFiles(files))).toEqual(["config.json", "additional_chat_templates/a.jinja"]);
  });

  test("weights: the index decides; without one, the root's own", () => {
    const files = list(
      "b.safetensors",
      "a.safetensors",
      "x.fp32.safetensors",
      "adapter_model.safetensors",
      "d/c.safetensors",
    );
    expect(paths(selectWeights(files, null, "target", "o/r"))).toEqual(["a.safetensors", "b.safetensors"]);
    expect(paths(selectWeights(files, '{"weight_map":{"t":"b.safetensors"}}', "target", "o/r"))).toEqual([
      "b.safetensors",
    ]);
    expect(paths(selectWeights(files, null, "drafter", "o/r"))).toHaveLength(4);
  });

  test.each([
    "",
    "[]",
    "{}",
    '{"weight_map":[]}',
    '{"weight_map":{"a":1}}',
    '{"weight_map":{"a":"d/x.safetensors"}}',
    '{"weight_map":{"a":"x.bin"}}',
  ])("index %j is refused", (text) => {
    expect(() => indexShards(text, "o/r")).toThrow(expect.objectContaining({ kind: "unusable" }));
  });

  test("GGUF files: parts of split ones, projectors left out", () => {
    expect(ggufParts("d/a-00002-of-00003.gguf")).toEqual([
      "d/a-00001-of-00003.gguf",
      "d/a-00002-of-00003.gguf",
      "d/a-00003-of-00003.gguf",
    ]);
    expect(ggufParts("a.gguf")).toEqual(["a.gguf"]);
    const files = list("mmproj-a.gguf", "b.gguf", "a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "c.txt");
    expect(paths(selectGgufs(files))).toEqual(["a-00001-of-00002.gguf", "b.gguf"]);
  });
});

describe("cache root", () => {
  test("its own variable, then XDG_CACHE_HOME, then ~/.cache", () => {
    expect(wantedCacheRoot({ MLX_DSPARK_CACHE: "/a/b", XDG_CACHE_HOME: "/x", HOME: "/h" })).toBe("/a/b");
    expect(wantedCacheRoot({ MLX_DSPARK_CACHE: " ", XDG_CACHE_HOME: "/x", HOME: "/h" })).toBe("/x/mlx-dspark");
    expect(wantedCacheRoot({ HOME: "/h" })).toBe("/h/.cache/mlx-dspark");
  });

  test("is created; where it cannot be, a temporary folder, said once", () => {
    const home = mkdtempSync(join(tmpdir(), "root-test-"));
    const { TMPDIR } = process.env;
    process.env.TMPDIR = home;
    const said: string[] = [];
    const say = (line: string) => said.push(line);
    try {
      expect(cacheRoot({ HOME: home }, say)).toBe(join(home, ".cache", "mlx-dspark"));
      expect(existsSync(join(home, ".cache", "mlx-dspark"))).toBe(true);
      writeFileSync(join(home, "file"), "");
      const env = { MLX_DSPARK_CACHE: join(home, "file", "below") };
      const first = cacheRoot(env, say);
      expect(existsSync(first)).toBe(true);
      expect(cacheRoot(env, say)).toBe(first);
      expect(said).toHaveLength(1);
      expect(said[0]).toContain(`${join(home, "file", "below")} is not writable (ENOTDIR): using ${first}`);
      expect(dirname(first)).toBe(home);
    } finally {
      if (TMPDIR === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = TMPDIR;
      chmodSync(home, 0o700);
      rmSync(home, { recursive: true });
    }
  });
});
