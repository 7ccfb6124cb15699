/** The examination of this machine with what the program knows: its libraries, its folders, its models (cli.md §7). */
import packageFile from "../../package.json" with { type: "json" };
import { embeddedSizes } from "../engine/embedded/files.ts";
import { wantedCacheRoot } from "../hub/cache-root.ts";
import { type CatalogueRow, catalogue } from "../hub/catalogue.ts";
import { hubSettings } from "../hub/environment.ts";
import { localRoots } from "../hub/local-sources.ts";
import { type BackendProbe, examineMachine } from "../machine/doctor.ts";
import type { MachineReport } from "../server/telemetry/doctor-body.ts";
import type { CliIo } from "./io.ts";

/** Unpacking the libraries on a slow disk, then one product. */
const PROBE_LIMIT_MS = 60_000;
/** Of the machine's memory that a model may take. */
const RAM_SHARE = 0.8;

export async function machineReport(io: CliIo): Promise<MachineReport> {
  const { mlx, mlxC } = packageFile.native;
  const report = await examineMachine({
    version: io.version,
    pinned: { mlx, mlxC },
    cacheFolder: wantedCacheRoot(io.env),
    probe: () => probeInChild(io),
  });
  const roots = localRoots(io.env);
  const dirs = (source: string) => roots.filter((root) => root.source === source).map(({ dir }) => dir);
  const ram = report.environment.memory.total_bytes;
  return {
    ...report,
    models: (await catalogue(io.env, embeddedSizes)).map((row) => modelLine(row, ram)),
    model_dirs: {
      cache: dirs("cache-root")[0] ?? "",
      hub: hubSettings(io.env, true).cacheDir,
      lmstudio: dirs("lmstudio"),
      extra: dirs("model-dirs"),
    },
  };
}

function modelLine({ row, targetBytes, ready }: CatalogueRow, ramBytes: number): MachineReport["models"][number] {
  return {
    ...{ id: row.id, target: row.repo, ram_gb: row.ramGb, fits: row.ramGb * 1e9 <= RAM_SHARE * ramBytes },
    state: ready ? "ready" : targetBytes === null ? "not downloaded" : "drafter missing",
  };
}

/** What `doctor --probe` prints, tried in a process of its own, which a broken library may end. */
export async function probeInChild(io: Pick<CliIo, "self" | "env">): Promise<BackendProbe> {
  const child = Bun.spawn([...io.self, "doctor", "--probe"], {
    ...{ stdin: "ignore", stdout: "pipe", stderr: "pipe", env: { ...io.env } },
    timeout: PROBE_LIMIT_MS,
  });
  const [text, complaint] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  const code = await child.exited;
  if (code === 0) {
    // Written by this very program.
    return JSON.parse(text) as BackendProbe;
  }
  const how = child.signalCode === null ? `exit code ${code}` : String(child.signalCode);
  const last = complaint.trimEnd().split("\n").at(-1) ?? "";
  return { ok: false, error: `the native libraries ended the process that tried them (${how})${last && `: ${last}`}` };
}
