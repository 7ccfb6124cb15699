/** What must hold of the repository's files: no machine's paths, no registry's hosts, no large test data. */
import { expect, test } from "bun:test";
import { lstatSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "../..");
const TEST_DATA_BYTES_MAX = 20 * 1024 * 1024;

const listed = Bun.spawnSync(["git", "ls-files", "-z"], { cwd: root });
const tracked = listed.stdout
  .toString()
  .split("\0")
  .filter((path) => path !== "" && lstatSync(join(root, path), { throwIfNoEntry: false })?.isFile() === true);

/** Written apart, so that this file does not name them itself. */
const FORBIDDEN = [
  ["a folder of some machine", new RegExp(`(^|[\\s"'\`=:(])/(${["work", "root", "tmp"].join("|")})/[\\w.-]`)],
  [
    "a registry's host",
    new RegExp(
      ["registry\\.npm" + "js", "pypi\\." + "org", "python" + "hosted", "crates\\." + "io/", "deb\\.deb" + "ian"].join(
        "|",
      ),
    ),
  ],
] as const;

test("git lists the files", () => {
  expect(listed.exitCode).toBe(0);
  expect(tracked.length).toBeGreaterThan(20);
});

for (const [what, pattern] of FORBIDDEN) {
  test(`no tracked file names ${what}`, () => {
    const found = tracked.flatMap((path) => {
      const bytes = readFileSync(join(root, path));
      if (bytes.includes(0)) return [];
      const lines = bytes.toString("utf8").split("\n");
      return lines.flatMap((line, i) => (pattern.test(line) ? [`${path}:${i + 1}: ${line.trim().slice(0, 160)}`] : []));
    });
    expect(found).toEqual([]);
  });
}

test("test data stays small", () => {
  const data = tracked.filter((path) => path.startsWith("test/data/"));
  const bytes = data.reduce((sum, path) => sum + lstatSync(join(root, path)).size, 0);
  expect(bytes).toBeLessThanOrEqual(TEST_DATA_BYTES_MAX);
});
