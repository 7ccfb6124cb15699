/**
 * What the system says of this machine: chip, memory, pressure, swap. Read from files and small system programs, never
 * from MLX, so any thread may ask. What cannot be read is null, never a guess.
 */
import { readFileSync } from "node:fs";
import { arch, cpus, platform, release, totalmem } from "node:os";
import { type Chip, chipOf } from "./chip.ts";

/** How the system is asked; tests answer instead. */
export interface SystemReader {
  readonly platform: string;
  readonly arch: string;
  readonly totalBytes: number;
  /** A file's text; null: not there. */
  file(path: string): string | null;
  /** stdout of a system program; null: not there, or it failed. */
  command(words: readonly string[]): string | null;
}

export interface MemoryState {
  readonly totalBytes: number;
  /** Share that can be had without swapping; null: unknown. */
  readonly freePercent: number | null;
  readonly swapUsedBytes: number | null;
  readonly swapTotalBytes: number | null;
  readonly pressure: "normal" | "warn" | "critical" | "unknown";
  /** macOS: `iogpu.wired_limit_mb`, 0 = the system's own limit; null elsewhere. */
  readonly wiredLimitMb: number | null;
}

export interface SystemFacts {
  readonly platform: string;
  readonly arch: string;
  readonly osVersion: string;
  readonly appleSilicon: boolean;
  readonly chip: Chip;
  /** Processors that the system shows; a container may use fewer. */
  readonly cpuCount: number;
  readonly memory: MemoryState;
}

export const THIS_MACHINE: SystemReader = {
  platform: platform(),
  arch: arch(),
  totalBytes: totalmem(),
  file: (path) => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return null; // Another system, or an older kernel: the fact is unknown then.
    }
  },
  command: (words) => {
    try {
      const { exitCode, stdout } = Bun.spawnSync([...words], { stdin: "ignore", stderr: "ignore", timeout: 3000 });
      return exitCode === 0 ? stdout.toString() : null;
    } catch {
      return null; // No such program.
    }
  },
};

export function readSystem(reader: SystemReader = THIS_MACHINE): SystemFacts {
  const mac = reader.platform === "darwin";
  return {
    platform: reader.platform,
    arch: reader.arch,
    osVersion: (mac ? reader.command(["sw_vers", "-productVersion"])?.trim() : linuxName(reader)) ?? release(),
    appleSilicon: mac && reader.arch === "arm64",
    chip: mac ? appleChip(reader) : chipOf(linuxChip(reader) ?? "unknown", null),
    cpuCount: cpus().length,
    memory: readMemory(reader),
  };
}

/** Cheap on Linux, a few small processes on macOS: not for every request. */
export function readMemory(reader: SystemReader = THIS_MACHINE): MemoryState {
  return reader.platform === "darwin" ? macMemory(reader) : linuxMemory(reader);
}

function linuxName(reader: SystemReader): string | null {
  return /^PRETTY_NAME="?([^"\n]*)/m.exec(reader.file("/etc/os-release") ?? "")?.[1] ?? null;
}

function linuxChip(reader: SystemReader): string | null {
  return /^model name\s*:\s*(.+)$/m.exec(reader.file("/proc/cpuinfo") ?? "")?.[1]?.trim() ?? null;
}

function linuxMemory(reader: SystemReader): MemoryState {
  const text = reader.file("/proc/meminfo") ?? "";
  const bytes = (key: string) => {
    const kilobytes = new RegExp(`^${key}:\\s+(\\d+) kB`, "m").exec(text)?.[1];
    return kilobytes === undefined ? null : Number(kilobytes) * 1024;
  };
  const [available, total] = [bytes("MemAvailable"), bytes("MemTotal")];
  const [swapTotal, swapFree] = [bytes("SwapTotal"), bytes("SwapFree")];
  return {
    totalBytes: total ?? reader.totalBytes,
    freePercent: available === null || total === null ? null : Math.round((available / total) * 100),
    swapUsedBytes: swapTotal === null || swapFree === null ? null : swapTotal - swapFree,
    swapTotalBytes: swapTotal,
    pressure: linuxPressure(reader),
    wiredLimitMb: null,
  };
}

/** Share of the last ten seconds in which some, or every, task waited for memory; in per cent. */
const WARN_SOME_PERCENT = 10;
const CRITICAL_FULL_PERCENT = 10;

function linuxPressure(reader: SystemReader): MemoryState["pressure"] {
  const text = reader.file("/proc/pressure/memory");
  const share = (line: string) =>
    Number(new RegExp(`^${line} avg10=([\\d.]+)`, "m").exec(text ?? "")?.[1] ?? Number.NaN);
  const [some, full] = [share("some"), share("full")];
  if (Number.isNaN(some)) return "unknown";
  if (full >= CRITICAL_FULL_PERCENT) return "critical";
  return some >= WARN_SOME_PERCENT ? "warn" : "normal";
}

function sysctl(reader: SystemReader, name: string): string | null {
  return reader.command(["sysctl", "-n", name])?.trim() ?? null;
}

function appleChip(reader: SystemReader): Chip {
  const registry = reader.command(["ioreg", "-rc", "AGXAccelerator", "-d", "1"]) ?? "";
  const cores = /"gpu-core-count"\s*=\s*(\d+)/.exec(registry)?.[1];
  return chipOf(sysctl(reader, "machdep.cpu.brand_string") ?? "unknown", cores === undefined ? null : Number(cores));
}

const MAC_PRESSURE: Readonly<Record<string, MemoryState["pressure"]>> = { "1": "normal", "2": "warn", "4": "critical" };

function macMemory(reader: SystemReader): MemoryState {
  // "total = 2048.00M  used = 1024.00M  free = 1024.00M  (encrypted)"
  const swap = sysctl(reader, "vm.swapusage") ?? "";
  const megabytes = (key: string) => {
    const value = new RegExp(`\\b${key} = ([\\d.]+)M`).exec(swap)?.[1];
    return value === undefined ? null : Math.round(Number(value) * 2 ** 20);
  };
  const free = sysctl(reader, "kern.memorystatus_level");
  const wired = sysctl(reader, "iogpu.wired_limit_mb");
  return {
    totalBytes: reader.totalBytes,
    freePercent: free === null ? null : Number(free),
    swapUsedBytes: megabytes("used"),
    swapTotalBytes: megabytes("total"),
    pressure: MAC_PRESSURE[sysctl(reader, "kern.memorystatus_vm_pressure_level") ?? ""] ?? "unknown",
    wiredLimitMb: wired === null ? null : Number(wired),
  };
}
