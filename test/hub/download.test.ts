/** What a download leaves on the disk, what it takes and in which order, and what it says meanwhile. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import type { CheckpointPreview } from "../../src/hub/download.ts";
import type { DownloadProgress } from "../../src/hub/progress.ts";
import { gitSha1, sha256 } from "./server.ts";
import { CHOSEN, dirOf, modelFiles, noise, SHARD_A, SHARD_B, World } from "./world.ts";

let world: World;

beforeEach(async () => {
  world = await World.make();
});
afterEach(() => world.close());

function hashName(path: string): string {
  const data = modelFiles()[path] ?? "";
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
  return path.endsWith(".safetensors") ? sha256(bytes) : gitSha1(bytes);
}

/** All entries below a folder, folders left out. */
function filesBelow(dir: string): string[] {
  const entries = readdirSync(dir, { recursive: true, encoding: "utf8" });
  return entries.filter((path) => !lstatSync(join(dir, path)).isDirectory()).sort();
}

describe("layout", () => {
  // Compared with huggingface_hub 2.4.0 on this very server: the same entries but for its empty `.locks/…/*.lock`.
  test("is that of Python's huggingface_hub", async () => {
    const { commit = "" } = await world.resolve("org/m");
    const repo = "models--org--m";
    const expected = [
      "CACHEDIR.TAG",
      ...CHOSEN.map((path) => `${repo}/blobs/${hashName(path)}`),
      ...CHOSEN.map((path) => `${repo}/snapshots/${commit}/${path}`),
      `${repo}/refs/main`,
      `${repo}/trees/${commit}.json`,
    ];
    expect(filesBelow(world.cacheDir)).toEqual(expected.sort());
    for (const path of CHOSEN) {
      const up = path.includes("/") ? "../../../" : "../../";
      const link = join(world.repoDir(), "snapshots", commit, path);
      expect(readlinkSync(link)).toBe(`${up}blobs/${hashName(path)}`);
    }
    expect(readFileSync(join(world.repoDir(), "refs", "main"), "utf8")).toBe(commit);
    expect(readFileSync(join(world.cacheDir, "CACHEDIR.TAG"), "utf8")).toStartWith(
      "Signature: 8a477f597d28d172789f06886806bc55\n",
    );
    const tree: unknown = JSON.parse(readFileSync(join(world.repoDir(), "trees", `${commit}.json`), "utf8"));
    expect(tree).toMatchObject({
      format_version: 1,
      files: {
        "config.json": { size: 22, blob_id: hashName("config.json") },
        [SHARD_A]: { lfs_sha256: hashName(SHARD_A) },
        "README.md": {},
      },
    });
  });

  test("a tag is noted under refs, a commit is not", async () => {
    const commit = world.hub.put("org/m", modelFiles());
    await world.resolve(`org/m@${commit}`);
    expect(existsSync(join(world.repoDir(), "refs"))).toBe(false);
    expect(world.hub.lines()[0]).toContain("/tree/");
  });

  test("without links on the volume the blobs move into the snapshot, and are found there", async () => {
    const makeLink = async () => {
      throw Object.assign(new Error("no links here"), { code: "EPERM" });
    };
    const dir = dirOf(await world.resolve("org/m", { tuning: { makeLink } }));
    expect(filesBelow(dir)).toEqual(CHOSEN);
    expect(lstatSync(join(dir, SHARD_A)).isFile()).toBe(true);
    expect(readdirSync(join(world.repoDir(), "blobs"))).toEqual([]);
    world.hub.reset();
    const again = await world.resolve("org/m", { tuning: { makeLink } });
    expect(again.source).toBe("hf-cache");
    expect(world.hub.lines()).toEqual(["GET hub /api/models/org/m/revision/main"]);
  });

  test("a blob that is there already is linked, not fetched", async () => {
    await world.downloaded();
    world.hub.put("org/m", { ...modelFiles(), "config.json": '{"model_type":"qwen3"}' });
    const dir = dirOf(await world.resolve("org/m", { refresh: true }));
    expect(world.hub.lines().filter((line) => line.includes("/resolve/") || line.includes("cdn"))).toEqual([
      "GET hub /org/m/resolve/COMMIT/config.json",
    ]);
    expect(filesBelow(dir)).toEqual(CHOSEN);
  });
});

describe("order", () => {
  test("the judge sees configuration and sizes before any weights are asked for", async () => {
    const seen: CheckpointPreview[] = [];
    await world.resolve("org/m", {
      judge: (preview) => {
        seen.push(preview);
        expect(JSON.parse(readFileSync(join(preview.dir ?? "", "config.json"), "utf8")).model_type).toBe("llama");
        expect(existsSync(join(preview.dir ?? "", "tokenizer.json"))).toBe(true);
        expect(world.hub.lines().filter((line) => line.includes("safetensors") && !line.includes("index"))).toEqual([]);
      },
    });
    expect(seen).toHaveLength(1);
    expect(seen[0]?.weights.map(({ path, size }) => [path, size])).toEqual([
      [SHARD_A, 82020],
      [SHARD_B, 82020],
    ]);
  });

  test("a refusal by the judge ends it: its own error, no weights, no ref", async () => {
    class Refused extends Error {}
    const judge = () => {
      throw new Refused("too large");
    };
    await expect(world.resolve("org/m", { judge })).rejects.toBeInstanceOf(Refused);
    expect(world.hub.lines().some((line) => line.includes("cdn") || line.startsWith("HEAD"))).toBe(false);
    expect(existsSync(join(world.repoDir(), "refs"))).toBe(false);
  });

  test("a drafter's weights may have any name, a target's may not", async () => {
    const weights = noise(100, 5);
    world.hub.put("org/draft", { "config.json": "{}", "consolidated.safetensors": weights, "x.safetensors": weights });
    expect(filesBelow(dirOf(await world.resolve("org/draft")))).toEqual(["config.json", "x.safetensors"]);
    const drafter = dirOf(await world.resolve("org/draft", { kind: "drafter" }));
    expect(filesBelow(drafter)).toEqual(["config.json", "consolidated.safetensors", "x.safetensors"]);
  });
});

