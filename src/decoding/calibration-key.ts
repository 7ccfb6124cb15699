/**
 * The name under which measured costs are kept: everything that changes them is a part of it (calibration.md §3). Parts
 * cannot run into each other, so that two different machines or pairs never share an entry.
 */
import { createHash } from "node:crypto";

/** Custom kernels that are live, in the order in which the key names them. */
export const KERNEL_TAGS = ["smm", "sdps", "mra"] as const;
export type KernelTag = (typeof KERNEL_TAGS)[number];

export interface CalibrationParts {
  /** Chip or processor. */
  readonly device: string;
  /** GPU cores, or threads of the CPU backend. */
  readonly cores: number;
  readonly osMajor: number;
  readonly power: "ac" | "battery" | "low";
  readonly mlxVersion: string;
  /** 16 hex digits over the library with our kernels. */
  readonly kernels: string;
  readonly mode: "dspark" | "dflash" | "lookup";
  readonly target: string;
  /** null: no drafter. */
  readonly drafter: string | null;
  /** null: as stored. */
  readonly drafterBits: number | null;
  readonly context: number;
  readonly kvBits: number | null;
  readonly tags: readonly KernelTag[];
}

/** Rises when the meaning of a curve changes. */
const SCHEMA = "ts2";

export function calibrationKey(parts: CalibrationParts): string {
  const fields = [
    SCHEMA,
    parts.device,
    `c${parts.cores}`,
    `os${parts.osMajor}`,
    parts.power,
    `mlx${parts.mlxVersion}`,
    `k${parts.kernels}`,
    parts.mode,
    parts.target,
    parts.drafter ?? "-",
    `d${parts.drafterBits ?? ""}`,
    `ctx${parts.context}`,
    ...(parts.kvBits === null ? [] : [`kv${parts.kvBits}`]),
    ...KERNEL_TAGS.filter((tag) => parts.tags.includes(tag)),
  ];
  return fields.map((field) => field.replaceAll("%", "%25").replaceAll("|", "%7C")).join("|");
}

/** The live combination of kernels first, then all others: for a reader that wants whatever was measured. */
export function keysToRead(parts: CalibrationParts): string[] {
  const others: KernelTag[][] = [
    [],
    ["smm"],
    ["sdps"],
    ["smm", "sdps"],
    ["mra"],
    ["smm", "mra"],
    ["sdps", "mra"],
    ["smm", "sdps", "mra"],
  ];
  return [...new Set([parts.tags, ...others].map((tags) => calibrationKey({ ...parts, tags })))];
}

/** 16 hex digits that tell apart weights whose cost can differ: names, shapes and dtypes of all tensors. */
export function weightFingerprint(
  tensors: Iterable<{ readonly name: string; readonly shape: readonly number[]; readonly dtype: string }>,
): string {
  const lines = Array.from(tensors, ({ name, shape, dtype }) => `${name}:${shape.join(",")}:${dtype}`).sort();
  return createHash("sha256").update(lines.join("\n")).digest("hex").slice(0, 16);
}
