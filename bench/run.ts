/**
 * Runs the benchmarks one after the other; fails when a limit does not hold. `bun bench/run.ts [name…]`, where a name is
 * a file below bench/ without its ending.
 */
import { join } from "node:path";

const ALL = [
  "mlx/op-overhead",
  "engine/host-overhead",
  "engine/pipelining",
  "engine/constraint",
  "engine/mask-time",
  "http/token-gap",
  "cpu/peers",
  "speculation/gain",
  "speculation/round-overhead",
] as const;

const asked = process.argv.slice(2);
const unknown = asked.filter((name) => !ALL.some((known) => known === name));
if (unknown.length > 0) throw new Error(`no benchmark ${unknown.join(", ")}; there are ${ALL.join(", ")}`);

for (const name of asked.length > 0 ? asked : ALL) {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, `${name}.ts`)], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  if ((await child.exited) !== 0) process.exitCode = 1;
}
