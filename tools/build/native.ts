/**
 * Builds the shim with CMake and Ninja and stages it with MLX's libraries. Both do only what changed. A staged file is
 * replaced by renaming, never written in place: a running process may have it loaded.
 *
 * Usage: bun tools/build/native.ts [--macos] [--tests | --sanitized-tests]   (--macos on Linux: cross-build with the Zig compiler)
 */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { requireTools, run, step } from "../setup/run.ts";
import { libcxxStub } from "./libcxx-stub.ts";
import { chosenPlatform, crossCompiling, deps, mlxC, type Platform, root } from "./platform.ts";

/** Zig as a C++ cross compiler in the form that CMake wants: programs of one word. */
function zigToolchain(folder: string, wheel: string): string[] {
  const zig = join(deps, "ziglang/ziglang/zig");
  chmodSync(zig, 0o755);
  mkdirSync(folder, { recursive: true });
  const program = (name: string, command: string): string => {
    const path = join(folder, name);
    writeFileSync(path, `#!/bin/sh\nexport ZIG_GLOBAL_CACHE_DIR="${folder}/cache"\nexec "${zig}" ${command} "$@"\n`);
    chmodSync(path, 0o755);
    return path;
  };
  const stub = join(folder, "libc++.1.tbd");
  writeFileSync(stub, libcxxStub(wheel));
  // macOS 14 is what the mlx-metal wheel was made for.
  const target = "-target aarch64-macos.14.0";
  return [
    "-DCMAKE_SYSTEM_NAME=Darwin",
    "-DCMAKE_SYSTEM_PROCESSOR=arm64",
    "-DCMAKE_OSX_SYSROOT=",
    // Trying the compiler without linking: Zig would build its own C++ library for that.
    "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
    "-DCMAKE_OSX_DEPLOYMENT_TARGET=14.0",
    `-DCMAKE_C_COMPILER=${program("cc", `cc ${target}`)}`,
    `-DCMAKE_CXX_COMPILER=${program("c++", `c++ ${target}`)}`,
    // Use of the C++ library only as far as macOS 14 has it.
    "-DCMAKE_CXX_FLAGS=-U_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS -D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=1",
    `-DCMAKE_SHARED_LINKER_FLAGS=-nostdlib++ ${stub}`,
    `-DCMAKE_AR=${program("ar", "ar")}`,
    `-DCMAKE_RANLIB=${program("ranlib", "ranlib")}`,
  ];
}

/** Configures `folder` anew when its options are others than the last time. */
function configure(source: string, folder: string, own: readonly string[]): void {
  const bundledNinja = join(deps, "ninja-bin");
  const ninja = Bun.which("ninja") === null ? [`-DCMAKE_MAKE_PROGRAM=${bundledNinja}`] : [];
  const options = ["-G", "Ninja", ...ninja, ...own];
  const recorded = join(folder, "options.json");
  const wanted = JSON.stringify(options);
  if (existsSync(recorded) && readFileSync(recorded, "utf8") === wanted) return;
  rmSync(folder, { recursive: true, force: true });
  run(["cmake", "-S", join(root, source), "-B", folder, ...options]);
  writeFileSync(recorded, wanted);
}

function configureShim(platform: Platform): void {
  configure("shim", platform.shimBuild, [
    `-DMLX_ROOT=${platform.wheel}`,
    `-DMLX_C_DIR=${mlxC}`,
    ...(crossCompiling ? zigToolchain(join(root, "build/zig"), platform.wheel) : []),
  ]);
}

/** The shim's test program under sanitizers, and those of the CPU kernels as they are shipped. */
function buildTests(platform: Platform): void {
  run(["cmake", "--build", platform.shimBuild, "--target", "shim_test", "kernel_tests"]);
}

/** The kernels' test programs under each sanitizer; the one for threads is for their pool. */
function buildSanitizedTests(): void {
  for (const sanitizer of ["address", "thread"]) {
    const folder = join(root, "build", `kernel-tests-${sanitizer}`);
    configure("shim/test", folder, [`-DDSPARK_SANITIZER=${sanitizer}`]);
    run(["cmake", "--build", folder]);
  }
}

function stage(from: string, to: string): void {
  if (existsSync(to) && readFileSync(to).equals(readFileSync(from))) return;
  mkdirSync(dirname(to), { recursive: true });
  const partial = `${to}.partial-${process.pid}`;
  copyFileSync(from, partial);
  chmodSync(partial, 0o755);
  renameSync(partial, to);
}

await step(() => {
  const platform = chosenPlatform();
  requireTools(["cmake", ...(crossCompiling ? [] : ["c++"])]);
  configureShim(platform);
  if (process.argv.includes("--tests")) buildTests(platform);
  else if (process.argv.includes("--sanitized-tests")) buildSanitizedTests();
  else {
    run(["cmake", "--build", platform.shimBuild]);
    const files = platform.libraries.flatMap((glob) => [...new Bun.Glob(glob).scanSync({ cwd: platform.wheel })]);
    for (const file of files) stage(join(platform.wheel, file), join(platform.native, file));
    stage(join(platform.shimBuild, platform.shim), join(platform.native, "mlx/lib", basename(platform.shim)));
  }
});
