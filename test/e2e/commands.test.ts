/** Commands of the compiled executable that look at the machine, and real signals to one that runs another program. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import packageFile from "../../package.json" with { type: "json" };
import { repoRoot } from "../support/native.ts";
import { EXECUTABLE, requireExecutable, run, TINY_MODEL, temporaryCache } from "./executable.ts";

const cache = temporaryCache();
beforeAll(requireExecutable);
afterAll(() => cache.remove());

test("version names the build", async () => {
  const { exitCode, stdout } = await run(cache.path, ["version", "--json"]);
  expect(exitCode).toBe(0);
  const facts = JSON.parse(stdout) as Record<string, unknown>;
  expect(facts).toMatchObject({ version: packageFile.version, mlx: packageFile.native.mlx, shim: 1 });
  if (existsSync(join(repoRoot, ".git"))) expect(facts.commit).toMatch(/^[0-9a-f]{12}\+?$/);
  else expect(facts.commit).toBeNull();
});

test("doctor finds this machine fit", async () => {
  const { exitCode, stdout, stderr } = await run(cache.path, ["doctor"]);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  expect(stdout).toEndWith(`— mlx-dspark ${packageFile.version} ready.\n`);
});

test("a signal goes through to the client, whose exit code comes back", async () => {
  const folder = join(cache.path, "bin");
  const started = join(cache.path, "started");
  mkdirSync(folder);
  writeFileSync(
    join(folder, "claude"),
    `#!/bin/sh\ntrap 'exit 9' TERM\necho "$ANTHROPIC_BASE_URL" > '${started}'\nwhile :; do /bin/sleep 0.05; done\n`,
  );
  chmodSync(join(folder, "claude"), 0o755);
  const child = Bun.spawn([EXECUTABLE, "claude", "--model", TINY_MODEL, "--mode", "baseline", "--offline"], {
    ...{ stdin: "ignore", stdout: "pipe", stderr: "pipe" },
    env: { PATH: folder, MLX_DSPARK_CACHE: cache.path },
  });
  const deadline = performance.now() + 60_000;
  while (!existsSync(started) && performance.now() < deadline) await Bun.sleep(20);
  child.kill("SIGTERM");
  expect(await child.exited).toBe(9);
  const url = (await Bun.file(started).text()).trim();
  await expect(fetch(`${url}/health`)).rejects.toThrow();
});
