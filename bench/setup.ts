/**
 * Brings the peers into a Python environment of their own, `build/bench-venv`, at pinned versions. Done once: a stamp
 * names what was installed, and another version installs anew.
 *
 * Usage: bun bench/setup.ts
 */
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireTools, run } from "../tools/setup/run.ts";
import { peers } from "./versions.ts";

const build = join(import.meta.dir, "../build");
const venv = join(build, "bench-venv");
const stamp = join(venv, "installed.txt");
const llamaStamp = join(venv, "installed-llama.txt");

/** MLX's wheel for Linux without CUDA is an extra of its own. */
const requirements = [
  process.platform === "linux" ? `mlx[cpu]==${peers.mlx}` : `mlx==${peers.mlx}`,
  `mlx-lm==${peers.mlxLm}`,
];

/** Built for this very processor, as its users are told to; without the programs that come with it. */
const LLAMA_OPTIONS = ["GGML_NATIVE=ON", "LLAVA_BUILD=OFF"].map((option) => `-D${option}`).join(" ");
const llamaRequirement = `llama-cpp-python==${peers.llamaCppPython}`;

function records(file: string, text: string): boolean {
  return existsSync(file) && readFileSync(file, "utf8") === text;
}

/** Makes the environment where it is missing or of other versions. Returns its Python. */
export function benchPython(): string {
  const python = join(venv, "bin/python");
  if (records(stamp, requirements.join("\n"))) return python;
  requireTools(["python3"]);
  console.error(`bench: installing ${requirements.join(", ")} into build/bench-venv (once)`);
  // One that was left half-made has no stamp.
  rmSync(venv, { recursive: true, force: true });
  run(["python3", "-m", "venv", venv]);
  run([python, "-m", "pip", "install", "--quiet", ...requirements]);
  writeFileSync(stamp, requirements.join("\n"));
  return python;
}

/** The same, with llama.cpp beside it, which is compiled for this machine. Returns its Python. */
export function benchPythonWithLlama(): string {
  const python = benchPython();
  const wanted = `${llamaRequirement} ${LLAMA_OPTIONS}`;
  if (records(llamaStamp, wanted)) return python;
  requireTools(["c++", "cmake"]);
  console.error(`bench: building ${llamaRequirement} into build/bench-venv (once, some ten minutes)`);
  const install = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", "--no-cache-dir"];
  // Without its own dependencies but those that its module imports: MLX's numpy must stay what mlx-lm wants.
  run([python, "-m", "pip", "install", "--quiet", "diskcache", "jinja2", "numpy", "typing-extensions"]);
  run([python, ...install, "--no-binary", "llama-cpp-python", llamaRequirement], undefined, {
    CMAKE_ARGS: LLAMA_OPTIONS,
  });
  writeFileSync(llamaStamp, wanted);
  return python;
}

if (import.meta.main) console.log(benchPythonWithLlama());
