/** Downloads that do not end the first time: killed, cancelled, out of space, or not alone. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { HubError } from "../../src/hub/errors.ts";
import { RepoCache } from "../../src/hub/hf-cache.ts";
import { sha256 } from "./server.ts";
import { dirOf, noise, PART_BYTES, World } from "./world.ts";

const WEIGHTS = "model.safetensors";
const PARTS = 20;
const BYTES = noise(PARTS * PART_BYTES, 11);
const BLOB = sha256(BYTES);
const CHILD = join(import.meta.dir, "child.ts");

let world: World;
let blobs: string;

beforeEach(async () => {
  world = await World.make();
  world.hub.put("org/big", { "config.json": "{}", [WEIGHTS]: BYTES });
  blobs = join(world.repoDir("org/big"), "blobs");
});
afterEach(() => world.close());

function spawn(name: string) {
  const env = { ...world.env, PART_BYTES: String(PART_BYTES), PATH: process.env.PATH ?? "" };
  return Bun.spawn([process.execPath, CHILD, name], { env, stdout: "pipe", stderr: "pipe" });
}

/** Bytes of ranges that the download host was asked for. */
function askedBytes(): number {
  const spans = world.hub.log.flatMap(({ host, range }) => (host === "cdn" ? [/(\d+)-(\d+)/.exec(range ?? "")] : []));
  return spans.reduce((total, span) => total + Number(span?.[2]) - Number(span?.[1]) + 1, 0);
}

function slowDown(bytesPerS: number): void {
  world.hub.fault({ match: "^/cdn/", kind: "slow", bytes_per_s: bytesPerS, times: 9999 });
}

describe("killed", () => {
  test("kill −9 at 20 random moments, then finish: right hash, no debris", async () => {
    slowDown(150_000);
    let interrupted = 0;
    for (let round = 0; round < 20; round++) {
      const child = spawn("org/big");
      await Bun.sleep(50 + Math.random() * 250);
      child.kill("SIGKILL");
      await child.exited;
      if (existsSync(join(blobs, `${BLOB}.mlx-dspark.part`))) interrupted++;
      expect(existsSync(join(blobs, BLOB)) && sha256(readFileSync(join(blobs, BLOB))) !== BLOB).toBe(false);
    }
    world.hub.reset();
    const dir = dirOf(await world.resolve("org/big"));
    expect(sha256(readFileSync(join(dir, WEIGHTS)))).toBe(BLOB);
    expect(readdirSync(blobs).filter((name) => name.length !== 64 && name.length !== 40)).toEqual([]);
    expect(interrupted).toBeGreaterThan(0);
  }, 30_000);

  test("parts that the map names are not fetched again", async () => {
    const stop = new AbortController();
    slowDown(200_000);
    const run = world.resolve("org/big", { signal: stop.signal, tuning: { connections: 2 } });
    const half = () => askedBytes() >= 10 * PART_BYTES;
    while (!half()) await Bun.sleep(5);
    stop.abort();
    await expect(run).rejects.toThrow("download of org/big cancelled (partial files kept — loading it again resumes)");
    const map: unknown = JSON.parse(readFileSync(join(blobs, `${BLOB}.mlx-dspark.part.json`), "utf8"));
    expect(map).toMatchObject({ etag: BLOB, size: BYTES.length, part_bytes: PART_BYTES });
    world.hub.reset();
    const dir = dirOf(await world.resolve("org/big"));
    expect(askedBytes()).toBeLessThanOrEqual(12 * PART_BYTES);
    expect(askedBytes()).toBeGreaterThan(0);
    expect(sha256(readFileSync(join(dir, WEIGHTS)))).toBe(BLOB);
  });

  test("a resumed file keeps the size of its parts", async () => {
    const stop = new AbortController();
    slowDown(200_000);
    const run = world.resolve("org/big", { signal: stop.signal });
    while (askedBytes() < 10 * PART_BYTES) await Bun.sleep(5);
    stop.abort();
    await expect(run).rejects.toBeInstanceOf(HubError);
    world.hub.reset();
    const dir = dirOf(await world.resolve("org/big", { tuning: { partBytes: 7777 } }));
    expect(askedBytes()).toBeLessThan(BYTES.length);
    expect(sha256(readFileSync(join(dir, WEIGHTS)))).toBe(BLOB);
  });

  for (const damage of ["{", '{"etag":"x"}', "null"]) {
    test(`a damaged map (${damage}) means: from the start`, async () => {
      mkdirSync(blobs, { recursive: true });
      writeFileSync(join(blobs, `${BLOB}.mlx-dspark.part`), Buffer.alloc(BYTES.length, 7));
      writeFileSync(join(blobs, `${BLOB}.mlx-dspark.part.json`), damage);
      const dir = dirOf(await world.resolve("org/big"));
      expect(sha256(readFileSync(join(dir, WEIGHTS)))).toBe(BLOB);
      expect(askedBytes()).toBe(BYTES.length);
    });
  }

  test("a map that lies costs one more download, never a wrong file", async () => {
    mkdirSync(blobs, { recursive: true });
    writeFileSync(join(blobs, `${BLOB}.mlx-dspark.part`), Buffer.alloc(BYTES.length, 7));
    const done = Buffer.from([0xff, 0x00, 0x00]).toString("base64");
    const map = { etag: BLOB, size: BYTES.length, part_bytes: PART_BYTES, done, url_commit: "x" };
    writeFileSync(join(blobs, `${BLOB}.mlx-dspark.part.json`), JSON.stringify(map));
    const dir = dirOf(await world.resolve("org/big"));
    expect(sha256(readFileSync(join(dir, WEIGHTS)))).toBe(BLOB);
    expect(askedBytes()).toBe(12 * PART_BYTES + BYTES.length);
  });
});

