/**
 * `mlx-dspark serve`: binds the port, then loads the model while `/health` already answers, and runs until it is told
 * to stop (cli.md §4). A first Ctrl-C or SIGTERM lets running requests end, a second one ends the process.
 */
import type { RunningServer } from "../server/listen.ts";
import { defineCliCommand } from "./command.ts";
import { SHUTDOWN_GRACE_MS } from "./end-engine.ts";
import { type CliIo, STOP_SIGNALS, say } from "./io.ts";
import { chosenModel } from "./model-flags.ts";
import { openPage } from "./open-page.ts";
import { listeningLines, readyLines } from "./serve-banner.ts";
import { type ServeFlags, serveFlags } from "./serve-flags.ts";
import { startServing } from "./serving.ts";

const INTERRUPTED = 130;

export const serveCommand = defineCliCommand({
  name: "serve",
  description: "Serve the APIs of OpenAI and Anthropic",
  flags: serveFlags,
  run: runServe,
});

async function runServe(flags: ServeFlags, io: CliIo): Promise<number> {
  const serving = await startServing(flags, io, (line) => say(io, line));
  const { server, options } = serving;
  const model = flags["no-model"] ? null : chosenModel(flags, io);
  for (const line of listeningLines(server, options, model)) say(io, line);

  const stopped = stopRequested(io, server, flags["drain-seconds"] * 1000);
  if (model === null) {
    if (flags.open) openPage(server.url, io);
    return stopped;
  }
  const loaded = serving.load(model).then((ready) => {
    for (const line of readyLines(ready, server, options)) say(io, line);
    if (flags.open) openPage(server.url, io);
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
    const unlisten = io.onSignal(STOP_SIGNALS, () => {
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
