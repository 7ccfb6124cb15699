/**
 * `mlx-dspark serve`: binds the port, then loads the model while `/health` already answers, and runs until it is told
 * to stop (cli.md §4). A first Ctrl-C or SIGTERM lets running requests end, a second one ends the process.
 */

import type { TextSource } from "../server/generation/text.ts";
import { isLoopbackHost, ListenError, type RunningServer, startServer } from "../server/listen.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "../server/options.ts";
import { defineCliCommand } from "./command.ts";
import { endEngine, SHUTDOWN_GRACE_MS } from "./end-engine.ts";
import { CliError, usageError } from "./errors.ts";
import { type FlagValues, listFlag, numberFlag, switchFlag, textFlag } from "./flags.ts";
import { type CliIo, say } from "./io.ts";
import { loadModel } from "./load-model.ts";
import { chosenModel, kvBits, loadSpec, modelFlags } from "./model-flags.ts";
import { listeningLines, readyLines } from "./serve-banner.ts";

const INTERRUPTED = 130;

const D = DEFAULT_SERVER_OPTIONS;

export const serveFlags = {
  host: textFlag({ help: "address to listen on", hint: "H", defaultText: "127.0.0.1" }),
  port: numberFlag(8080, { min: 0, max: 65535, integer: true }, { help: "port; 0 = any free one" }),
  "api-key": textFlag({ help: "key that clients must send (better: env MLX_DSPARK_API_KEY)", hint: "K" }),
  insecure: switchFlag("allow other machines to connect without a key"),
  "no-model": switchFlag("start without a model"),
  "context-window": numberFlag(
    null,
    { min: 1, integer: true },
    { help: "most tokens of prompt and answer", defaultText: "the model's own" },
  ),
  "max-batch": numberFlag(D.maxBatch, { min: 1, integer: true }, { help: "requests computed at the same time" }),
  "max-queue": numberFlag(D.maxQueue, { min: 0, integer: true }, { help: "requests that may wait; more get a 429" }),
  "default-max-tokens": numberFlag(
    D.defaultMaxTokens,
    { min: 1, integer: true },
    { help: "answer length when a request names none" },
  ),
  "max-tokens-cap": numberFlag(
    D.maxTokensCap,
    { min: 1, integer: true },
    { help: "most tokens that a request may ask for" },
  ),
  "default-temperature": numberFlag(
    null,
    { min: 0, max: 2 },
    { help: "when a request names none", defaultText: "the model's" },
  ),
  "default-top-p": numberFlag(
    null,
    { min: 0, above: true, max: 1 },
    { help: "when a request names none", defaultText: "the model's" },
  ),
  "default-top-k": numberFlag(
    null,
    { min: 0, integer: true },
    { help: "when a request names none", defaultText: "the model's" },
  ),
  "drain-seconds": numberFlag(10, { min: 0 }, { help: "time for running requests at shutdown" }),
  "max-body-mb": numberFlag(64, { min: 0, above: true }, { help: "largest request body" }),
  "cors-origin": listFlag({ help: "further web origin that may read answers, * = all (repeatable)", hint: "O" }),
  "allow-host": listFlag({ help: "further Host name to answer under (repeatable)", hint: "H" }),
  ...modelFlags,
};

type ServeFlags = FlagValues<typeof serveFlags>;

export const serveCommand = defineCliCommand({
  name: "serve",
  description: "Serve an OpenAI-compatible API",
  flags: serveFlags,
  run: runServe,
});

async function runServe(flags: ServeFlags, io: CliIo): Promise<number> {
  const host = flags.host ?? "127.0.0.1";
  const options = serverOptions(flags, io);
  if (!isLoopbackHost(host) && options.apiKey === null && !flags.insecure) {
    throw usageError(`--host ${host} lets other machines connect: set --api-key, or --insecure to allow anyone`);
  }
  const model = flags["no-model"] ? null : chosenModel(flags, io);
  const engine = io.spawnEngine();
  let text: TextSource | null = null;
  let server: RunningServer;
  try {
    const log = (line: string) => say(io, line);
    server = startServer({ engine, text: () => text, options, host, port: flags.port, log });
  } catch (error) {
    await endEngine(engine);
    if (error instanceof ListenError) throw new CliError(error.message, 1, { cause: error });
    throw error;
  }
  for (const line of listeningLines(server, options, model)) say(io, line);

  const stopped = stopRequested(io, server, flags["drain-seconds"] * 1000);
  if (model === null) return stopped;
  const { maxBatch, maxQueue } = options;
  const spec = loadSpec(model, flags, io, { contextWindow: flags["context-window"], maxBatch, maxQueue });
  const loaded = loadModel(engine, spec, io).then((ready) => {
    text = ready.text;
    for (const line of readyLines(ready.model, server, options)) say(io, line);
  });
  // A load that fails ends the server: nothing could be answered. One that a shutdown ends is of no interest.
  return Promise.race([stopped, loaded.then(() => stopped)]).catch(async (error: unknown) => {
    await server.stop(0);
    throw error;
  });
}

/** Resolves with the exit code after a signal and an orderly shutdown. */
function stopRequested(io: CliIo, server: RunningServer, drainMs: number): Promise<number> {
  return new Promise((resolve) => {
    let stopping = false;
    const unlisten = io.onSignal(() => {
      if (stopping) return io.exitNow(INTERRUPTED);
      stopping = true;
      say(io, "shutting down.");
      const patience = Bun.sleep(drainMs + SHUTDOWN_GRACE_MS);
      void Promise.race([server.stop(drainMs), patience]).then(() => {
        unlisten();
        resolve(0);
      });
    });
  });
}

function serverOptions(flags: ServeFlags, io: CliIo): ServerOptions {
  const apiKey = flags["api-key"] ?? io.env.MLX_DSPARK_API_KEY ?? null;
  if (flags["api-key"] === "") throw usageError("--api-key must not be empty");
  const temperature = flags["default-temperature"];
  const topP = flags["default-top-p"];
  const topK = flags["default-top-k"];
  return {
    version: io.version,
    apiKey: apiKey === "" ? null : apiKey,
    corsOrigins: flags["cors-origin"],
    allowHosts: flags["allow-host"],
    loopbackBind: true,
    maxBodyBytes: Math.floor(flags["max-body-mb"] * 2 ** 20),
    defaultMaxTokens: flags["default-max-tokens"],
    maxTokensCap: flags["max-tokens-cap"],
    samplingDefaults: {
      ...(temperature !== null && { temperature }),
      ...(topP !== null && { topP }),
      ...(topK !== null && { topK }),
    },
    maxBatch: flags["max-batch"],
    maxQueue: flags["max-queue"],
    kvBits: kvBits(flags),
    keepAliveMs: keepAliveMs(io),
  };
}

function keepAliveMs(io: CliIo): number {
  const text = io.env.MLX_DSPARK_STREAM_KEEPALIVE_S;
  if (text === undefined || text === "") return D.keepAliveMs;
  const seconds = Number(text);
  if (!Number.isFinite(seconds) || seconds < 0) {
    throw usageError(`MLX_DSPARK_STREAM_KEEPALIVE_S must be seconds (0 = off), got '${text}'`);
  }
  return seconds * 1000;
}
