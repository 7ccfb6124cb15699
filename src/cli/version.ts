/** `mlx-dspark version` and `--version`: this build and what it runs on, for reports. */
import packageFile from "../../package.json" with { type: "json" };
import { embedded } from "../engine/embedded/manifest.ts";
import { defineCliCommand } from "./command.ts";
import { switchFlag } from "./flags.ts";
import type { CliIo } from "./io.ts";
import { probeInChild } from "./machine-report.ts";

export const versionCommand = defineCliCommand({
  name: "version",
  description: "Print the version, the build and what it runs on",
  flags: { json: switchFlag("one JSON object on stdout") },
  run: async (flags, io) => {
    const facts = await buildFacts(io);
    io.stdout.write(flags.json ? `${JSON.stringify(facts)}\n` : `${versionLines(facts).join("\n")}\n`);
    return 0;
  },
});

interface BuildFacts {
  readonly version: string;
  /** null: a development tree, or built outside of one. */
  readonly commit: string | null;
  /** "cpu (avx512, 8 threads)"; null: the native libraries do not run here. */
  readonly backend: string | null;
  readonly mlx: string | null;
  readonly mlx_c: string;
  /** Interface version between the program and its native library. */
  readonly shim: number | null;
  readonly bun: string;
  readonly platform: string;
}

async function buildFacts(io: CliIo): Promise<BuildFacts> {
  const probe = await probeInChild(io);
  return {
    version: io.version,
    commit: embedded?.commit ?? null,
    backend: probe.ok ? backendText(probe.facts) : null,
    mlx: probe.ok ? probe.facts.mlx : null,
    mlx_c: packageFile.native.mlxC,
    shim: probe.ok ? probe.facts.shim : null,
    bun: Bun.version,
    platform: `${process.platform}-${process.arch}`,
  };
}

function backendText({ device, isa, threads }: { device: string; isa: string; threads: number }): string {
  return device === "metal" ? device : `${device} (${isa}, ${threads} threads)`;
}

function versionLines(facts: BuildFacts): string[] {
  return [
    `mlx-dspark ${facts.version}`,
    `commit   ${facts.commit ?? "unknown"}`,
    `backend  ${facts.backend ?? "none: see mlx-dspark doctor"}`,
    `MLX      ${facts.mlx ?? packageFile.native.mlx}, mlx-c ${facts.mlx_c}, shim interface ${facts.shim ?? "unknown"}`,
    `runtime  Bun ${facts.bun}, ${facts.platform}`,
  ];
}
