/** The cached folder appears whole or not at all: killed, cancelled, raced, outdated. */
import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { openCheckpoint } from "../../../src/checkpoint/safetensors-set.ts";
import { conversionDir, convertGguf } from "../../../src/hub/gguf/convert-gguf.ts";
import { put, temporaryFolder } from "../../checkpoint/temporary-folder.ts";
import { largeGguf, tinyGguf } from "./tiny-gguf.ts";

const root = temporaryFolder();
const large = put(root, "Large-Model.gguf", largeGguf());
const debris = (dir: string) => readdirSync(path.dirname(dir)).filter((name) => /\.(tmp|old)-/.test(name));

/** Converts in another process; resolves with its exit code. */
function child(file: string, dir: string): ReturnType<typeof Bun.spawn> {
  const script = path.join(import.meta.dir, "convert-child.ts");
  return Bun.spawn([process.execPath, script, file, dir], { stdout: "ignore", stderr: "inherit" });
}

test("the name: lowercase stem and eight hex digits of content and size", () => {
  const dir = conversionDir(root, large);
  expect(dir).toStartWith(path.join(root, "models", "large-model-"));
  expect(path.basename(dir)).toMatch(/^large-model-[0-9a-f]{8}$/);
  const copy = put(path.join(root), "copy.gguf", readFileSync(large));
  expect(path.basename(conversionDir(root, copy)).slice(-8)).toBe(path.basename(dir).slice(-8));
  writeFileSync(copy, Buffer.concat([readFileSync(large), Buffer.alloc(1)]));
  expect(path.basename(conversionDir(root, copy)).slice(-8)).not.toBe(path.basename(dir).slice(-8));
});

test("kill -9 at twelve moments of a conversion, then once more: whole, and no debris", async () => {
  const dir = path.join(root, "killed", "m");
  mkdirSync(path.dirname(dir));
  let interrupted = 0;
  for (let round = 0; round < 12; round++) {
    const process = child(large, dir);
    const build = `${dir}.tmp-${process.pid}`;
    const deadline = Date.now() + 10_000;
    while (!existsSync(build) && process.exitCode === null && Date.now() < deadline) await delay(1);
    await delay(round * 12);
    process.kill(9);
    await process.exited;
    if (existsSync(build)) interrupted++;
    // Whatever carries the final name is complete; the next round begins anew.
    if (existsSync(dir)) expect(openCheckpoint(dir).tensors.size).toBe(11);
    rmSync(dir, { recursive: true, force: true });
  }
  expect(interrupted).toBeGreaterThan(2);
  expect((await convertGguf(large, dir)).converted).toBe(true);
  expect(openCheckpoint(dir).tensors.size).toBe(11);
  expect(debris(dir)).toEqual([]);
}, 60_000);

test("leftovers of dead processes go, those of living ones and foreign folders stay", async () => {
  const parent = path.join(root, "leftovers");
  const gone = Bun.spawn(["true"]);
  await gone.exited;
  const names = [
    `a.tmp-${gone.pid}`,
    `b.old-${gone.pid}`,
    `c.tmp-${gone.pid}-0123abcd`,
    `d.tmp-${process.ppid}`,
    "e.tmp-x",
  ];
  for (const name of names) mkdirSync(path.join(parent, name), { recursive: true });
  // Our own number, untouched for long: a former process of the same number.
  const former = path.join(parent, `f.tmp-${process.pid}`);
  mkdirSync(former);
  utimesSync(former, 1000, 1000);
  await convertGguf(put(root, "tiny.gguf", tinyGguf()), path.join(parent, "m"));
  expect(readdirSync(parent).sort()).toEqual([`d.tmp-${process.ppid}`, "e.tmp-x", "m"]);
});

test("a folder of our own number that another thread left does not stand in the way", async () => {
  const dir = path.join(root, "thread", "m");
  mkdirSync(`${dir}.tmp-${process.pid}`, { recursive: true });
  expect((await convertGguf(put(root, "tiny.gguf", tinyGguf()), dir)).converted).toBe(true);
});

test("two processes and two calls at once: one result, all succeed", async () => {
  const dir = path.join(root, "race", "m");
  const others = [child(large, dir), child(large, dir)];
  const ours = await Promise.all([convertGguf(large, dir), convertGguf(large, dir)]);
  expect(await Promise.all(others.map((other) => other.exited))).toEqual([0, 0]);
  expect(ours.map((result) => result.dir)).toEqual([dir, dir]);
  expect(ours[1]?.converted).toBe(false);
  expect(openCheckpoint(dir).tensors.size).toBe(11);
  expect(debris(dir)).toEqual([]);
}, 30_000);

test("a cancel on the same thread is seen in the middle and leaves nothing", async () => {
  const dir = path.join(root, "cancelled", "m");
  const controller = new AbortController();
  let seen = 0;
  const timer = setTimeout(() => controller.abort(new Error("enough")), 10);
  const outcome = convertGguf(large, dir, {
    signal: controller.signal,
    onProgress: ({ bytesDone }) => {
      seen = bytesDone;
    },
  });
  await expect(outcome).rejects.toThrow("enough");
  clearTimeout(timer);
  expect(seen).toBeLessThan(50_000_000);
  expect(readdirSync(path.dirname(dir))).toEqual([]);
  await expect(convertGguf(large, dir, { signal: AbortSignal.abort(new Error("before")) })).rejects.toThrow("before");
});

test("another version, another time of the source, or a broken marker: converted again", async () => {
  const file = put(root, "again.gguf", tinyGguf());
  const dir = path.join(root, "again", "m");
  const convert = async () => (await convertGguf(file, dir)).converted;
  expect(await convert()).toBe(true);
  expect(await convert()).toBe(false);
  const marker = path.join(dir, ".converted.json");
  writeFileSync(marker, readFileSync(marker, "utf8").replace('"version":1', '"version":0'));
  expect(await convert()).toBe(true);
  writeFileSync(marker, "{");
  expect(await convert()).toBe(true);
  utimesSync(file, 2000, 2000);
  expect(await convert()).toBe(true);
  expect(await convert()).toBe(false);
  expect(debris(dir)).toEqual([]);
});

test("a source that is replaced during the conversion does not become a model", async () => {
  const file = put(root, "moving.gguf", largeGguf());
  const dir = path.join(root, "moving", "m");
  let touched = false;
  const outcome = convertGguf(file, dir, {
    onProgress: () => {
      if (!touched) utimesSync(file, 3000, 3000);
      touched = true;
    },
  });
  await expect(outcome).rejects.toThrow(/changed/);
  expect(existsSync(dir)).toBe(false);
});
