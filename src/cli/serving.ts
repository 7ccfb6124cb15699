/**
 * A server with a model on its way: the port is bound before anything is loaded, so that `/health` answers from the
 * first second and a busy port costs nothing (cli.md §4). Shared by `serve` and by commands that start a server of
 * their own.
 */
import type { ModelInfo } from "../engine/protocol.ts";
import type { TextSource } from "../server/generation/text.ts";
import { isLoopbackHost, ListenError, type RunningServer, startServer } from "../server/listen.ts";
import type { ServerOptions } from "../server/options.ts";
import { endEngine } from "./end-engine.ts";
import { CliError, usageError } from "./errors.ts";
import type { CliIo } from "./io.ts";
import { loadModel } from "./load-model.ts";
import { loadSpec } from "./model-flags.ts";
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
  let text: TextSource | null = null;
  try {
    const server = startServer({ engine, text: () => text, options, host, port: flags.port, log });
    const { maxBatch, maxQueue } = options;
    const load = async (model: string) => {
      const spec = loadSpec(model, flags, io, { contextWindow: flags["context-window"], maxBatch, maxQueue });
      const ready = await loadModel(engine, spec, io);
      text = ready.text;
      return ready.model;
    };
    return { server, options, load };
  } catch (error) {
    await endEngine(engine);
    if (error instanceof ListenError) throw new CliError(error.message, 1, { cause: error });
    throw error;
  }
}
