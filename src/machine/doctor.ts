/**
 * The examination behind `mlx-dspark doctor` and `GET /doctor`: can this machine run the program, and what would be
 * better. A problem is something that keeps it from working; everything else is a note (admin-metrics.md §7, cli.md §7).
 */
import { accessSync, constants, existsSync, readdirSync } from "node:fs";
import { dirname } from "node:path";
import { type Static, type TSchema, Type as t } from "@sinclair/typebox";
import type { BackendFacts } from "./backend.ts";
import { readSystem, type SystemFacts, THIS_MACHINE } from "./system.ts";

/** What `tryBackend` found, or why it found nothing. */
export type BackendProbe =
  | { readonly ok: true; readonly facts: BackendFacts }
  | { readonly ok: false; readonly error: string };

/** What the machine does not say of itself. */
export interface Examination {
  readonly version: string;
  /** Versions that this build was made for. */
  readonly pinned: { readonly mlx: string; readonly mlxC: string };
  /** Where the program keeps its files, whether or not it exists yet. */
  readonly cacheFolder: string;
  /** Tries the native libraries, in a process of its own; never rejects. */
  readonly probe: () => Promise<BackendProbe>;
  readonly system?: SystemFacts;
}

const orNull = <T extends TSchema>(schema: T) => t.Union([schema, t.Null()]);

const environmentSchema = t.Object({
  version: t.String(),
  platform: t.String(),
  machine: t.String(),
  os_version: t.String(),
  apple_silicon: t.Boolean(),
  backend: t.Union([t.Literal("metal"), t.Literal("cpu"), t.Null()]),
  metal_ok: t.Boolean(),
  metal_error: orNull(t.String()),
  device: orNull(t.String({ description: 'For people: "metal", "cpu (avx512, 8 threads)".' })),
  native: t.Object({ libmlx: orNull(t.String()), mlxc: t.String(), shim: orNull(t.Number()) }),
  ram_gb: t.Number(),
  iogpu_wired_limit_mb: orNull(t.Number()),
  wired_limit_hint: orNull(t.String()),
  chip: t.Object({
    name: t.String(),
    gpu_cores: orNull(t.Integer()),
    cpus: t.Integer(),
    bandwidth_gb_s: orNull(t.Number()),
    bandwidth_source: t.String(),
  }),
  memory: t.Object({
    total_bytes: t.Integer(),
    free_percent: orNull(t.Number()),
    pressure: t.String(),
    swap_used_bytes: orNull(t.Integer()),
    swap_total_bytes: orNull(t.Integer()),
  }),
});

/** JSON as `/doctor` sends it, without the models, which this room does not know. */
export const reportSchema = t.Object({
  ok: t.Boolean(),
  problems: t.Array(t.String({ description: "What keeps the program from working." })),
  notes: t.Array(t.String()),
  environment: environmentSchema,
});

export type DoctorReport = Static<typeof reportSchema>;

const GB = 1e9;
/** cli.md §7. The system reports a little less than what is sold as 16 GB. */
const RAM_COMFORTABLE_BYTES = 15 * GB;
/** Of the memory that may be wired where the system's own limit is lower. */
const WIRED_SHARE = 0.75;

