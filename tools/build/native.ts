/**
 * Builds the shim with CMake and Ninja and stages it with MLX's libraries. Both do only what changed. A staged file is
 * replaced by renaming, never written in place: a running process may have it loaded.
 *
 * Usage: bun tools/build/native.ts [--macos] [--sanitized]   (--macos on Linux: cross-build with the Zig compiler)
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
import { requireTools, run } from "../setup/run.ts";
import { chosenPlatform, crossCompiling, deps, mlxC, type Platform, root } from "./platform.ts";

/** Zig as a C++ cross compiler in the form that CMake wants: programs of one word. */
function zigToolchain(folder: string): string[] {
  const zig = join(deps, "ziglang/ziglang/zig");
  chmodSync(zig, 0o755);
  mkdirSync(folder, { recursive: true });
  const program = (name: string, command: string): string => {
    const path = join(folder, name);
    writeFileSync(path, `#!/bin/sh\nexec "${zig}" ${command} "$@"\n`);
    chmodSync(path, 0o755);
    return path;
  };
  // macOS 14 is what the mlx-metal wheel was made for.
  const target = "-target aarch64-macos.14.0";
  return [
    "-DCMAKE_SYSTEM_NAME=Darwin",
    "-DCMAKE_SYSTEM_PROCESSOR=arm64",
    "-DCMAKE_OSX_SYSROOT=",
    "-DCMAKE_OSX_DEPLOYMENT_TARGET=",
    `-DCMAKE_C_COMPILER=${program("cc", `cc ${target}`)}`,
    `-DCMAKE_CXX_COMPILER=${program("c++", `c++ ${target}`)}`,
    `-DCMAKE_AR=${program("ar", "ar")}`,
    `-DCMAKE_RANLIB=${program("ranlib", "ranlib")}`,
    "-DCMAKE_INSTALL_NAME_TOOL=true",
  ];
}

function configure(platform: Platform): void {
  const bundledNinja = join(deps, "ninja-bin");
  const options = [
    "-G",
    "Ninja",
    ...(Bun.which("ninja") === null ? [`-DCMAKE_MAKE_PROGRAM=${bundledNinja}`] : []),
    `-DMLX_ROOT=${platform.wheel}`,
    `-DMLX_C_DIR=${mlxC}`,
    ...(crossCompiling ? zigToolchain(join(root, "build/zig")) : []),
  ];
  const recorded = join(platform.shimBuild, "options.json");
  const wanted = JSON.stringify(options);
  if (existsSync(recorded) && readFileSync(recorded, "utf8") === wanted) return;
  rmSync(platform.shimBuild, { recursive: true, force: true });
  run(["cmake", "-S", join(root, "shim"), "-B", platform.shimBuild, ...options]);
  writeFileSync(recorded, wanted);
}

function stage(from: string, to: string): void {
  if (existsSync(to) && readFileSync(to).equals(readFileSync(from))) return;
  mkdirSync(dirname(to), { recursive: true });
  const partial = `${to}.partial-${process.pid}`;
  copyFileSync(from, partial);
  chmodSync(partial, 0o755);
  renameSync(partial, to);
}

const platform = chosenPlatform();
requireTools(["cmake", ...(crossCompiling ? [] : ["c++"])]);
configure(platform);
if (process.argv.includes("--sanitized")) run(["cmake", "--build", platform.shimBuild, "--target", "shim_test"]);
else {
  run(["cmake", "--build", platform.shimBuild]);
  const files = platform.libraries.flatMap((glob) => [...new Bun.Glob(glob).scanSync({ cwd: platform.wheel })]);
  for (const file of files) stage(join(platform.wheel, file), join(platform.native, file));
  stage(join(platform.shimBuild, platform.shim), join(platform.native, "mlx/lib", basename(platform.shim)));
}