describe("files of older tools", () => {
  function leaveIncomplete(bytes: Uint8Array, ageMs: number): void {
    mkdirSync(blobs, { recursive: true });
    const path = join(blobs, `${BLOB}.incomplete`);
    writeFileSync(path, bytes);
    const then = new Date(Date.now() - ageMs);
    utimesSync(path, then, then);
  }

  test("an abandoned .incomplete is gone on with", async () => {
    leaveIncomplete(BYTES.subarray(0, 5 * PART_BYTES + 100), 700_000);
    const dir = dirOf(await world.resolve("org/big"));
    expect(askedBytes()).toBe(15 * PART_BYTES);
    expect(sha256(readFileSync(join(dir, WEIGHTS)))).toBe(BLOB);
    expect(existsSync(join(blobs, `${BLOB}.incomplete`))).toBe(false);
  });

  test("a fresh one belongs to somebody", async () => {
    leaveIncomplete(BYTES.subarray(0, 5 * PART_BYTES), 1_000);
    await world.resolve("org/big");
    expect(askedBytes()).toBe(BYTES.length);
    expect(existsSync(join(blobs, `${BLOB}.incomplete`))).toBe(true);
  });

  test("one with other bytes is found out by the hash", async () => {
    leaveIncomplete(noise(3 * PART_BYTES, 99), 700_000);
    const dir = dirOf(await world.resolve("org/big"));
    expect(sha256(readFileSync(join(dir, WEIGHTS)))).toBe(BLOB);
  });
});

describe("cancelled", () => {
  test("within a second, with no request afterwards, and cleanup takes only our partial files", async () => {
    const stop = new AbortController();
    slowDown(50_000);
    const run = world.resolve("org/big", { signal: stop.signal });
    while (askedBytes() === 0) await Bun.sleep(5);
    await Bun.sleep(50);
    const start = performance.now();
    stop.abort();
    const error = await run.catch((caught: unknown) => caught);
    expect(performance.now() - start).toBeLessThan(1000);
    expect(error).toMatchObject({ name: "HubError", kind: "cancelled" });
    const requests = world.hub.log.length;
    await Bun.sleep(100);
    expect(world.hub.log.length).toBe(requests);
    writeFileSync(join(blobs, "theirs.incomplete"), "x");
    await new RepoCache(world.cacheDir, "org/big").removePartFiles();
    expect(readdirSync(blobs).filter((name) => name.length > 40)).toEqual([]);
    expect(existsSync(join(blobs, "theirs.incomplete"))).toBe(true);
  });

  test("before it begins: no request", async () => {
    await expect(world.resolve("org/big", { signal: AbortSignal.abort() })).rejects.toMatchObject({
      kind: "cancelled",
    });
    expect(world.hub.log).toEqual([]);
  });

  test("while waiting for a retry", async () => {
    const stop = new AbortController();
    world.hub.fault({ match: "/tree/", kind: "status", code: 429, retry_after: 30 });
    const run = world.resolve("org/big", { signal: stop.signal });
    while (world.hub.log.length < 2) await Bun.sleep(5);
    setTimeout(() => stop.abort(), 20);
    await expect(run).rejects.toMatchObject({ kind: "cancelled" });
  });
});