describe("GGUF", () => {
  beforeEach(() => {
    const part = noise(40_000, 6);
    world.hub.put("org/g", {
      "README.md": "x",
      "sub/m-Q8_0.gguf": noise(50_000, 7),
      "m-00001-of-00003.gguf": part,
      "m-00002-of-00003.gguf": noise(30_000, 8),
      "m-00003-of-00003.gguf": noise(20_000, 9),
    });
  });

  test("one file of a folder, by two questions and its parts; nothing more when it is here", async () => {
    const weights: number[] = [];
    const judge = (preview: CheckpointPreview) => {
      weights.push(...preview.weights.map(({ size }) => size));
    };
    const found = await world.resolve("gguf:org/g/sub/m-Q8_0.gguf", { judge });
    if (!("file" in found)) throw new Error("a file was expected");
    expect(found.file).toEndWith("/sub/m-Q8_0.gguf");
    expect(sha256(readFileSync(found.file))).toBe(sha256(noise(50_000, 7)));
    expect(world.hub.lines().slice(0, 3)).toEqual([
      "GET hub /api/models/org/g/revision/main",
      "POST hub /api/models/org/g/paths-info/COMMIT",
      "HEAD hub /org/g/resolve/COMMIT/sub/m-Q8_0.gguf",
    ]);
    world.hub.reset();
    expect(await world.resolve("gguf:org/g/sub/m-Q8_0.gguf", { offline: true, judge })).toMatchObject({
      file: found.file,
      source: "hf-cache",
    });
    expect(world.hub.log).toEqual([]);
    expect(weights).toEqual([50_000, 50_000]);
  });

  test("all parts of a split file", async () => {
    const found = await world.resolve("gguf:org/g/m-00001-of-00003.gguf");
    if (!("file" in found)) throw new Error("a file was expected");
    expect(filesBelow(dirname(found.file))).toHaveLength(3);
    rmSync(join(dirname(found.file), "m-00002-of-00003.gguf"));
    await expect(world.resolve("gguf:org/g/m-00001-of-00003.gguf", { offline: true })).rejects.toThrow(
      "missing: m-00002-of-00003.gguf",
    );
  });

  test("a file that does not exist: the others are listed", async () => {
    await expect(world.resolve("gguf:org/g/nope.gguf")).rejects.toThrow(/no file "nope.gguf"[\s\S]*sub\/m-Q8_0.gguf/);
  });
});

describe("progress", () => {
  test("grows to the total; bytes of before are not counted as fetched now", async () => {
    const seen: DownloadProgress[] = [];
    world.hub.fault({ match: "^/cdn/", kind: "slow", bytes_per_s: 40_000, times: 99 });
    await world.resolve("org/m", { onProgress: (progress) => seen.push(progress) });
    const last = seen.at(-1);
    expect(seen.length).toBeGreaterThan(1);
    expect(last).toMatchObject({ repo: "org/m", files_done: 9, files_total: 9, resumed_bytes: 0 });
    expect(last?.bytes_done).toBe(last?.bytes_total ?? -1);
    expect(last?.bytes_per_s).toBeGreaterThan(5_000);
    for (const [i, progress] of seen.entries()) {
      expect(progress.bytes_done).toBeGreaterThanOrEqual(seen[i - 1]?.bytes_done ?? 0);
      expect(progress.bytes_done).toBeLessThanOrEqual(progress.bytes_total);
    }
    rmSync(join(world.repoDir(), "blobs", hashName(SHARD_B)));
    const resumed: DownloadProgress[] = [];
    await world.resolve("org/m", { onProgress: (progress) => resumed.push(progress) });
    expect(resumed.at(-1)?.resumed_bytes).toBe((last?.bytes_total ?? 0) - 82020);
  });

  test("a corrupted file is not counted twice", async () => {
    const seen: DownloadProgress[] = [];
    world.hub.fault({ match: `^/cdn/.*${SHARD_A}`, kind: "corrupt", offset: 3 });
    await world.resolve("org/m", { onProgress: (progress) => seen.push(progress) });
    expect(seen.at(-1)?.bytes_done).toBe(seen.at(-1)?.bytes_total ?? -1);
  });
});

describe("copies of others", () => {
  test("a plain file in a snapshot counts, one of another size does not", async () => {
    const { commit = "" } = await world.downloaded();
    const path = join(world.repoDir(), "snapshots", commit, SHARD_A);
    const blob = join(world.repoDir(), "blobs", hashName(SHARD_A));
    rmSync(path);
    renameSync(blob, path);
    expect((await world.resolve("org/m")).source).toBe("hf-cache");
    writeFileSync(path, "short");
    expect((await world.resolve("org/m")).source).toBe("download");
    expect(lstatSync(path).isSymbolicLink()).toBe(true);
  });

  test("nothing of others is deleted", async () => {
    const blobs = join(world.repoDir(), "blobs");
    mkdirSync(blobs, { recursive: true });
    const foreign = [`${hashName(SHARD_A)}.0a1b2c3d.incomplete`, "abc", "abc.incomplete"];
    for (const name of foreign) writeFileSync(join(blobs, name), "theirs");
    await world.resolve("org/m");
    for (const name of foreign) expect(readFileSync(join(blobs, name), "utf8")).toBe("theirs");
  });
});
