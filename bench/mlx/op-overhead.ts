/**
 * What one MLX operation costs beyond MLX: `add` of two scalars through `src/mlx/ops.ts`, the same loop in Python's
 * mlx.core, and the same loop in C over mlx-c where there is a C compiler.
 *
 * Usage: bun bench/mlx/op-overhead.ts [--rounds N]
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { run } from "../../tools/setup/run.ts";
import { native } from "../../tools/setup/versions.ts";
import { benchPython } from "../setup.ts";
import { Contender } from "../support/contender.ts";
import { alternate, pairedSpread, valuesOf } from "../support/paired.ts";
import { type Line, report } from "../support/report.ts";
import { roundsFlag } from "../support/rounds-flag.ts";
import { spread } from "../support/statistics.ts";
import { OPS_PER_BURST, OPS_PER_SCOPE } from "./op-overhead-size.ts";

const root = join(import.meta.dir, "../..");
/** What the project promises of its bindings. */
const RATIO_MAX = 1;
const OVER_C_NS_MAX = 60;

/** The C loop, linked to the library that we load; null without a compiler. */
function compileLoop(): string | null {
  const compiler = Bun.which("cc");
  if (compiler === null) return null;
  const folder = join(root, "build/bench");
  mkdirSync(folder, { recursive: true });
  const binary = join(folder, "op-overhead");
  const libraries = join(root, "build/native/mlx/lib");
  const neighbours = process.platform === "darwin" ? [] : [`-Wl,-rpath-link,${libraries}`];
  run([
    compiler,
    "-O2",
    `-I${join(root, `build/deps/mlx-c-${native.mlxC}`)}`,
    join(import.meta.dir, "op-overhead.c"),
    "-o",
    binary,
    `-L${libraries}`,
    "-lmlx_dspark_shim",
    `-Wl,-rpath,${libraries}`,
    ...neighbours,
  ]);
  return binary;
}

const loop = compileLoop();
const python = benchPython();
const sides = [
  Contender.start("ours", [process.execPath, join(import.meta.dir, "op-overhead-ours.ts")]),
  Contender.start("python", [python, join(root, "bench/python/op_overhead.py"), String(OPS_PER_BURST)]),
];
if (loop !== null) sides.push(Contender.start("c", [loop, String(OPS_PER_BURST), String(OPS_PER_SCOPE)]));
const rounds = await alternate(sides, { rounds: roundsFlag(100), warmup: 5 });

const ratio = (a: number, b: number) => a / b;
const difference = (a: number, b: number) => a - b;
const lines: Line[] = [
  { name: "ours, CPU time per add", unit: "ns", value: spread(valuesOf(rounds, "ours", "thread_ns")) },
  { name: "python a + b, CPU time per add", unit: "ns", value: spread(valuesOf(rounds, "python", "thread_ns")) },
  {
    name: "ours / python a + b, CPU time",
    unit: "×",
    value: pairedSpread(rounds, ["ours", "python"], "thread_ns", ratio),
    limit: RATIO_MAX,
  },
  {
    name: "ours / python a + b, wall time",
    unit: "×",
    value: pairedSpread(rounds, ["ours", "python"], "wall_ns", ratio),
  },
];
if (loop !== null) {
  lines.push(
    { name: "mlx-c from C, CPU time per add", unit: "ns", value: spread(valuesOf(rounds, "c", "thread_ns")) },
    {
      name: "ours over mlx-c, CPU time per add",
      unit: "ns",
      value: pairedSpread(rounds, ["ours", "c"], "thread_ns", difference),
      limit: OVER_C_NS_MAX,
    },
  );
}
if (!report("mlx-op-overhead", lines, rounds)) process.exitCode = 1;
