/**
 * A server with a model on its way: the port is bound before anything is loaded, so that `/health` answers from the
 * first second and a busy port costs nothing (cli.md §4). Shared by `serve` and by commands that start a server of
 * their own.
 */
import type { LoadSpec, ModelInfo } from "../engine/protocol.ts";
import { ModelSlot } from "../server/admin/model-slot.ts";
import type { AdminSetup } from "../server/admin/routes.ts";
import { isLoopbackHost, ListenError, type RunningServer, startServer } from "../server/listen.ts";
import type { ServerOptions } from "../server/options.ts";
import { endEngine } from "./end-engine.ts";
import { CliError, usageError } from "./errors.ts";
import { type CliIo, say } from "./io.ts";
import { machineReport } from "./machine-report.ts";
import { loadSpec } from "./model-flags.ts";
import { modelsBody } from "./models.ts";
import { ProgressLine } from "./progress.ts";
import { type ServeFlags, serverOptions } from "./serve-flags.ts";

export interface Serving {
  readonly server: RunningServer;
  readonly options: ServerOptions;
  /** Loads `model`, with progress on stderr. Rejects with `CliError`; the server then still runs. */
  load(model: string): Promise<ModelInfo>;
}

/** Binds. Rejects with `CliError`: 2 for flags that do not go together, 1 for a port that cannot be had. */
export async function startServing(flags: ServeFlags, io: CliIo, log: (line: string) => void): Promise<Serving> {
  const host = flags.host ?? "127.0.0.1";
  const options = serverOptions(flags, io);
  if (!isLoopbackHost(host) && options.apiKey === null && !flags.insecure) {
    throw usageError(`--host ${host} lets other machines connect: set --api-key, or --insecure to allow anyone`);
  }
  const engine = io.spawnEngine();
  const slot = new ModelSlot({ engine, loadText: (dir) => io.loadText(dir), log });
  const { maxBatch, maxQueue } = options;
  const specOf = (model: string) =>
    loadSpec(model, flags, io, { contextWindow: flags["context-window"], maxBatch, maxQueue });
  const warmup = flags.warmup ?? true;
  const admin: AdminSetup = {
    slot,
    defaults: { spec: specOf(""), warmup },
    catalogue: () => modelsBody(io),
    doctor: () => machineReport(io),
  };
  try {
    const { port, insecure } = flags;
    const server = startServer({ engine, text: () => slot.text, options, host, port, log, admin, insecure });
    return { server, options, load: (model) => loadInto(slot, specOf(model), warmup, io) };
  } catch (error) {
    await endEngine(engine);
    if (error instanceof ListenError) throw new CliError(error.message, 1, { cause: error });
    throw error;
  }
}

/** The model into the server's slot. Rejects with `CliError` (exit 1) that says what could not be loaded and why. */
async function loadInto(slot: ModelSlot, spec: LoadSpec, warmup: boolean, io: CliIo): Promise<ModelInfo> {
  const progress = new ProgressLine(io.stderr);
  try {
    const model = await slot.load({ spec, force: false, warmup }, (step) => progress.update(step));
    progress.clear();
    for (const note of [...model.notes, ...(slot.text?.warnings ?? [])]) say(io, `note: ${note}`);
    return model;
  } catch (error) {
    progress.clear();
    const reason = error instanceof Error ? error.message : String(error);
    throw new CliError(`could not load ${spec.model}: ${reason}`, 1, { cause: error });
  }
}
