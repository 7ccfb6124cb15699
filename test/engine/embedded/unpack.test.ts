/** Unpacking: whole or not at all, by any number of processes, whatever a killed one left. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { embeddedModelFile, nativeFolder } from "../../../src/engine/embedded/files.ts";
import type { EmbeddedFile, EmbeddedFiles } from "../../../src/engine/embedded/manifest.ts";
import { DamagedExecutable, isComplete, unpackInto } from "../../../src/engine/embedded/unpack.ts";

const CHILD = join(import.meta.dir, "unpack-child.ts");
let place = "";
let target = "";
let files: EmbeddedFile[] = [];

function embed(path: string, bytes: Uint8Array, compression: EmbeddedFile["compression"]): EmbeddedFile {
  const source = join(place, `${files.length}-source`);
  writeFileSync(source, compression === "zstd" ? Bun.zstdCompressSync(bytes) : bytes);
  const sha256 = new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
  return { path, source, compression, bytes: bytes.byteLength, sha256 };
}

/** Large enough that a kill finds it being written. */
const LARGE = new Uint8Array(24 << 20).map((_, i) => (i * 2654435761) >>> 24);

beforeEach(() => {
  place = mkdtempSync(join(tmpdir(), "unpack-test-"));
  target = join(place, "cache/native/1.0.0-abcd");
  files = [];
  files.push(embed("mlx/lib/large.so", LARGE, "none"));
  files.push(embed("mlx/lib/small.so", new TextEncoder().encode("small ".repeat(1000)), "zstd"));
});

afterEach(() => rmSync(place, { recursive: true, force: true }));

function spawnUnpacking(): Bun.Subprocess<"ignore", "pipe", "inherit"> {
  const description = join(place, "files.json");
  writeFileSync(description, JSON.stringify(files));
  return Bun.spawn([process.execPath, CHILD, target, description], { stdio: ["ignore", "pipe", "inherit"] });
}

const beside = () => readdirSync(join(place, "cache/native"));

describe("unpackInto", () => {
  test("writes every file with its bytes, and nothing the second time", () => {
    unpackInto(target, files);
    expect(readFileSync(join(target, "mlx/lib/large.so")).equals(LARGE)).toBe(true);
    expect(readFileSync(join(target, "mlx/lib/small.so"), "utf8")).toBe("small ".repeat(1000));
    const { ino } = statSync(join(target, "mlx/lib/large.so"));
    unpackInto(target, files);
    expect(statSync(join(target, "mlx/lib/large.so")).ino).toBe(ino);
    expect(beside()).toEqual(["1.0.0-abcd"]);
  });

  test("gives a file the same time whenever it is unpacked", () => {
    unpackInto(target, files);
    const first = statSync(join(target, "mlx/lib/small.so")).mtimeMs;
    rmSync(target, { recursive: true });
    unpackInto(target, files);
    expect(statSync(join(target, "mlx/lib/small.so")).mtimeMs).toBe(first);
  });

  test("makes a folder whole again from which files were taken or cut", () => {
    unpackInto(target, files);
    rmSync(join(target, "mlx/lib/small.so"));
    unpackInto(target, files);
    expect(isComplete(target, files)).toBe(true);
    truncateSync(join(target, "mlx/lib/large.so"), 100);
    unpackInto(target, files);
    expect(readFileSync(join(target, "mlx/lib/large.so")).equals(LARGE)).toBe(true);
    expect(beside()).toEqual(["1.0.0-abcd"]);
  });

  test("refuses bytes that do not match their hash, and leaves nothing", () => {
    const [large, small] = files;
    if (large === undefined || small === undefined) throw new Error("the fixture has two files");
    const wrong = [large, { ...small, sha256: "0".repeat(64) }];
    expect(() => unpackInto(target, wrong)).toThrow(DamagedExecutable);
    expect(beside()).toEqual([]);
  });

  test("six processes at once all end with the same whole folder", async () => {
    const children = Array.from({ length: 6 }, spawnUnpacking);
    const outputs = await Promise.all(children.map((child) => new Response(child.stdout).text()));
    expect(outputs).toEqual(Array.from({ length: 6 }, () => "done\n"));
    expect(isComplete(target, files)).toBe(true);
    expect(beside()).toEqual(["1.0.0-abcd"]);
  });

  test("killed at any moment: the folder is absent or whole, and the next start works and cleans up", async () => {
    let interrupted = 0;
    for (let delay = 0; delay < 60; delay += 6) {
      rmSync(target, { recursive: true, force: true });
      const child = spawnUnpacking();
      await Bun.sleep(20 + delay);
      child.kill("SIGKILL");
      await child.exited;
      if (existsSync(target)) expect(isComplete(target, files)).toBe(true);
      else interrupted += 1;
      unpackInto(target, files);
      expect(isComplete(target, files)).toBe(true);
      expect(beside()).toEqual(["1.0.0-abcd"]);
    }
    expect(interrupted).toBeGreaterThan(0);
  });

  test("leaves alone what another host may still be writing, until it is a day old", () => {
    const foreign = join(place, "cache/native/1.0.0-abcd.partial-elsewhere-1");
    mkdirSync(foreign, { recursive: true });
    unpackInto(target, files);
    expect(existsSync(foreign)).toBe(true);
    utimesSync(foreign, 0, 0);
    rmSync(target, { recursive: true });
    unpackInto(target, files);
    expect(existsSync(foreign)).toBe(false);
  });

  test("leaves alone what a living process of this host is writing", () => {
    const living = join(place, `cache/native/1.0.0-other.partial-${hostname()}-${process.ppid}`);
    mkdirSync(living, { recursive: true });
    unpackInto(target, files);
    expect(existsSync(living)).toBe(true);
  });
});

