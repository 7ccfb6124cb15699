/** `launch`: pi and Codex by flags and environment; their files only on request, and never without a copy. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { at } from "../../server/harness.ts";
import { cliBox } from "../harness.ts";
import { fakeClient } from "./fake-client.ts";

let server: Bun.Server<undefined>;
let home: string;

beforeAll(() => {
  server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () =>
      Response.json({
        status: "ok",
        model: "tiny-1b",
        mode: "lookup",
        context_window: 16384,
        max_output_tokens: 16384,
      }),
  });
});
afterAll(() => server.stop(true));
beforeEach(() => {
  if (home !== undefined) rmSync(home, { recursive: true, force: true });
  home = mkdtempSync(join(tmpdir(), "launch-"));
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

const url = () => server.url.origin;

test("pi gets its provider as an extension that is gone afterwards", async () => {
  using pi = fakeClient("pi");
  const box = cliBox({ env: { ...pi.env, FAKE_CODE: "4", MLX_DSPARK_API_KEY: "sesame" } });
  expect(await box.run("launch", "pi", "--url", url(), "--", "-p", "hi")).toBe(4);
  const notes = pi.notes();
  const [flag, file = "", ...others] = notes?.args ?? [];
  expect(flag).toBe("--extension");
  expect(others).toEqual(["--provider", "mlx-dspark", "--model", "tiny-1b", "-p", "hi"]);
  expect(notes?.env.MLX_DSPARK_KEY).toBe("sesame");
  const text = notes?.files[file] ?? "";
  expect(text).not.toContain("sesame");
  const registered: unknown[] = [];
  const register = new Function("pi", `(${text.replace("export default ", "").replace(/;\s*$/, "")})(pi)`);
  register({ registerProvider: (...args: unknown[]) => registered.push(...args) });
  expect(registered[0]).toBe("mlx-dspark");
  expect(registered[1]).toMatchObject({ baseUrl: url(), api: "anthropic-messages", apiKey: "MLX_DSPARK_KEY" });
  expect(at(registered[1], "models", 0)).toMatchObject({ id: "tiny-1b", contextWindow: 28672, maxTokens: 4096 });
  expect(statSync(dirname(file), { throwIfNoEntry: false })).toBeUndefined();
  expect(readdirSync(pi.home).sort()).toEqual(["notes.json", "pi", "program.ts"]);
});

test("codex gets its provider as overrides", async () => {
  using codex = fakeClient("codex");
  const box = cliBox({ env: codex.env });
  expect(await box.run("launch", "codex", "--url", url(), "--", "exec", "hi")).toBe(0);
  const notes = codex.notes();
  const args = notes?.args ?? [];
  expect(args.slice(-2)).toEqual(["exec", "hi"]);
  const overrides = args.slice(0, -2).filter((_, i) => i % 2 === 1);
  expect(args.slice(0, -2).filter((_, i) => i % 2 === 0)).toEqual(overrides.map(() => "-c"));
  expect(Bun.TOML.parse(overrides.join("\n"))).toEqual({
    model_providers: {
      "mlx-dspark": {
        ...{ name: "mlx-dspark", base_url: `${url()}/v1`, wire_api: "responses", env_key: "MLX_DSPARK_KEY" },
      },
    },
    ...{ model_provider: "mlx-dspark", model: "tiny-1b", model_context_window: 16384 },
  });
  expect(notes?.env.MLX_DSPARK_KEY).toBe("mlx-dspark");
});

test("launch claude is claude", async () => {
  using claude = fakeClient("claude");
  const box = cliBox({ env: claude.env });
  expect(await box.run("launch", "claude", "--lean", "--url", url(), "--", "-p", "hi")).toBe(0);
  expect(claude.notes()?.args).toEqual(["--bare", "-p", "hi"]);
  expect(claude.notes()?.env.ANTHROPIC_MODEL).toBe("tiny-1b");
});

test.each([
  [["launch"], "CLIENT is missing"],
  [["launch", "py"], "did you mean pi?"],
  [["launch", "pi", "-p"], "unknown flag --p"],
  [["launch", "claude", "--write-config"], "claude needs no file"],
])("%p is exit 2", async (argv, message) => {
  const box = cliBox({ env: { PATH: "" } });
  expect(await box.run(...argv)).toBe(2);
  expect(box.stderr()).toContain(message);
});

describe("--write-config", () => {
  const write = async (client: string, env: Record<string, string> = {}) => {
    const box = cliBox({ env: { PATH: "", HOME: home, ...env } });
    const code = await box.run("launch", client, "--url", url(), "--write-config");
    return { code, stderr: box.stderr() };
  };
  const piFile = () => join(home, ".pi/agent/models.json");
  const codexFile = () => join(home, ".codex/mlx-dspark.config.toml");

  test("pi: a new file, which a second run leaves alone", async () => {
    const first = await write("pi");
    expect(first.code).toBe(0);
    expect(first.stderr).toContain(`wrote ${piFile()}\n`);
    expect(first.stderr).toContain("use it: pi --provider mlx-dspark --model tiny-1b");
    expect(at(JSON.parse(readFileSync(piFile(), "utf8")), "providers", "mlx-dspark", "baseUrl")).toBe(url());
    expect((await write("pi")).stderr).toContain("is as it should be");
    expect(readdirSync(dirname(piFile()))).toEqual(["models.json"]);
  });

  test("pi: others' entries stay, and the file as it was stays beside it", async () => {
    mkdirSync(dirname(piFile()), { recursive: true });
    const before = '{"providers":{"ollama":{"baseUrl":"x"},"mlx-dspark":{"old":1}},"more":2}';
    writeFileSync(piFile(), before);
    expect((await write("pi")).code).toBe(0);
    const config: unknown = JSON.parse(readFileSync(piFile(), "utf8"));
    expect(at(config, "providers", "ollama")).toEqual({ baseUrl: "x" });
    expect(at(config, "more")).toBe(2);
    expect(at(config, "providers", "mlx-dspark")).not.toHaveProperty("old");
    const backup = readdirSync(dirname(piFile())).find((name) => name.startsWith("models.json.before-mlx-dspark-"));
    expect(readFileSync(join(dirname(piFile()), backup ?? ""), "utf8")).toBe(before);
  });

  test.each([["{ not json"], ["[]"], ['{"providers":[]}']])("pi: %p is left as it is", async (before) => {
    mkdirSync(dirname(piFile()), { recursive: true });
    writeFileSync(piFile(), before);
    const { code, stderr } = await write("pi");
    expect(code).toBe(1);
    expect(stderr).toContain(`${piFile()} was left as it is`);
    expect(readFileSync(piFile(), "utf8")).toBe(before);
    expect(readdirSync(dirname(piFile()))).toEqual(["models.json"]);
  });

  test("codex: a profile in a file of its own, and config.toml is not touched", async () => {
    mkdirSync(dirname(codexFile()), { recursive: true });
    writeFileSync(join(dirname(codexFile()), "config.toml"), "= nothing");
    const first = await write("codex");
    expect(first.code).toBe(0);
    expect(first.stderr).toContain("use it: MLX_DSPARK_KEY=mlx-dspark codex --profile mlx-dspark");
    expect(Bun.TOML.parse(readFileSync(codexFile(), "utf8"))).toEqual({
      ...{ model: "tiny-1b", model_provider: "mlx-dspark", model_context_window: 16384 },
      model_providers: {
        "mlx-dspark": {
          ...{ name: "mlx-dspark", base_url: `${url()}/v1`, wire_api: "responses", env_key: "MLX_DSPARK_KEY" },
        },
      },
    });
    expect((await write("codex")).stderr).toContain("is as it should be");
    expect(readFileSync(join(dirname(codexFile()), "config.toml"), "utf8")).toBe("= nothing");
    writeFileSync(codexFile(), "changed = 1");
    expect((await write("codex")).stderr).toContain("; what was there is in ");
    const backup = readdirSync(dirname(codexFile())).find((name) => name.includes(".before-mlx-dspark-"));
    expect(readFileSync(join(dirname(codexFile()), backup ?? ""), "utf8")).toBe("changed = 1");
  });

  test("folders of the clients' own variables are respected", async () => {
    const elsewhere = join(home, "elsewhere");
    expect((await write("codex", { CODEX_HOME: elsewhere })).code).toBe(0);
    expect((await write("pi", { PI_CODING_AGENT_DIR: elsewhere })).code).toBe(0);
    expect(readdirSync(elsewhere).sort()).toEqual(["mlx-dspark.config.toml", "models.json"]);
  });
});
