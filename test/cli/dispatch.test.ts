/** Which command a command line means, what is refused, and with which exit code (cli.md §1). */
import { describe, expect, test } from "bun:test";
import { type LineShape, parseLine } from "../../src/cli/command-line.ts";
import { choiceFlag, type FlagValues, listFlag, numberFlag, switchFlag, textFlag } from "../../src/cli/flags.ts";
import { nearest } from "../../src/cli/nearest.ts";
import { cliBox } from "./harness.ts";

describe("dispatch", () => {
  test.each([[[]], [["-h"]], [["--help"]]])("%p prints the top help", async (argv) => {
    const box = cliBox();
    expect(await box.run(...argv)).toBe(0);
    expect(box.stdout()).toContain("serve");
    expect(box.stdout()).toContain("generate");
    expect(box.stderr()).toBe("");
    expect(box.stdout()).not.toContain("\u001b");
  });

  test.each(["generate", "serve"])("%s -h prints its flags, not those of old scripts", async (command) => {
    const box = cliBox();
    expect(await box.run(command, "--model", "x", "-h")).toBe(0);
    expect(box.stdout()).toContain("--kv-bits");
    expect(box.stdout()).toContain("smollm2-135m");
    expect(box.stdout()).not.toContain("--family");
    expect(box.engine.loads).toEqual([]);
  });

  test.each([
    ["genrate", "did you mean 'generate'?"],
    ["srve", "did you mean 'serve'?"],
    ["xyzzy", "commands: serve, claude, launch, generate"],
  ])("unknown command %s: %s", async (word, hint) => {
    const box = cliBox();
    expect(await box.run(word)).toBe(2);
    expect(box.stderr()).toContain(`unknown command '${word}'`);
    expect(box.stderr()).toContain(hint);
    expect(box.stdout()).toBe("");
  });

  test("flags alone are the old flat form of generate", async () => {
    const box = cliBox();
    expect(await box.run("--mode", "baseline", "--prompt", "hi", "--max-new-tokens", "3")).toBe(0);
    expect(box.stdout()).toBe("Hel\n");
    expect(box.stderr()).toContain("deprecated: write 'mlx-dspark generate …'");
  });

  test.each([
    [["generate", "--promt", "x"], "unknown flag --promt; did you mean --prompt?"],
    [["generate", "--max-draft", "many"], "--max-draft must be an integer or 'auto'"],
    [["generate", "-x"], "unknown flag --x"],
    [["generate", "hello"], "unexpected argument 'hello'"],
    [["generate", "--", "hello"], "unexpected argument '--'"],
    [["generate", "--prompt"], "--prompt needs a value"],
    [["generate", "--prompt", "--json"], "--prompt needs a value"],
    [["generate", "--no-seed"], "unknown flag --no-seed"],
    [["generate", "--mode", "eagle"], "--mode must be one of auto, dspark, dflash, lookup, baseline"],
    [["generate", "--kv-bits", "3"], "--kv-bits must be one of 0, 4, 8"],
    [["generate", "--temperature", "hot"], "--temperature must be a number between 0 and 2, got 'hot'"],
    [["generate", "--seed", "1.5"], "--seed must be an integer"],
    [["generate", "--top-p", "0"], "--top-p must be"],
    [["generate", "--json=maybe"], "--json is a switch"],
    [["generate", "--stop", ""], "--stop must not be empty"],
    [["generate", "--prompt", "a", "--prompt-file", "b"], "not both"],
    [["generate", "--prompt", "@/no/such/file"], "cannot read the prompt file '/no/such/file'"],
    [["generate", "--system", "a", "--no-chat-template"], "--system needs the chat template"],
    [["serve", "--port", "70000"], "--port must be an integer between 0 and 65535"],
    [["serve", "--context-window", "all"], "--context-window must be an integer not below 1, got 'all'"],
    [["serve", "--reasoning-effort", "max"], "--reasoning-effort must be one of low, medium, high, xhigh"],
    [["serve", "--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines connect"],
    [["serve", "--api-key", ""], "--api-key must not be empty"],
    [["serve", "--prompt", "x"], "unknown flag --prompt"],
  ])("%p is refused with exit 2", async (argv, message) => {
    const box = cliBox();
    expect(await box.run(...argv)).toBe(2);
    expect(box.stderr()).toContain(message);
    expect(box.stdout()).toBe("");
    expect(box.engine.loads).toEqual([]);
  });
});

describe("flags", () => {
  const flags = {
    name: textFlag({ help: "" }),
    count: numberFlag(1, { integer: true }, { help: "" }),
    stream: switchFlag("", true),
    json: switchFlag(""),
    "no-model": switchFlag(""),
    model: textFlag({ help: "" }),
    stop: listFlag({ help: "" }),
  };
  const initial: FlagValues<typeof flags> = {
    name: null,
    count: 1,
    stream: true,
    json: false,
    "no-model": false,
    model: null,
    stop: [],
  };

  test.each([
    [[], {}],
    [["--name", "v"], { name: "v" }],
    [["--name=v=w"], { name: "v=w" }],
    [["--name="], { name: "" }],
    [["--name", "-"], { name: "-" }],
    [["--count", "-3"], { count: -3 }],
    [["--name", "--dashes"], { name: "--dashes" }],
    [["--no-stream"], { stream: false }],
    [["--no-stream", "--stream"], { stream: true }],
    [["--json=false", "--json"], { json: true }],
    [["--no-model"], { "no-model": true }],
    [["--no-no-model", "--model", "m"], { model: "m" }],
    [["--stop", "a", "--stop=b"], { stop: ["a", "b"] }],
    [["--name", "a", "--name", "b"], { name: "b" }],
  ])("%p", (argv, expected) => {
    expect(parseLine(argv, flags).flags).toEqual({ ...initial, ...expected });
  });

  describe("lines with more than flags", () => {
    const words = [{ name: "NAME", help: "what to run", choices: ["one", "two"] }];
    const mixed = {
      url: textFlag({ help: "" }),
      lean: switchFlag(""),
      level: choiceFlag(["a", "b"], "a", { help: "" }),
    };
    const rows: readonly [readonly string[], LineShape, Partial<ReturnType<typeof parseLine>>][] = [
      [["one", "--lean"], { words }, { words: ["one"], passed: [] }],
      [["--url", "u", "two"], { words }, { words: ["two"], passed: [] }],
      [["--lean", "--", "--url", "x"], { passes: "rest" }, { words: [], passed: ["--url", "x"] }],
      [["-p", "hi", "--url", "u", "--model=m"], { passes: "unknown" }, { passed: ["-p", "hi", "--model=m"] }],
      [["one", "more", "--", "--lean"], { words, passes: "unknown" }, { words: ["one"], passed: ["more", "--lean"] }],
    ];
    test.each(rows)("%p", (argv, shape, expected) => {
      expect(parseLine(argv, mixed, shape)).toMatchObject(expected);
    });

    test.each([
      [[], { words }, "NAME is missing: what to run"],
      [["onne"], { words }, "NAME 'onne' is unknown: did you mean one?"],
      [["xyzzy"], { words }, "NAME 'xyzzy' is unknown: one of one, two"],
      [["one", "two"], { words }, "unexpected argument 'two'"],
      [["-p"], { passes: "rest" as const }, "unknown flag --p"],
      [["--url", "--", "x"], { passes: "rest" as const }, "--url needs a value"],
      [["--level", "c"], {}, "--level must be one of a, b"],
    ])("%p is refused", (argv, shape, message) => {
      expect(() => parseLine(argv, mixed, shape)).toThrow(message);
    });
  });

  test("inherited names are no flags", () => {
    for (const name of ["constructor", "toString", "__proto__"]) {
      expect(() => parseLine([`--${name}`], flags)).toThrow("unknown flag");
    }
  });

  test("nearest gives up on words that share nothing", () => {
    expect(nearest("genrate", ["serve", "generate"])).toBe("generate");
    expect(nearest("q", ["serve", "generate"])).toBeNull();
    expect(nearest("x", [])).toBeNull();
  });
});
