/** `mlx-dspark doctor`: whether this machine can run the program, and what would be better (cli.md §7). */
import { nativeFolder } from "../engine/embedded/files.ts";
import { tryBackend } from "../machine/backend.ts";
import type { BackendProbe } from "../machine/doctor.ts";
import type { MachineReport } from "../server/telemetry/doctor-body.ts";
import { defineCliCommand } from "./command.ts";
import { switchFlag } from "./flags.ts";
import type { CliIo } from "./io.ts";
import { machineReport } from "./machine-report.ts";
import { size } from "./progress.ts";

const doctorFlags = {
  json: switchFlag("one JSON object on stdout, as GET /doctor"),
  models: switchFlag("also say of each known model whether it fits and what is downloaded"),
  probe: { ...switchFlag("try the native libraries and print what came of it"), hidden: true },
};

export const doctorCommand = defineCliCommand({
  name: "doctor",
  description: "Examine this machine",
  flags: doctorFlags,
  run: async (flags, io) => {
    if (flags.probe) {
      io.stdout.write(`${JSON.stringify(probe())}\n`);
      return 0;
    }
    const report = await machineReport(io);
    if (flags.json) io.stdout.write(`${JSON.stringify(report, null, 1)}\n`);
    else io.stdout.write(`${reportLines(report, flags.models, io).join("\n")}\n`);
    return report.ok ? 0 : 1;
  },
});

function probe(): BackendProbe {
  try {
    return { ok: true, facts: tryBackend(nativeFolder()) };
  } catch (error) {
    return { ok: false, error: error instanceof Error ? error.message : String(error) };
  }
}

function reportLines({ ok, problems, notes, environment, models }: MachineReport, all: boolean, io: CliIo): string[] {
  const { chip, memory, native } = environment;
  const facts: readonly (readonly [string, string])[] = [
    ["system", `${environment.platform} ${environment.machine}, ${environment.os_version}`],
    ["chip", chipText(chip)],
    ["memory", memoryText(memory)],
    ["backend", environment.device ?? "none"],
    [
      "native",
      `MLX ${native.libmlx ?? "not loaded"}, mlx-c ${native.mlxc}, shim interface ${native.shim ?? "unknown"}`,
    ],
  ];
  return [
    ...facts.map(([name, value]) => `  ${name.padEnd(9)}${value}`),
    ...problems.map((text) => `✗ ${text}`),
    ...notes.map((text) => `- ${text}`),
    ...(all ? modelLines(models) : []),
    ok ? `— mlx-dspark ${io.version} ready.` : "issues above.",
  ];
}

function chipText({ name, gpu_cores, cpus, bandwidth_gb_s }: MachineReport["environment"]["chip"]): string {
  const parts = [name, `${cpus} processors`];
  if (gpu_cores !== null) parts.push(`${gpu_cores} GPU cores`);
  if (bandwidth_gb_s !== null) parts.push(`${bandwidth_gb_s} GB/s stated`);
  return parts.join(", ");
}

function memoryText(memory: MachineReport["environment"]["memory"]): string {
  const parts = [size(memory.total_bytes)];
  if (memory.free_percent !== null) parts.push(`${memory.free_percent} % free`);
  parts.push(`pressure ${memory.pressure}`);
  if (memory.swap_used_bytes !== null && memory.swap_used_bytes > 0)
    parts.push(`${size(memory.swap_used_bytes)} swapped`);
  return parts.join(", ");
}

function modelLines(models: MachineReport["models"]): string[] {
  const width = Math.max(...models.map(({ id }) => id.length));
  return models.map(
    ({ id, ram_gb, fits, state }) => `${fits ? "✓" : "✗"} ${id.padEnd(width)}  ~${ram_gb} GB  ${state}`,
  );
}