describe("not alone", () => {
  test("two processes at once: each byte is fetched once", async () => {
    slowDown(400_000);
    const children = [spawn("org/big"), spawn("org/big")];
    const texts = await Promise.all(children.map((child) => new Response(child.stderr).text()));
    expect(await Promise.all(children.map((child) => child.exited))).toEqual([0, 0]);
    expect(askedBytes()).toBe(BYTES.length);
    expect(texts.join("")).toContain("another process is downloading");
    expect(sha256(readFileSync(join(blobs, BLOB)))).toBe(BLOB);
  });

  test("two loads in one process: each byte is fetched once", async () => {
    const [first, second] = await Promise.all([world.resolve("org/big"), world.resolve("org/big")]);
    expect(askedBytes()).toBe(BYTES.length);
    expect(dirOf(first)).toBe(dirOf(second));
  });

  test("the second goes on when the first is cancelled", async () => {
    const stop = new AbortController();
    slowDown(300_000);
    const first = world.resolve("org/big", { signal: stop.signal });
    const second = world.resolve("org/big");
    while (askedBytes() === 0) await Bun.sleep(5);
    stop.abort();
    await expect(first).rejects.toMatchObject({ kind: "cancelled" });
    expect(sha256(readFileSync(join(dirOf(await second), WEIGHTS)))).toBe(BLOB);
  });

  function leaveLock(text: string, ageMs: number): string {
    const dir = join(world.cacheDir, ".locks", "models--org--big");
    mkdirSync(dir, { recursive: true });
    const path = join(dir, `${BLOB}.mlx-dspark`);
    writeFileSync(path, text);
    const then = new Date(Date.now() - ageMs);
    utimesSync(path, then, then);
    return path;
  }

  test("the lock of a dead process, an old one and a half-written one are taken over", async () => {
    const dead = spawnSync("true").pid;
    const host = hostname();
    for (const [text, ageMs] of [
      [JSON.stringify({ pid: dead, host, started: 1 }), 0],
      [JSON.stringify({ pid: process.pid, host: "elsewhere", started: 1 }), 700_000],
      ["", 20_000],
    ] as const) {
      const path = leaveLock(text, ageMs);
      await world.resolve("org/big");
      expect(existsSync(path)).toBe(false);
      rmSync(world.repoDir("org/big"), { recursive: true });
    }
  });

  test("the lock of another machine is waited for", async () => {
    const path = leaveLock(JSON.stringify({ pid: 1, host: "elsewhere", started: 1 }), 0);
    setTimeout(() => rmSync(path), 150);
    await world.resolve("org/big");
    expect(world.notices.join()).toContain("another process is downloading model.safetensors");
  });
});

describe("space", () => {
  test("too little: said before anything is created", async () => {
    const freeBytes = async () => 2e9;
    await expect(world.resolve("org/big", { tuning: { freeBytes } })).rejects.toMatchObject({
      kind: "disk_full",
      message: expect.stringMatching(/needs 2\.0 GB .* 2\.0 GB free on \//),
    });
    expect(readdirSync(world.home)).toEqual([]);
    expect(world.hub.log).toHaveLength(2);
  });

  test("only what is missing counts", async () => {
    const stop = new AbortController();
    slowDown(300_000);
    const run = world.resolve("org/big", { signal: stop.signal });
    while (askedBytes() < 10 * PART_BYTES) await Bun.sleep(5);
    stop.abort();
    await expect(run).rejects.toBeInstanceOf(HubError);
    world.hub.reset();
    const freeBytes = async () => 2e9 + 1.02 * BYTES.length - 1000;
    await world.resolve("org/big", { tuning: { freeBytes } });
  });

  test.skipIf(!canMount())("a disk that fills up (8 MB tmpfs; skipped where mounting is not permitted)", async () => {
    const dir = mountSmallVolume() ?? "";
    try {
      const large = noise(12_000_000, 12);
      world.hub.put("org/large", { "config.json": "{}", [WEIGHTS]: large });
      world.env.HF_HUB_CACHE = dir;
      const tuning = { partBytes: 1_000_000 };
      await expect(world.resolve("org/large", { tuning })).rejects.toMatchObject({ kind: "disk_full" });
      const requests = world.hub.log.length;
      expect(requests).toBeLessThan(20);
      expect(existsSync(join(dir, "models--org--large", "blobs", `${sha256(large)}.mlx-dspark.part`))).toBe(true);
      expect(spawnSync("mount", ["-o", "remount,size=32m", dir]).status).toBe(0);
      world.hub.reset();
      const found = await world.resolve("org/large", { tuning });
      expect(sha256(readFileSync(join(dirOf(found), WEIGHTS)))).toBe(sha256(large));
      expect(askedBytes()).toBeLessThan(large.length);
    } finally {
      spawnSync("umount", [dir]);
      rmSync(dir, { recursive: true, force: true });
    }
  });
});

/** A tmpfs of 8 MB, or null where this user may not mount. */
function mountSmallVolume(): string | null {
  const dir = join(import.meta.dir, "..", "..", "build", `hub-small-volume-${process.pid}`);
  mkdirSync(dir, { recursive: true });
  if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=8m", "tmpfs", dir]).status === 0) return dir;
  rmSync(dir, { recursive: true, force: true });
  return null;
}

function unmount(dir: string): void {
  spawnSync("umount", [dir]);
  rmSync(dir, { recursive: true, force: true });
}

function canMount(): boolean {
  const dir = mountSmallVolume();
  if (dir !== null) unmount(dir);
  return dir !== null;
}
