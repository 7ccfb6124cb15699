/**
 * The server that a client program talks to: the one at `--url`, the one that runs at the usual place, or one of our own
 * in this process, with a port that nobody else has, which ends with the client (cli.md §5).
 */
import type { ModelInfo } from "../../engine/protocol.ts";
import type { ClientServer, ServedModel } from "../../server/clients/client-server.ts";
import { parseLine } from "../command-line.ts";
import { INTERRUPTED, unlessInterrupted } from "../engine-session.ts";
import { usageError } from "../errors.ts";
import { type FlagValues, textFlag } from "../flags.ts";
import { type CliIo, STOP_SIGNALS, say } from "../io.ts";
import { chosenModel, modelFlags } from "../model-flags.ts";
import { ProgressLine } from "../progress.ts";
import { serveFlags } from "../serve-flags.ts";
import { startServing } from "../serving.ts";
import { serverState } from "./served-model.ts";

export const USUAL_URL = "http://127.0.0.1:8080";
const POLL_MS = 300;

const { "context-window": contextWindow, "max-batch": maxBatch, "default-max-tokens": defaultMaxTokens } = serveFlags;

/** For a server that is started here; with any of them none that runs is looked for. */
const ownServerFlags = {
  ...modelFlags,
  "context-window": contextWindow,
  "max-batch": maxBatch,
  "default-max-tokens": defaultMaxTokens,
};

export const serverFlags = {
  url: textFlag({ help: "server to use", hint: "U", defaultText: `${USUAL_URL}, else one is started` }),
  "api-key": textFlag({ help: "its key (better: env MLX_DSPARK_API_KEY)", hint: "K" }),
  ...ownServerFlags,
};

export type ServerFlags = FlagValues<typeof serverFlags>;

/** Runs `work` with the server; resolves to its exit code, after the end of a server that was started for it. */
export async function withServer(
  flags: ServerFlags,
  io: CliIo,
  work: (server: ClientServer) => Promise<number>,
): Promise<number> {
  const running = await runningServer(flags, io);
  return running === null ? withOwnServer(flags, io, work) : work(running);
}

/** A server that runs, for what is of no use without one. Throws a usage error when there is none. */
export async function requireServer(flags: ServerFlags, io: CliIo): Promise<ClientServer> {
  const running = await runningServer(flags, io);
  if (running !== null) return running;
  throw usageError(`no mlx-dspark server at ${USUAL_URL}. Start one: mlx-dspark serve --model <id>`);
}

/** null: one has to be started. Throws a usage error that says what is wrong with the one at `--url`. */
async function runningServer(flags: ServerFlags, io: CliIo): Promise<ClientServer | null> {
  const asked = givenOwnFlags(flags);
  if (flags.url !== null && asked.length > 0) {
    throw usageError(`--${asked[0]} is for a server that is started here; --url ${flags.url} is one that runs`);
  }
  if (asked.length > 0) return null;
  const url = serverUrl(flags.url ?? USUAL_URL);
  const key = keyOf(flags, io);
  const progress = new ProgressLine(io.stderr);
  try {
    for (;;) {
      const state = await serverState(url, key);
      if (state.kind === "ready") return { served: state.served, key };
      if (state.kind === "loading") {
        progress.update(state.progress);
        await Bun.sleep(POLL_MS);
        continue;
      }
      // Another program may well have the usual port.
      if (flags.url === null && (state.kind === "none" || state.kind === "unusable")) return null;
      throw usageError(objection(url, state));
    }
  } finally {
    progress.clear();
  }
}

function objection(
  url: string,
  state: Exclude<Awaited<ReturnType<typeof serverState>>, { kind: "ready" | "loading" }>,
) {
  switch (state.kind) {
    case "none":
      return `no mlx-dspark server at ${url}. Start one: mlx-dspark serve --model <id>`;
    case "unusable":
      return `the server at ${url} cannot be used: ${state.reason}`;
    case "wrong_key":
      return `the server at ${url} wants its key: --api-key K, or MLX_DSPARK_API_KEY in the environment`;
    case "no_model": {
      const why = state.error === null ? "" : `; its last load failed: ${state.error}`;
      return `the server at ${url} has no model${why}. Load one: mlx-dspark serve --model <id>`;
    }
  }
}

async function withOwnServer(
  flags: ServerFlags,
  io: CliIo,
  work: (server: ClientServer) => Promise<number>,
): Promise<number> {
  const interrupt = new AbortController();
  const unlisten = io.onSignal(STOP_SIGNALS, () => interrupt.abort());
  const key = keyOf(flags, io);
  const defaults = parseLine([], serveFlags).flags;
  let silent = false;
  // A client that draws its own screen must not find other lines on it.
  const log = (line: string) => {
    if (!silent) say(io, line);
  };
  const serving = await startServing({ ...defaults, ...flags, port: 0, "api-key": key }, io, log);
  try {
    const model = await unlessInterrupted(serving.load(chosenModel(flags, io)), interrupt.signal);
    if (model === null) return INTERRUPTED;
    unlisten();
    silent = io.interactive;
    return await work({ served: ownModel(model, serving.server.url, serving.options.maxTokensCap), key });
  } finally {
    unlisten();
    await serving.server.stop(0);
  }
}

function ownModel(model: ModelInfo, url: string, cap: number): ServedModel {
  return {
    ...{ url, model: model.id, mode: model.mode, backend: model.backend.startsWith("metal") ? "metal" : "cpu" },
    contextWindow: model.contextWindow,
    maxOutputTokens: Math.min(cap, model.contextWindow),
  };
}

function givenOwnFlags(flags: ServerFlags): string[] {
  return Object.entries(ownServerFlags)
    .filter(([name, flag]) => Object.entries(flags).some(([given, value]) => given === name && value !== flag.initial))
    .map(([name]) => name);
}

function keyOf(flags: ServerFlags, io: CliIo): string | null {
  const key = flags["api-key"] ?? io.env.MLX_DSPARK_API_KEY ?? "";
  return key === "" ? null : key;
}

/** Also of what people paste: with `/v1`, with a slash at its end. */
function serverUrl(text: string): string {
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol)) {
    throw usageError(`--url must be an http address, got '${text}'`);
  }
  return text.replace(/\/+$/, "").replace(/\/v1$/, "");
}
