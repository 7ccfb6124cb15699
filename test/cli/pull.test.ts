/** `pull`: what is fetched, where it says it is, and what is refused before weights are fetched (cli.md §8). */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { modelFiles, SHARD_A, World } from "../hub/world.ts";
import { at } from "../server/harness.ts";
import { cliBox } from "./harness.ts";

let world: World;
beforeEach(async () => {
  world = await World.make();
});
afterEach(() => world.close());

const box = () => cliBox({ env: world.env });

test("a model alone: its folder on stdout, progress on stderr", async () => {
  const b = box();
  expect(await b.run("pull", "org/m")).toBe(0);
  const path = b.stdout().trimEnd();
  expect(path).toStartWith(join(world.cacheDir, "models--org--m/snapshots/"));
  expect(existsSync(join(path, SHARD_A))).toBeTrue();
  expect(b.stderr()).toContain("org/m (9 of 9 files)");
  expect(b.engine.loads).toEqual([]);
});

test("with a drafter, as JSON", async () => {
  world.hub.put("org/m-dspark", { "config.json": '{"model_type":"llama"}', "model.safetensors": "weights" });
  const b = box();
  expect(await b.run("pull", "org/m", "--drafter", "org/m-dspark", "--json")).toBe(0);
  const json: unknown = JSON.parse(b.stdout());
  expect(at(json, "model")).toMatchObject({ repo: "org/m", source: "download" });
  expect(existsSync(join(String(at(json, "drafter", "path")), "model.safetensors"))).toBeTrue();
});

test("the model inside the program needs nothing", async () => {
  const b = box();
  expect(await b.run("pull", "smollm2-135m", "--json")).toBe(0);
  expect(JSON.parse(b.stdout())).toMatchObject({ model: { source: "embedded" }, drafter: null });
});

test.each([
  ["org/none", "org/none"],
  ["no-such-model", 'no model "no-such-model" here'],
])("%s is exit 1", async (name, message) => {
  const b = box();
  expect(await b.run("pull", name)).toBe(1);
  expect(b.stderr()).toContain(message);
  expect(b.stdout()).toBe("");
});

test("a model of another family is refused before its weights come", async () => {
  world.hub.put("org/odd", { ...modelFiles(), "config.json": '{"model_type":"mamba9"}' });
  const b = box();
  expect(await b.run("pull", "org/odd")).toBe(1);
  expect(b.stderr()).toContain("mamba9");
  expect(world.hub.log.some(({ path }) => path.endsWith(SHARD_A))).toBeFalse();
});

test("Ctrl-C is exit 130", async () => {
  const b = box();
  const running = b.run("pull", "org/m");
  b.signal("SIGINT");
  expect(await running).toBe(130);
  expect(b.stderr()).toContain("the same command goes on from there");
});

test("no name is exit 2", async () => {
  const b = box();
  expect(await b.run("pull")).toBe(2);
  expect(b.stderr()).toContain("MODEL is missing");
});
