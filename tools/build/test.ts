/**
 * Runs the named suites one after the other, adds up their counts, and ends with "N passed, N failed" alone on a line.
 * Exit code 0 only when every suite ran and nothing failed; a suite that dies counts as a failure.
 *
 * Usage: bun tools/build/test.ts check|unit|native|sanitized|aarch64|e2e|clients|macos …
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { root } from "./platform.ts";

interface Count {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** Tests of what is checked in, which need no build. */
const STATIC_TESTS = ["test/architecture/", "test/bindings.test.ts"];
const E2E_TESTS = "test/e2e/";
/** They drive programs that `tools/setup/clients.ts` has installed. */
const CLIENT_TESTS = "test/clients/";
const MACOS_TEST = "test/e2e/macos-executable.test.ts";
/** Generous: the machine may be busy, and a hang is still found. */
const TEST_TIMEOUT_MS = 120_000;

/** A whole process of tests: one that MLX lets wait for ever is ended, and counted as a failure. */
const PROCESS_TIMEOUT_MS = 300_000;
/** Sanitized kernels compile for minutes, emulated ones run for minutes. */
const BUILD_TIMEOUT_MS = 3_600_000;

const bin = (name: string) => join(root, "node_modules/.bin", name);
const NONE: Count = { passed: 0, failed: 0, skipped: 0 };

function execute(
  command: readonly string[],
  timeout = PROCESS_TIMEOUT_MS,
): { readonly ok: boolean; readonly signal: string | number | undefined } {
  console.log(`\n$ ${command.map((word) => word.replace(`${root}/`, "")).join(" ")}`);
  const { exitCode, signalCode } = Bun.spawnSync([...command], {
    cwd: root,
    timeout,
    killSignal: "SIGKILL",
    stdio: ["ignore", "inherit", "inherit"],
    // What tests unpack and convert stays out of the user's cache.
    env: { ...process.env, MLX_DSPARK_CACHE: join(root, "build/test/cache") },
  });
  return { ok: exitCode === 0, signal: signalCode };
}

/** A command that counts as one test. */
function succeeds(command: readonly string[], timeout?: number): Count {
  const { ok } = execute(command, timeout);
  if (!ok) failures.push(command.map((word) => word.replace(`${root}/`, "")).join(" "));
  return one(ok);
}

function one(ok: boolean): Count {
  return { passed: ok ? 1 : 0, failed: ok ? 0 : 1, skipped: 0 };
}

function add(a: Count, b: Count): Count {
  return { passed: a.passed + b.passed, failed: a.failed + b.failed, skipped: a.skipped + b.skipped };
}

/** What failed, told again at the end: a log that is cut at its head still names it. */
const failures: string[] = [];

/** Failed test cases of a JUnit report, as "file: name". */
function failedCases(report: string): string[] {
  return [...report.matchAll(/<testcase ([^>]*)>\s*<failure/g)].map(([, attributes = ""]) => {
    const value = (key: string) => new RegExp(`\\b${key}="([^"]*)"`).exec(attributes)?.[1] ?? "?";
    return `${value("file")}: ${value("name")}`;
  });
}

/** `bun test` on files, counted by its JUnit report. */
function bunTest(name: string, files: readonly string[]): Count {
  if (files.length === 0) return NONE;
  const report = join(root, "build/test", `${name}.xml`);
  mkdirSync(dirname(report), { recursive: true });
  rmSync(report, { force: true });
  const { ok, signal } = execute([
    process.execPath,
    "test",
    "--only-failures",
    `--timeout=${TEST_TIMEOUT_MS}`,
    "--reporter=junit",
    `--reporter-outfile=${report}`,
    ...files.map((file) => `./${file}`),
  ]);
  const text = existsSync(report) ? readFileSync(report, "utf8") : "";
  const totals = /<testsuites [^>]*>/.exec(text)?.[0];
  if (totals === undefined) {
    failures.push(`${name}: ended without a report${signal === undefined ? "" : ` (${signal})`}`);
    return one(false);
  }
  failures.push(...failedCases(text));
  const attribute = (key: string) => Number(new RegExp(` ${key}="(\\d+)"`).exec(totals)?.[1] ?? Number.NaN);
  const [tests, failed, skipped] = [attribute("tests"), attribute("failures"), attribute("skipped")];
  const count = { passed: tests - failed - skipped, failed, skipped };
  if (ok || failed > 0) return count;
  failures.push(`${name}: an error outside of a test${signal === undefined ? "" : ` (${signal})`}`);
  return add(count, one(false));
}

