/** The executable's first start: no environment, several at once, killed meanwhile, no cache to write to. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EXECUTABLE, requireExecutable, TINY_MODEL } from "./executable.ts";

let place = "";

beforeAll(() => {
  requireExecutable();
  place = mkdtempSync(join(tmpdir(), "mlx-dspark-unpack-"));
});

afterAll(() => rmSync(place, { recursive: true, force: true }));

function start(env: Readonly<Record<string, string>>) {
  const cwd = mkdtempSync(join(place, "empty-"));
  const args = [
    "generate",
    "--model",
    TINY_MODEL,
    "--prompt",
    "a",
    "--max-new-tokens",
    "2",
    "--json",
    "--no-chat-template",
  ];
  return Bun.spawn([EXECUTABLE, ...args], { cwd, env: { ...env }, stdio: ["ignore", "pipe", "pipe"] });
}

async function outcome(child: ReturnType<typeof start>): Promise<{ code: number; out: string; err: string }> {
  const [out, err, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { code, out, err };
}

const versions = (cache: string) => readdirSync(join(cache, "native"));

test("four first starts at once all answer, and one folder is there", async () => {
  const cache = join(place, "together");
  const results = await Promise.all(Array.from({ length: 4 }, () => outcome(start({ MLX_DSPARK_CACHE: cache }))));
  for (const { code, err } of results) expect({ code, err }).toMatchObject({ code: 0 });
  expect(versions(cache)).toHaveLength(1);
});

test("killed while unpacking, then started again", async () => {
  const cache = join(place, "killed");
  for (const delay of [10, 60, 120, 180, 240]) {
    const child = start({ MLX_DSPARK_CACHE: cache });
    await Bun.sleep(delay);
    child.kill("SIGKILL");
    await child.exited;
  }
  const { code, err } = await outcome(start({ MLX_DSPARK_CACHE: cache }));
  expect({ code, err }).toMatchObject({ code: 0 });
  expect(versions(cache).filter((name) => !name.includes(".partial-"))).toHaveLength(1);
});

test("the home folder's cache is used when nothing else is said", async () => {
  const home = join(place, "home");
  mkdirSync(home);
  expect((await outcome(start({ HOME: home }))).code).toBe(0);
  expect(versions(join(home, ".cache/mlx-dspark"))).toHaveLength(1);
});

test("without a writable cache: a temporary folder, said once, and used again", async () => {
  writeFileSync(join(place, "file"), "");
  mkdirSync(join(place, "tmp"));
  const env = { MLX_DSPARK_CACHE: join(place, "file/below"), TMPDIR: join(place, "tmp") };
  const first = await outcome(start(env));
  expect(first).toMatchObject({ code: 0 });
  expect(first.err.match(/is not writable/g)).toHaveLength(1);
  expect((await outcome(start(env))).code).toBe(0);
  const folders = readdirSync(env.TMPDIR).filter((name) => name.startsWith("mlx-dspark-"));
  expect(folders).toHaveLength(1);
  expect(versions(join(env.TMPDIR, folders[0] ?? ""))).toHaveLength(1);
});

test("settings files in the folder where it runs are not obeyed", async () => {
  const child = start({ MLX_DSPARK_CACHE: join(place, "together") });
  await outcome(child);
  const cwd = mkdtempSync(join(place, "settings-"));
  writeFileSync(join(cwd, ".env"), `MLX_DSPARK_CACHE=${join(place, "from-env-file")}\n`);
  writeFileSync(join(cwd, "bunfig.toml"), 'preload = ["./evil.ts"]\n');
  writeFileSync(join(cwd, "evil.ts"), `await Bun.write(${JSON.stringify(join(place, "evil"))}, "");\n`);
  const run = Bun.spawnSync(
    [EXECUTABLE, "generate", "--model", TINY_MODEL, "--max-new-tokens", "1", "--no-chat-template"],
    {
      cwd,
      env: { MLX_DSPARK_CACHE: join(place, "together"), HOME: cwd },
    },
  );
  expect(run.exitCode).toBe(0);
  expect(existsSync(join(place, "evil"))).toBe(false);
  expect(existsSync(join(place, "from-env-file"))).toBe(false);
});

test("the licences of what is inside are unpacked with the libraries", () => {
  const native = join(place, "together/native");
  const text = readFileSync(join(native, readdirSync(native)[0] ?? "", "licenses.txt"), "utf8");
  for (const name of ["mlx-dspark", "MLX ", "mlx-c ", "SmolLM2", "elysia"]) expect(text).toContain(`==== ${name}`);
});
