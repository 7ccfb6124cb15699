/** `mlx-dspark models`: the registry with its drafters, what it needs, and what is on this machine (cli.md §7). */
import { totalmem } from "node:os";
import { embeddedSizes } from "../engine/embedded/files.ts";
import { type CatalogueRow, catalogue, type InstalledModel, installedModels } from "../hub/catalogue.ts";
import { localRoots } from "../hub/local-sources.ts";
import type { RegistryRow } from "../hub/registry.ts";
import type { Catalogue } from "../server/admin/models-body.ts";
import { defineCliCommand } from "./command.ts";
import { switchFlag } from "./flags.ts";
import type { CliIo } from "./io.ts";
import { size } from "./progress.ts";

/** Of the machine's memory that a model may take. */
const RAM_SHARE = 0.8;

export const modelsCommand = defineCliCommand({
  name: "models",
  description: "List known models, their drafters, and what is on this machine",
  flags: { json: switchFlag("one JSON object on stdout") },
  run: async (flags, io) => {
    if (flags.json) {
      io.stdout.write(`${JSON.stringify(await modelsBody(io), null, 1)}\n`);
      return 0;
    }
    const rows = await catalogue(io.env, embeddedSizes);
    io.stdout.write(`${tableLines(rows, await installedModels(io.env)).join("\n")}\n`);
    return 0;
  },
});

function tableLines(rows: readonly CatalogueRow[], installed: readonly InstalledModel[]): string[] {
  const cells = [
    ["id", "target", "DSpark drafter", "DFlash drafter", "RAM", "on disk"],
    ...rows.map(({ row, ...here }) => [
      row.id,
      row.repo,
      drafterText(row.embedded ? "in this program" : row.dspark),
      drafterText(row.dflash),
      `~${row.ramGb} GB`,
      diskText(row, here),
    ]),
  ];
  const widths = [0, 1, 2, 3, 4].map((column) => Math.max(...cells.map((row) => (row[column] ?? "").length)));
  const table = cells.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join("  ")
      .trimEnd(),
  );
  const others = installed.filter(({ registryId, repo }) => registryId === null || !knownRepo(rows, repo));
  return [
    ...table,
    "",
    "Any quantization of a target has the same drafters: --model <owner/repo | folder | file.gguf>.",
    "Other targets draft by lookup; a drafter of your own is given with --drafter.",
    ...(others.length > 0 ? ["", "Also on this machine:"] : []),
    ...others.map(({ repo, kind, bytes, path }) => `  ${repo}  ${kind}  ${size(bytes)}  ${path}`),
  ];
}

function knownRepo(rows: readonly CatalogueRow[], repo: string): boolean {
  return rows.some(({ row }) => row.repo === repo);
}

function drafterText(name: string | null): string {
  if (name === null) return "—";
  if (!name.startsWith("gguf:")) return name;
  return `${name.slice(name.lastIndexOf("/") + 1)} (auto-converted)`;
}

function diskText(row: RegistryRow, { targetBytes, drafterBytes, ready }: Omit<CatalogueRow, "row">): string {
  if (targetBytes === null) return drafterBytes === null ? "no" : `drafter only (${size(drafterBytes)})`;
  const total = size(targetBytes + (drafterBytes ?? 0));
  if (row.embedded) return `${total}, in this program`;
  return ready ? total : `${total}, without the drafter`;
}

/** As `/admin/models` (admin-metrics.md §7), which adds what only a server knows: the loaded model and the bandwidth. */
export async function modelsBody(io: Pick<CliIo, "env">): Promise<Catalogue> {
  const rows = await catalogue(io.env, embeddedSizes);
  const installed = await installedModels(io.env);
  const disk = installed.filter(({ source }) => source === "cache").reduce((sum, { bytes }) => sum + bytes, 0);
  return {
    models: rows.map(rowJson),
    installed: installed.map(({ repo, path, bytes, kind, registryId, source }) => ({
      ...{ repo, path, size_bytes: bytes, size: size(bytes) },
      ...{ kind: kind === "target" ? "model" : kind, registry_id: registryId, source },
    })),
    disk: { total_bytes: disk, total: size(disk) },
    loaded: null,
    model_dirs: localRoots(io.env).map(({ dir }) => dir),
    bandwidth: null,
  };
}

function rowJson({ row, targetBytes, drafterBytes, ready }: CatalogueRow): Catalogue["models"][number] {
  const dspark = row.embedded ? `${row.id}-dspark` : row.dspark;
  return {
    id: row.id,
    target: row.repo,
    mode: dspark !== null ? "dspark" : row.dflash !== null ? "dflash" : "lookup",
    dspark_drafter: dspark,
    dflash_drafter: row.dflash,
    ram: `~${row.ramGb} GB`,
    ram_gb: row.ramGb,
    speedup: null,
    lookup_drafts: true,
    fits: row.ramGb * 1e9 <= RAM_SHARE * totalmem(),
    target_installed: targetBytes !== null,
    drafter_installed: drafterBytes !== null,
    ready,
    weight_bytes: targetBytes,
    drafter_bytes: drafterBytes,
    ceiling_tps: null,
  };
}
