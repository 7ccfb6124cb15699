/** Completion scripts: made from the definitions, read by the shells themselves where they are installed. */
import { describe, expect, test } from "bun:test";
import { cliBox } from "./harness.ts";

async function script(shell: string): Promise<string> {
  const box = cliBox();
  expect(await box.run("completions", shell)).toBe(0);
  return box.stdout();
}

const words = (text: string) => text.split("\n").filter((line) => line !== "");

describe.skipIf(Bun.which("bash") === null)("bash", () => {
  /** What bash would offer for a line, of which the last word is being written. */
  async function offered(...line: readonly string[]): Promise<string[]> {
    const run = [
      await script("bash"),
      `COMP_WORDS=(mlx-dspark ${line.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${line.length}`,
      `_mlx_dspark; printf '%s\\n' "\${COMPREPLY[@]}"`,
    ].join("\n");
    const { stdout, stderr, exitCode } = Bun.spawnSync(["bash", "--norc", "-c", run], { env: {} });
    expect(stderr.toString()).toBe("");
    expect(exitCode).toBe(0);
    return words(stdout.toString());
  }

  test("commands", async () => {
    expect(await offered("")).toEqual(
      expect.arrayContaining(["serve", "claude", "generate", "doctor", "completions", "--version"]),
    );
    expect(await offered("ser")).toEqual(["serve"]);
  });

  test("flags of the command, in the form that changes something", async () => {
    expect(await offered("serve", "--por")).toEqual(["--port"]);
    expect(await offered("generate", "--no-s")).toEqual(["--no-stream"]);
    expect(await offered("generate", "--strea")).toEqual([]);
    expect(await offered("models", "--")).toEqual(["--json", "--help"]);
    expect(await offered("generate", "--fami")).toEqual([]);
  });

  test("values that are known, after a blank or an equals sign", async () => {
    expect(await offered("serve", "--mode", "d")).toEqual(["dspark", "dflash"]);
    expect(await offered("serve", "--mode", "=", "look")).toEqual(["lookup"]);
    expect(await offered("serve", "--mode", "=")).toContain("baseline");
    expect(await offered("generate", "--prompt", "")).toEqual([]);
  });

  test("words of a command", async () => {
    expect(await offered("launch", "")).toEqual(["claude", "pi", "codex"]);
    expect(await offered("completions", "f")).toEqual(["fish"]);
  });
});

test.each(["zsh", "fish"])("%s has every command and its flags", async (shell) => {
  const text = await script(shell);
  for (const name of ["serve", "claude", "launch", "generate", "benchmark", "models", "pull", "doctor", "version"]) {
    expect(text).toContain(name);
  }
  expect(text).toContain(shell === "zsh" ? "'*--mode=[" : "-l mode -d");
  expect(text).toContain("auto dspark dflash lookup baseline");
  expect(text).not.toContain("family");
});

test.each([
  ["zsh", ["-n"]],
  ["fish", ["--no-execute"]],
])("%s reads its script", async (shell, flags) => {
  const path = Bun.which(shell);
  if (path === null) return;
  const { exitCode, stderr } = Bun.spawnSync([path, ...flags], {
    stdin: new TextEncoder().encode(await script(shell)),
  });
  expect(stderr.toString()).toBe("");
  expect(exitCode).toBe(0);
});

test("another shell is exit 2", async () => {
  const box = cliBox();
  expect(await box.run("completions", "fsh")).toBe(2);
  expect(box.stderr()).toContain("SHELL 'fsh' is unknown: did you mean zsh?");
});
