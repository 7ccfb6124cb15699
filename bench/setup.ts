/**
 * Brings the peers into a Python environment of their own, `build/bench-venv`, at pinned versions. Done once: a stamp
 * names what was installed, and another version installs anew.
 *
 * Usage: bun bench/setup.ts
 */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, relative } from "node:path";
import { requireTools, run } from "../tools/setup/run.ts";
import { peers } from "./versions.ts";

const build = join(import.meta.dir, "../build");
const venv = join(build, "bench-venv");
const stamp = join(venv, "installed.txt");
const llama = join(build, "bench-llama");
const llamaStamp = join(llama, "installed.txt");

/** MLX's wheel for Linux without CUDA is an extra of its own. */
const mlx = process.platform === "linux" ? `mlx[cpu]==${peers.mlx}` : `mlx==${peers.mlx}`;
const requirements = [mlx, `mlx-lm==${peers.mlxLm}`];

/** Without AMX, whose kernels fault where a virtual machine shows the instructions but does not permit them. */
const withoutAmx = process.arch === "x64" ? "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" : "";

/** llama.cpp for this very processor; the library alone, without the programs that come with it. */
const LLAMA_OPTIONS = [
  "CMAKE_BUILD_TYPE=Release",
  "BUILD_SHARED_LIBS=ON",
  "GGML_NATIVE=ON",
  `CMAKE_C_FLAGS=${withoutAmx}`,
  `CMAKE_CXX_FLAGS=${withoutAmx}`,
  "LLAMA_BUILD_COMMON=OFF",
  "LLAMA_BUILD_EXAMPLES=OFF",
  "LLAMA_BUILD_TESTS=OFF",
  "LLAMA_BUILD_TOOLS=OFF",
].map((option) => `-D${option}`);

function records(file: string, text: string): boolean {
  return existsSync(file) && readFileSync(file, "utf8") === text;
}

/** Makes the environment where it is missing or of other versions. Returns its Python. */
export function benchPython(): string {
  return environment(venv, requirements);
}

/** The Python mlx-dspark, which brings far more than its MLX: in an environment of its own. */
export function benchPythonWithReference(): string {
  return environment(join(build, "bench-reference-venv"), [
    mlx,
    `mlx-lm==${peers.mlxLm}`,
    `mlx-dspark==${peers.mlxDspark}`,
  ]);
}

function environment(folder: string, wanted: readonly string[]): string {
  const python = join(folder, "bin/python");
  const installed = join(folder, "installed.txt");
  if (records(installed, wanted.join("\n"))) return python;
  requireTools(["python3"]);
  console.error(`bench: installing ${wanted.join(", ")} into ${relative(process.cwd(), folder)} (once)`);
  // One that was left half-made has no stamp.
  rmSync(folder, { recursive: true, force: true });
  run(["python3", "-m", "venv", folder]);
  run([python, "-m", "pip", "install", "--quiet", ...wanted]);
  writeFileSync(installed, wanted.join("\n"));
  return python;
}

/** Where Python finds llama.cpp: its program, and what its environment must hold. */
export interface LlamaPython {
  readonly python: string;
  readonly environment: Readonly<Record<string, string>>;
}

/** Brings llama.cpp as well: the package of its bindings carries its source, which is compiled here. */
export function benchPythonWithLlama(): LlamaPython {
  const python = benchPython();
  const native = join(llama, "native");
  const result = { python, environment: { LLAMA_CPP_LIB_PATH: join(native, "bin") } };
  const version = peers.llamaCppPython;
  const wanted = [readFileSync(stamp, "utf8"), version, ...LLAMA_OPTIONS].join("\n");
  if (records(llamaStamp, wanted)) return result;
  requireTools(["c++", "cmake"]);
  console.error(
    `bench: building llama.cpp (llama-cpp-python ${version}) in build/bench-llama (once, some ten minutes)`,
  );
  rmSync(llama, { recursive: true, force: true });
  mkdirSync(llama, { recursive: true });
  const pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"];
  const requirement = `llama-cpp-python==${version}`;
  run([...pip, "download", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", llama, requirement]);
  const source = `llama_cpp_python-${version}`;
  run(["tar", "-xzf", `${source}.tar.gz`], llama);
  run([...pip, "install", "--force-reinstall", "--no-deps", join(llama, source)], llama, {
    CMAKE_ARGS: "-DLLAMA_BUILD=OFF",
  });
  // What the bindings import beside what mlx-lm has brought.
  run([...pip, "install", "diskcache", "typing-extensions"]);
  run(["cmake", "-S", join(llama, source, "vendor/llama.cpp"), "-B", native, ...LLAMA_OPTIONS]);
  run(["cmake", "--build", native, "--target", "llama", "--parallel", String(availableParallelism())]);
  writeFileSync(llamaStamp, wanted);
  return result;
}

if (import.meta.main) console.log(benchPythonWithLlama().python);
