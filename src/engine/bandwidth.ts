/**
 * Memory bandwidth as decoding meets it, the median of ten runs (calibration.md §2): on Metal a float16 matrix larger
 * than any cache times a vector, on a CPU a plain copy, since float16 is emulated there and MLX's float32 products are
 * not ours. Measured once a machine and kept beside the calibration; only a load that calibrates waits for it.
 */
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { evaluate, free, keep, scalar, scope } from "../mlx/array.ts";
import { device } from "../mlx/native.ts";
import { add, astype, matmul, zeros } from "../mlx/ops.ts";
import type { MeasuredBandwidth } from "./protocol.ts";

/** A matrix in float16; a buffer of which there are two. Both are beyond any cache. */
const METAL_BYTES = 512 << 20;
const COPY_BYTES = 128 << 20;
const WARMUPS = 3;
const RUNS = 10;
const FILE = "bandwidth.json";

/** Kept values by device name; null when nothing was measured on this device, or the file cannot be read. */
export function keptBandwidth(folder: string): MeasuredBandwidth | null {
  const entry = readAll(folder)[deviceKey()];
  return isBandwidth(entry) ? entry : null;
}

/** Measures now and keeps the value. Takes less than a second, and memory of that size meanwhile. */
export function measureBandwidth(folder: string): MeasuredBandwidth {
  const { bytes, seconds, method } = device === "metal" ? matrixTimesVector() : plainCopy();
  const median = seconds.sort((a, b) => a - b)[RUNS >> 1] ?? Number.NaN;
  const gbS = Math.round(bytes / median / 1e8) / 10;
  const measured = { gbS, measuredAt: new Date().toISOString(), method };
  keepEntry(folder, measured);
  return measured;
}

interface Runs {
  /** Moved in one run. */
  readonly bytes: number;
  readonly seconds: number[];
  readonly method: string;
}

function timed(run: () => void): number[] {
  const seconds: number[] = [];
  for (let i = -WARMUPS; i < RUNS; i++) {
    const began = Bun.nanoseconds();
    run();
    if (i >= 0) seconds.push((Bun.nanoseconds() - began) / 1e9);
  }
  return seconds;
}

function matrixTimesVector(): Runs {
  const side = Math.floor(Math.sqrt(METAL_BYTES / 2) / 64) * 64;
  const ones = (shape: readonly number[]) =>
    scope(() => keep(astype(add(zeros(shape, "float32"), scalar(1, "float32")), "float16")));
  const matrix = ones([side, side]);
  const vector = ones([side, 1]);
  try {
    evaluate([matrix, vector]);
    const seconds = timed(() => scope(() => evaluate([matmul(matrix, vector)])));
    return { bytes: side * side * 2, seconds, method: `float16 matrix × vector, ${METAL_BYTES >> 20} MiB` };
  } finally {
    free(matrix);
    free(vector);
  }
}

function plainCopy(): Runs {
  const from = new Uint8Array(COPY_BYTES).fill(1);
  const to = new Uint8Array(COPY_BYTES).fill(2);
  const seconds = timed(() => to.set(from));
  return { bytes: 2 * COPY_BYTES, seconds, method: `copy of ${COPY_BYTES >> 20} MiB, read and written` };
}

function deviceKey(): string {
  return `${device} ${cpus()[0]?.model ?? "unknown"} ×${cpus().length}`;
}

function readAll(folder: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(readFileSync(join(folder, FILE), "utf8"));
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {}; // None yet, or a damaged one: it is measured again.
  }
}

function keepEntry(folder: string, measured: MeasuredBandwidth): void {
  const path = join(folder, FILE);
  try {
    mkdirSync(folder, { recursive: true });
    const temporary = `${path}.${process.pid}`;
    writeFileSync(temporary, `${JSON.stringify({ ...readAll(folder), [deviceKey()]: measured }, null, 1)}\n`);
    renameSync(temporary, path);
  } catch {
    // A folder that cannot be written to costs a second at the next start.
  }
}

function isBandwidth(value: unknown): value is MeasuredBandwidth {
  if (typeof value !== "object" || value === null) return false;
  if (!("gbS" in value && "measuredAt" in value && "method" in value)) return false;
  const { gbS, measuredAt, method } = value;
  return typeof gbS === "number" && gbS > 0 && typeof measuredAt === "string" && typeof method === "string";
}
