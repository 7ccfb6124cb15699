/** `doctor` and `version`: a report for people and one for programs, and the exit code that says which it was. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import packageFile from "../../package.json" with { type: "json" };
import { at } from "../server/harness.ts";
import { cliBox } from "./harness.ts";

// The libraries are tried in a process of their own, which waits for its turn on a busy machine.
setDefaultTimeout(60_000);

let home: string;
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), "cli-doctor-"));
});
afterAll(() => rmSync(home, { recursive: true }));

const box = (env: Record<string, string> = {}) =>
  cliBox({ env: { HOME: home, MLX_DSPARK_CACHE: join(home, "cache"), ...env } });

test("this machine is fine, and the last line says so", async () => {
  const b = box();
  expect(await b.run("doctor", "--models")).toBe(0);
  const lines = b.stdout().trimEnd().split("\n");
  expect(lines.at(-1)).toBe("— mlx-dspark 9.9.9 ready.");
  expect(b.stdout()).toMatch(/^ {2}backend {2}(cpu \(\w+, \d+ threads\)|metal)$/m);
  expect(b.stdout()).toContain(`MLX ${packageFile.native.mlx}, mlx-c ${packageFile.native.mlxC}`);
  expect(b.stdout()).toMatch(/^✓ smollm2-135m +~1 GB {2}ready$/m);
  expect(b.stdout()).toMatch(/^[✓✗] qwen3-8b +~11 GB {2}not downloaded$/m);
  expect(b.engine.loads).toEqual([]);
});

test("--json is one object, as /doctor", async () => {
  const b = box({ MLX_DSPARK_MODEL_DIRS: join(home, "more") });
  expect(await b.run("doctor", "--json")).toBe(0);
  const json: unknown = JSON.parse(b.stdout());
  expect(Object.keys(Object(json))).toEqual(["ok", "problems", "notes", "environment", "models", "model_dirs"]);
  expect(at(json, "environment", "native", "libmlx")).toBe(packageFile.native.mlx);
  expect(at(json, "model_dirs")).toMatchObject({ cache: join(home, "cache/models"), extra: [join(home, "more")] });
  expect(b.stderr()).toBe("");
});

test("a cache that cannot be is a problem: exit 1", async () => {
  const file = join(home, "file");
  writeFileSync(file, "");
  const b = box({ MLX_DSPARK_CACHE: join(file, "cache") });
  expect(await b.run("doctor")).toBe(1);
  expect(b.stdout()).toContain(`✗ cache folder ${file}/cache is not writable`);
  expect(b.stdout()).toEndWith("issues above.\n");
});

test("libraries that end the process are a problem, not the end", async () => {
  const b = box();
  const broken = { ...b.io, self: ["/bin/sh", "-c", "echo dyld: boom >&2; kill -ABRT $$"] };
  const { runCli } = await import("../../src/cli/run.ts");
  expect(await runCli(["doctor"], broken)).toBe(1);
  expect(b.stdout()).toContain("no usable backend: the native libraries ended the process that tried them (SIGABRT)");
  expect(b.stdout()).toContain("dyld: boom");
});

test("version tells what a report needs", async () => {
  for (const words of [["version"], ["--version"]]) {
    const b = box();
    expect(await b.run(...words)).toBe(0);
    const lines = b.stdout().trimEnd().split("\n");
    expect(lines[0]).toBe("mlx-dspark 9.9.9");
    expect(lines[1]).toMatch(/^commit {3}\S+$/);
    expect(lines[2]).toMatch(/^backend {2}(cpu|metal)/);
    expect(lines[3]).toBe(`MLX      ${packageFile.native.mlx}, mlx-c ${packageFile.native.mlxC}, shim interface 1`);
    expect(lines[4]).toStartWith(`runtime  Bun ${Bun.version}`);
  }
  const b = box();
  expect(await b.run("version", "--json")).toBe(0);
  expect(JSON.parse(b.stdout())).toMatchObject({ version: "9.9.9", mlx: packageFile.native.mlx, shim: 1 });
});
