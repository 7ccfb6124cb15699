/**
 * Builds the kernels' tests for AArch64 with the Zig compiler, runs them under emulation, and compares the hash of each
 * one's results with that of the same test built for this machine: the NEON body must give every bit of the others.
 * Without the tools (the `ziglang` wheel of `make dist-macos`, qemu-user) it says so and passes.
 *
 * Usage: bun tools/build/aarch64.ts
 */
import { existsSync, mkdirSync } from "node:fs";
import { basename, join } from "node:path";
import { run } from "../setup/run.ts";
import { deps, root } from "./platform.ts";

const TESTS = ["matmul", "attention", "draft", "layer", "pool"] as const;
const zig = join(deps, "ziglang/ziglang/zig");
const emulator = Bun.which("qemu-aarch64") ?? Bun.which("qemu-aarch64-static");

function missing(): string | null {
  if (!existsSync(zig)) return "the Zig compiler is not set up (make dist-macos fetches it)";
  if (emulator === null) return "qemu-aarch64 is not installed (Debian: apt-get install qemu-user)";
  return null;
}

/** Kernels and tests, with the flags of shim/cpu/CMakeLists.txt, by one compiler. */
function build(folder: string, compiler: readonly string[], leaveOut: RegExp): void {
  mkdirSync(folder, { recursive: true });
  const flags = ["-O2", "-std=c++20", "-ffp-contract=off", "-Wno-psabi", `-I${join(root, "shim/cpu")}`, "-pthread"];
  const sources = [...new Bun.Glob("shim/cpu/*.cpp").scanSync({ cwd: root })].filter((file) => !leaveOut.test(file));
  const objects = sources.sort().map((source) => {
    const object = join(folder, `${basename(source)}.o`);
    run([...compiler, ...flags, "-c", join(root, source), "-o", object]);
    return object;
  });
  for (const name of TESTS) {
    run([...compiler, ...flags, join(root, `shim/test/${name}_test.cpp`), ...objects, "-o", join(folder, name)]);
  }
}

/** The test's "hash …" line, "" where it prints none. @throws Error when the test fails */
function hashOf(command: readonly string[]): string {
  return /^hash [0-9a-f]+$/m.exec(run(command))?.[0] ?? "";
}

const reason = missing();
if (reason !== null || emulator === null) {
  console.log(`skipped: ${reason}`);
} else {
  const folder = join(root, "build/aarch64");
  const native = join(root, "build/shim");
  run(["cmake", "--build", native, "--target", "kernel_tests"]);
  build(folder, [zig, "c++", "-target", "aarch64-linux-musl"], /avx/);
  let failed = 0;
  for (const name of TESTS) {
    const [here, there] = [hashOf([join(native, `kernel_${name}_test`)]), hashOf([emulator, join(folder, name)])];
    console.log(
      `${name}: ${here === there ? "the same bits on AArch64" : `AArch64 gives "${there}", this machine "${here}"`}`,
    );
    if (here !== there) failed++;
  }
  process.exitCode = failed === 0 ? 0 : 1;
}