export async function examineMachine(examination: Examination): Promise<DoctorReport> {
  const system = examination.system ?? readSystem(THIS_MACHINE);
  const probe = await examination.probe();
  const problems = [...backendProblems(probe, examination.pinned.mlx), ...cacheProblems(examination.cacheFolder)];
  const wiredHint = wiredLimitHint(system);
  const { memory, chip } = system;
  return {
    ok: problems.length === 0,
    problems,
    notes: [
      ...systemNotes(system, probe),
      ...(wiredHint === null ? [] : [`let the GPU wire more memory: ${wiredHint}`]),
    ],
    environment: {
      version: examination.version,
      platform: system.platform,
      machine: system.arch,
      os_version: system.osVersion,
      apple_silicon: system.appleSilicon,
      backend: probe.ok ? probe.facts.device : null,
      metal_ok: probe.ok && probe.facts.device === "metal",
      metal_error: system.appleSilicon ? metalError(probe) : null,
      device: probe.ok ? deviceText(probe.facts) : null,
      native: {
        libmlx: probe.ok ? probe.facts.mlx : null,
        mlxc: examination.pinned.mlxC,
        shim: probe.ok ? probe.facts.shim : null,
      },
      ram_gb: Math.round((memory.totalBytes / GB) * 10) / 10,
      iogpu_wired_limit_mb: memory.wiredLimitMb,
      wired_limit_hint: wiredHint,
      chip: {
        name: chip.name,
        gpu_cores: chip.gpuCores,
        cpus: system.cpuCount,
        bandwidth_gb_s: chip.bandwidthGbS,
        bandwidth_source: chip.bandwidthSource,
      },
      memory: {
        total_bytes: memory.totalBytes,
        free_percent: memory.freePercent,
        pressure: memory.pressure,
        swap_used_bytes: memory.swapUsedBytes,
        swap_total_bytes: memory.swapTotalBytes,
      },
    },
  };
}

function backendProblems(probe: BackendProbe, wanted: string): string[] {
  if (!probe.ok) {
    const old = /GLIBC(XX)?_/.test(probe.error);
    return [`no usable backend: ${probe.error}${old ? "; the system's C or C++ library is too old" : ""}`];
  }
  if (probe.facts.mlx === wanted) return [];
  return [
    `the native libraries hold MLX ${probe.facts.mlx}, this build needs ${wanted}: remove the cache's native folder`,
  ];
}

function cacheProblems(folder: string): string[] {
  const place = nearestExisting(folder);
  try {
    readdirSync(place); // A file in the way is not a folder that can be written to.
    accessSync(place, constants.W_OK | constants.X_OK);
    return [];
  } catch (error) {
    const reason = error instanceof Error && "code" in error ? String(error.code) : String(error);
    return [`cache folder ${folder} is not writable (${reason}): set MLX_DSPARK_CACHE to another one`];
  }
}

function nearestExisting(folder: string): string {
  let place = folder;
  while (!existsSync(place) && dirname(place) !== place) place = dirname(place);
  return place;
}

function metalError(probe: BackendProbe): string | null {
  if (!probe.ok) return probe.error;
  return probe.facts.device === "metal" ? null : "no Metal device: the CPU is used";
}

function deviceText({ device, isa, threads }: BackendFacts): string {
  return device === "metal" ? "metal" : `cpu (${isa}, ${threads} threads)`;
}

function systemNotes(system: SystemFacts, probe: BackendProbe): string[] {
  const { memory } = system;
  const notes: string[] = [];
  if (probe.ok && probe.facts.device === "cpu") {
    notes.push(
      system.appleSilicon
        ? "Metal is not available: everything runs on the CPU, which is much slower"
        : "the CPU backend is used: small models are comfortable, large ones are slow",
    );
    if (probe.facts.isa === "portable")
      notes.push("no AVX2, AVX-512 or NEON: the portable kernels are several times slower");
    if (probe.facts.threads < system.cpuCount) {
      notes.push(
        `${probe.facts.threads} of ${system.cpuCount} processors may be used (affinity or a container's quota)`,
      );
    }
  }
  if (memory.totalBytes < RAM_COMFORTABLE_BYTES) {
    notes.push(`${(memory.totalBytes / GB).toFixed(1)} GB of memory: choose models of the table that need less`);
  }
  if (memory.pressure === "warn" || memory.pressure === "critical") {
    notes.push(`memory pressure is ${memory.pressure}: close other programs before loading a large model`);
  }
  return notes;
}

/** Only where it helps: macOS with 16 GB or more and no limit set. */
function wiredLimitHint({ appleSilicon, memory }: SystemFacts): string | null {
  if (!appleSilicon || memory.wiredLimitMb !== 0 || memory.totalBytes < RAM_COMFORTABLE_BYTES) return null;
  return `sudo sysctl iogpu.wired_limit_mb=${Math.floor((memory.totalBytes / 2 ** 20) * WIRED_SHARE)}`;
}
