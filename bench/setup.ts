/**
 * Brings the Python peers into a virtual environment of their own, `build/bench-venv`, at pinned versions. Done once: a
 * stamp names what was installed, and another version installs anew.
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

/** MLX's wheel for Linux without CUDA is an extra of its own. */
const requirements = [
  process.platform === "linux" ? `mlx[cpu]==${peers.mlx}` : `mlx==${peers.mlx}`,
  `mlx-lm==${peers.mlxLm}`,
];

function isInstalled(): boolean {
  return existsSync(stamp) && readFileSync(stamp, "utf8") === requirements.join("\n");
}

/** Makes the environment where it is missing or of other versions. Returns its Python. */
export function benchPython(): string {
  const python = join(venv, "bin/python");
  if (isInstalled()) return python;
  requireTools(["python3"]);
  console.error(`bench: installing ${requirements.join(", ")} into build/bench-venv (once)`);
  // One that was left half-made has no stamp.
  rmSync(venv, { recursive: true, force: true });
  run(["python3", "-m", "venv", venv]);
  run([python, "-m", "pip", "install", "--quiet", ...requirements]);
  writeFileSync(stamp, requirements.join("\n"));
  return python;
}

if (import.meta.main) console.log(benchPython());