describe("where it is unpacked", () => {
  const { MLX_DSPARK_CACHE, TMPDIR } = process.env;
  let manifest: EmbeddedFiles;

  function restore(name: "MLX_DSPARK_CACHE" | "TMPDIR", value: string | undefined): void {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }

  beforeEach(() => {
    const [large, small] = files;
    if (large === undefined || small === undefined) throw new Error("the fixture has two files");
    manifest = {
      commit: null,
      nativeVersion: "9.9.9-beef",
      native: [small],
      models: { tiny: { ...large, path: "tiny.gguf" } },
      drafters: {},
    };
    process.env.MLX_DSPARK_CACHE = join(place, "root");
    mkdirSync(join(place, "tmp"));
    process.env.TMPDIR = join(place, "tmp");
  });

  afterEach(() => {
    restore("MLX_DSPARK_CACHE", MLX_DSPARK_CACHE);
    restore("TMPDIR", TMPDIR);
  });

  test("below the cache root, by version and by model", async () => {
    expect(nativeFolder(manifest)).toBe(join(place, "root/native/9.9.9-beef"));
    const model = await embeddedModelFile("tiny", manifest);
    expect(model?.startsWith(join(place, "root/models/embedded-tiny-"))).toBe(true);
    expect(statSync(model ?? "").size).toBe(LARGE.byteLength);
    expect(embeddedModelFile("unknown", manifest)).toBeNull();
  });

  test("in this user's temporary folder when the cache cannot be written, the same one each time", () => {
    writeFileSync(join(place, "file"), "");
    process.env.MLX_DSPARK_CACHE = join(place, "file/below");
    const folder = nativeFolder(manifest);
    expect(folder.startsWith(join(place, "tmp/mlx-dspark-"))).toBe(true);
    expect(isComplete(folder, manifest.native)).toBe(true);
    process.env.MLX_DSPARK_CACHE = join(place, "file/below");
    expect(nativeFolder(manifest)).toBe(folder);
  });

  test("in the temporary folder when only the place for the libraries cannot be written", () => {
    mkdirSync(join(place, "root"));
    writeFileSync(join(place, "root/native"), "");
    expect(nativeFolder(manifest).startsWith(join(place, "tmp/mlx-dspark-"))).toBe(true);
  });

  test("nowhere in development", () => {
    expect(nativeFolder(null)).toEndWith(join("build", "native"));
    expect(embeddedModelFile("unknown", null)).toBeNull();
  });
});
