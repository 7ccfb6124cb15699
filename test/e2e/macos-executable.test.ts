/**
 * What can be said of the macOS executable without a Mac: it and its libraries are arm64, signed, find each other, and
 * export what the bindings call. Needs `make dist-macos`; skipped where that has not been run since the shim changed.
 */
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { symbols } from "../../src/mlx/bindings.ts";
import { checkSignature, readMachO } from "../../tools/build/mach-o.ts";
import { repoRoot } from "../support/native.ts";

const executable = join(repoRoot, "dist/macos-arm64/mlx-dspark");
const folder = join(repoRoot, "build/native-macos/mlx/lib");
const SHIM = "libmlx_dspark_shim.dylib";
const OLDEST_MACOS = 14;

/** One that was built before the sources of its shim changed tells nothing about them. */
const isCurrent = (file: string) =>
  [...new Bun.Glob("{shim/**/*,src/mlx/bindings.ts}").scanSync({ cwd: repoRoot })].every(
    (source) => statSync(join(repoRoot, source)).mtimeMs <= statSync(file).mtimeMs,
  );
const here = existsSync(executable) && isCurrent(executable);
const dylibs = here ? readdirSync(folder).filter((name) => name.endsWith(".dylib")) : [];
const read = (name: string) => readFileSync(join(folder, name));

/** Where the loader looks for `dependency` of a library in `folder`: the system, or a file beside it. */
function isFound(dependency: string, rpaths: readonly string[]): boolean {
  if (/^\/(usr\/lib|System\/Library)\//.test(dependency)) return true;
  const name = /^@rpath\/([^/]+)$/.exec(dependency)?.[1];
  // Already loaded libraries answer to their install name; the shim's own run path finds the rest.
  return name !== undefined && rpaths.includes("@loader_path") && dylibs.includes(name);
}

describe.skipIf(!here)("macOS executable (make dist-macos)", () => {
  test("is an arm64 program with an intact ad-hoc signature, not under the hardened runtime", () => {
    const bytes = readFileSync(executable);
    expect(readMachO(bytes).kind).toBe("executable");
    expect(checkSignature(bytes)).toMatchObject({ adHoc: true, hardened: false, wrongPages: 0 });
  });

  test("needs only libraries of the system", () => {
    for (const path of readMachO(readFileSync(executable)).dependencies) expect(path).toStartWith("/usr/lib/");
  });

  test("has the shim, MLX and the Metal library inside", () => {
    expect(dylibs).toEqual(expect.arrayContaining([SHIM, "libmlx.dylib"]));
    const bytes = readFileSync(executable);
    for (const name of [...dylibs, "mlx.metallib"]) {
      const hash = new Bun.CryptoHasher("sha256").update(read(name)).digest("hex");
      expect({ name, embedded: bytes.includes(hash) }).toEqual({ name, embedded: true });
    }
  });

  test("a damaged page is noticed by the check itself", () => {
    const bytes = Buffer.from(read(SHIM));
    bytes.writeUInt8(bytes.readUInt8(0x4000) ^ 1, 0x4000);
    expect(checkSignature(bytes).wrongPages).toBe(1);
  });

  test("the shim exports every symbol that the bindings name", () => {
    const { exports } = readMachO(read(SHIM));
    expect(Object.keys(symbols).filter((name) => !exports.has(`_${name}`))).toEqual([]);
  });

  test("what the shim imports from MLX is exported there", () => {
    const mlx = readMachO(read("libmlx.dylib"));
    const wanted = readMachO(read(SHIM)).imports.filter(({ from }) => from === mlx.installName);
    expect(wanted.length).toBeGreaterThan(100);
    expect(wanted.map(({ name }) => name).filter((name) => !mlx.exports.has(name))).toEqual([]);
  });

  test("exceptions are those of the system's C++ library: the shim has no copy of it", () => {
    const { imports } = readMachO(read(SHIM));
    for (const name of ["___cxa_throw", "___gxx_personality_v0", "__ZTISt9exception"]) {
      expect(imports).toContainEqual({ name, from: "/usr/lib/libc++.1.dylib" });
    }
  });

  test.each(dylibs.length > 0 ? dylibs : ["none"])(
    "%s is arm64, signed, for macOS 14, and finds its libraries",
    (name) => {
      const library = readMachO(read(name));
      expect(library.kind).toBe("dylib");
      expect(Number.parseFloat(library.minimumMacos ?? "99")).toBeLessThanOrEqual(OLDEST_MACOS);
      expect(checkSignature(read(name))).toMatchObject({ adHoc: true, hardened: false, wrongPages: 0 });
      expect(library.dependencies.filter((path) => !isFound(path, library.rpaths))).toEqual([]);
    },
  );
});
