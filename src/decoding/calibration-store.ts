/**
 * Measured costs on disk: one JSON object in `calibration.json` of the cache root, key → entry (calibration.md §3).
 * Invariant: the file is whole at any time, and a writer keeps what others wrote. Nothing here throws: without a store
 * costs are only measured again.
 */
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { MeasuredCosts } from "./cost-curves.ts";

type Points = Readonly<Record<string, number>>;

/** As stored; times in ms, keys of curves are widths or caps. */
export interface CalibrationEntry {
  readonly verify: Points;
  readonly drafter: Points | number;
  readonly overhead: number;
  readonly plain?: number;
  readonly verify_depth?:
    | { readonly d0: number; readonly depths: readonly number[]; readonly slope: Points }
    | { readonly d0: number; readonly unsupported: true };
  /** ISO 8601. */
  readonly measured_at: string;
  readonly iters: number;
  /** Interquartile range over median of each point, e.g. "verify 4". */
  readonly spread: Points;
}

const FILE = "calibration.json";
const LOCK_STALE_MS = 10_000;
const LOCK_WAIT_MS = 2_000;
const LOCK_POLL_MS = 5;

export class CalibrationStore {
  private readonly file: string;

  /** @param say gets one line when the file cannot be written */
  constructor(
    private readonly folder: string,
    private readonly say: (line: string) => void = () => undefined,
  ) {
    this.file = join(folder, FILE);
  }

  /** The entry of a key; null when there is none, or none that can be used. */
  load(key: string): CalibrationEntry | null {
    const entry = this.readAll()[key];
    return isEntry(entry) ? entry : null;
  }

  /** The first of the keys that has an entry. */
  find(keys: readonly string[]): { readonly key: string; readonly entry: CalibrationEntry } | null {
    const all = this.readAll();
    for (const key of keys) {
      const entry = all[key];
      if (isEntry(entry)) return { key, entry };
    }
    return null;
  }

  /** Adds or replaces one entry. False when it could not be written. */
  save(key: string, entry: CalibrationEntry): boolean {
    try {
      mkdirSync(this.folder, { recursive: true });
      const unlock = this.lock();
      try {
        this.replace({ ...this.readAll(), [key]: entry });
      } finally {
        unlock();
      }
      return true;
    } catch (error) {
      this.say(`calibration is not kept: ${error instanceof Error ? error.message : String(error)}`);
      return false;
    }
  }

  private readAll(): Readonly<Record<string, unknown>> {
    try {
      const all: unknown = JSON.parse(readFileSync(this.file, "utf8"));
      return isObject(all) ? all : {};
    } catch {
      // Absent, unreadable or cut off: as empty.
      return {};
    }
  }

  private replace(all: Readonly<Record<string, unknown>>): void {
    const temporary = `${this.file}.${process.pid}.${crypto.randomUUID().slice(0, 8)}.tmp`;
    try {
      const descriptor = openSync(temporary, "wx");
      try {
        writeFileSync(descriptor, JSON.stringify(all, null, 1));
        fsyncSync(descriptor);
      } finally {
        closeSync(descriptor);
      }
      renameSync(temporary, this.file);
    } finally {
      rmSync(temporary, { force: true });
    }
  }

  /** Holds other writers off while a few milliseconds of reading and writing pass; a lock left behind is broken. */
  private lock(): () => void {
    const path = `${this.file}.lock`;
    const deadline = Date.now() + LOCK_WAIT_MS;
    for (;;) {
      try {
        closeSync(openSync(path, "wx"));
        return () => rmSync(path, { force: true });
      } catch (error) {
        if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
      }
      const age = Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
      // Without the lock the worst is a measurement lost to another writer: better than to wait on.
      if (age > LOCK_STALE_MS) rmSync(path, { force: true });
      else if (Date.now() > deadline) return () => undefined;
      else Bun.sleepSync(LOCK_POLL_MS);
    }
  }
}

/** The costs of an entry, as `CostCurves` takes them. */
export function costsOf(entry: CalibrationEntry): MeasuredCosts {
  const depth = entry.verify_depth;
  return {
    verify: entry.verify,
    drafter: entry.drafter,
    overhead: entry.overhead,
    ...(entry.plain === undefined ? {} : { plain: entry.plain }),
    ...(depth === undefined ? {} : { depth0: depth.d0, depthSlope: "slope" in depth ? depth.slope : null }),
  };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isPoints(value: unknown): value is Points {
  if (!isObject(value)) return false;
  const points = Object.entries(value);
  return points.length > 0 && points.every(([key, ms]) => /^\d+$/.test(key) && isMs(ms));
}

function isMs(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

/** True for an entry that `CostCurves` can price with; others are ignored, e.g. those of another schema. */
function isEntry(value: unknown): value is CalibrationEntry {
  if (!isObject(value)) return false;
  const { verify, drafter, overhead, plain, verify_depth: depth } = value;
  const depthGood =
    depth === undefined || (isObject(depth) && isMs(depth.d0) && (depth.unsupported === true || isPoints(depth.slope)));
  return (
    isPoints(verify) &&
    (isMs(drafter) || isPoints(drafter)) &&
    isMs(overhead) &&
    (plain === undefined || isMs(plain)) &&
    depthGood
  );
}