const allTests = [...new Bun.Glob("test/**/*.test.ts").scanSync({ cwd: root })].sort();
const isStatic = (file: string) => STATIC_TESTS.some((place) => file.startsWith(place));

/** The shim's test program, which counts by itself. */
function shimTest(): Count {
  console.log("\n$ build/shim/shim_test");
  const { stdout, exitCode } = Bun.spawnSync([join(root, "build/shim/shim_test")], { stderr: "inherit" });
  console.log(stdout.toString().trimEnd());
  const [, passed, failed] = /^(\d+) ok, (\d+) not ok$/m.exec(stdout.toString()) ?? [];
  if (passed === undefined || failed === undefined) return one(false);
  const count = { passed: Number(passed), failed: Number(failed), skipped: 0 };
  // Leaks are found after the last test.
  return exitCode !== 0 && count.failed === 0 ? add(count, one(false)) : count;
}

/** Test programs of which each counts as one test. */
function programs(pattern: string, timeout?: number): Count {
  const found = [...new Bun.Glob(pattern).scanSync({ cwd: root })].sort();
  if (found.length === 0) throw new Error(`no test program at ${pattern}`);
  return found.map((program) => succeeds([join(root, program)], timeout)).reduce(add);
}

const SUITES: Readonly<Record<string, () => Count>> = {
  check: () =>
    [
      succeeds([bin("biome"), "check", "--error-on-warnings", "."]),
      succeeds([bin("tsc"), "--noEmit", "-p", "."]),
      bunTest("check", allTests.filter(isStatic)),
    ].reduce(add),
  // A process of its own for each file: MLX's count of running tasks is one for the whole process, and a task that a test
  // made fail on purpose stays in it. One that was ended is tried once more.
  unit: () =>
    allTests
      .filter((file) => !isStatic(file) && !file.startsWith(E2E_TESTS) && !file.startsWith(CLIENT_TESTS))
      .map((file) => {
        const name = file.replaceAll("/", "-");
        const count = bunTest(name, [file]);
        // A failure is a failure: only one that left no report was ended.
        if (existsSync(join(root, "build/test", `${name}.xml`))) return count;
        failures.pop();
        return bunTest(name, [file]);
      })
      .reduce(add),
  native: () => {
    if (!execute([process.execPath, "tools/build/native.ts", "--tests"], BUILD_TIMEOUT_MS).ok) return one(false);
    return add(shimTest(), programs("build/shim/kernel_*_test"));
  },
  sanitized: () => {
    if (!execute([process.execPath, "tools/build/native.ts", "--sanitized-tests"], BUILD_TIMEOUT_MS).ok)
      return one(false);
    return programs("build/kernel-tests-*/*_test", BUILD_TIMEOUT_MS);
  },
  aarch64: () => succeeds([process.execPath, "tools/build/aarch64.ts"], BUILD_TIMEOUT_MS),
  e2e: () =>
    bunTest(
      "e2e",
      allTests.filter((file) => file.startsWith(E2E_TESTS)),
    ),
  clients: () =>
    bunTest(
      "clients",
      allTests.filter((file) => file.startsWith(CLIENT_TESTS)),
    ),
  macos: () => bunTest("macos", [MACOS_TEST]),
};

const asked = process.argv.slice(2);
let total = NONE;
for (const name of asked) {
  const suite = SUITES[name];
  if (suite === undefined) throw new Error(`no suite ${name}; there are ${Object.keys(SUITES).join(", ")}`);
  const count = suite();
  console.log(`suite ${name}: passed ${count.passed}, failed ${count.failed}, skipped ${count.skipped}`);
  total = add(total, count);
}
for (const failure of failures) console.log(`failed: ${failure}`);
console.log(`\n${total.skipped} skipped\n${total.passed} passed, ${total.failed} failed`);
process.exit(total.failed === 0 && total.passed > 0 ? 0 : 1);
