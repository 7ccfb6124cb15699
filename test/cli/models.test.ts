/** `models`: the table for people, the JSON for programs. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { at } from "../server/harness.ts";
import { cliBox } from "./harness.ts";

let home: string;
const box = () => cliBox({ env: { HOME: home, MLX_DSPARK_CACHE: join(home, "own") } });

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "cli-models-"));
  const dir = join(home, "own", "models", "somebody", "odd-model");
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "config.json"), "{}");
  writeFileSync(join(dir, "model.safetensors"), Buffer.alloc(2_500_000, 1));
});
afterEach(() => rmSync(home, { recursive: true }));

test("a row for each known model, with drafters, need and place; other models below", async () => {
  const b = box();
  expect(await b.run("models")).toBe(0);
  const lines = b.stdout().split("\n");
  expect(lines[0]).toMatch(/^id +target +DSpark drafter +DFlash drafter +RAM +on disk$/);
  expect(lines[1]).toMatch(/^smollm2-135m +HuggingFaceTB\S+ +in this program +— +~1 GB +\d+\.\d MB, in this program$/);
  const qwen = lines.find((line) => line.startsWith("qwen3-4b "));
  expect(qwen).toMatch(/ deepseek-ai\/dspark_qwen3_4b_block7 +z-lab\/Qwen3-4B-DFlash-b16 +~8 GB +no$/);
  expect(b.stdout()).toContain(`  somebody/odd-model  target  2.5 MB  ${join(home, "own")}`);
  expect(b.stderr()).toBe("");
  expect(b.engine.loads).toEqual([]);
});

test("--json is one object, as /admin/models", async () => {
  const b = box();
  expect(await b.run("models", "--json")).toBe(0);
  const json: unknown = JSON.parse(b.stdout());
  expect(Object.keys(Object(json))).toEqual(["models", "installed", "disk", "loaded", "model_dirs", "bandwidth"]);
  expect(at(json, "models", 0)).toMatchObject({
    ...{ id: "smollm2-135m", mode: "dspark", dspark_drafter: "smollm2-135m-dspark", ready: true },
    ...{ target_installed: true, drafter_installed: true, ram_gb: 1 },
  });
  expect(at(json, "models", 1)).toMatchObject({ ready: false, target_installed: false, weight_bytes: null });
  expect(at(json, "installed", 0)).toMatchObject({ repo: "somebody/odd-model", size_bytes: 2_500_000, kind: "model" });
  expect(at(json, "disk")).toEqual({ total_bytes: 2_500_000, total: "2.5 MB" });
});
