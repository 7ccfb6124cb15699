/**
 * Binds the app to a socket before anything is loaded, and takes it down again: no new requests, running ones get
 * their time, then the engine's thread ends and the socket closes.
 */
import type { EngineClient } from "../engine/client.ts";
import type { AdminSetup } from "./admin/routes.ts";
import { createApp } from "./app.ts";
import { GenerationService } from "./generation/service.ts";
import type { TextSource } from "./generation/text.ts";
import type { ServerOptions } from "./options.ts";

/** The socket could not be bound; the message says why and what to do. */
export class ListenError extends Error {
  override readonly name = "ListenError";
}

export interface ServerParts {
  readonly engine: EngineClient;
  readonly text: () => TextSource | null;
  /** `loopbackBind` is set here, from the host. */
  readonly options: ServerOptions;
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly log?: (line: string) => void;
  /** What loads and unloads models; absent: the model is there for good. */
  readonly admin?: AdminSetup;
  /** Serve other machines without a key. */
  readonly insecure?: boolean;
}

export interface RunningServer {
  readonly port: number;
  /** `http://host:port`, with a name that a client on this machine can use. */
  readonly url: string;
  /** Refuses new requests, lets running ones end for at most `drainMs`, ends the engine, closes the socket. */
  stop(drainMs: number): Promise<void>;
}

/** Idle connections (no request running) end after this; running requests have no limit. */
const IDLE_SECONDS = 30;

/** How long a client may take to read the end of its answer at shutdown. */
const LAST_ANSWERS_MS = 1000;

/**
 * Throws `ListenError` when the port is taken, the address is not this machine's, or other machines could connect
 * without a key.
 */
export function startServer(parts: ServerParts): RunningServer {
  const { engine, host } = parts;
  if (!isLoopbackHost(host) && parts.options.apiKey === null && parts.insecure !== true) {
    throw new ListenError(`--host ${host} lets other machines connect: set --api-key, or --insecure to allow anyone`);
  }
  const options = { ...parts.options, loopbackBind: isLoopbackHost(host) };
  const { admin } = parts;
  const service = new GenerationService({ engine, text: parts.text, options, gate: admin?.slot.gate });
  // Whoever listens to a model's rounds connects anew for the next one.
  admin?.slot.onGone(() => service.telemetry.feed.end());
  const app = createApp({ ...parts, options, service });
  try {
    app.listen({
      hostname: host.replace(/^\[(.*)\]$/, "$1"),
      port: parts.port,
      // Elysia's default would let a second server share the port, and each would get half of the requests.
      reusePort: false,
      idleTimeout: IDLE_SECONDS,
      development: false,
      // The app's own limit answers with a JSON error; the socket layer's would be a bare 413.
      maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    });
  } catch (error) {
    throw listenError(error, host, parts.port);
  }
  const { server } = app;
  if (server === null || server.port === undefined) throw new ListenError(`could not listen on ${host}:${parts.port}`);
  return {
    port: server.port,
    url: `http://${urlHost(host)}:${server.port}`,
    stop: async (drainMs) => {
      service.close();
      service.telemetry.feed.end();
      await engine.shutdown(drainMs);
      await lastAnswers(server);
      await server.stop(true);
    },
  };
}

/** Rows have ended, but their last frames may still be on the way: a moment for those who read. */
async function lastAnswers(server: { readonly pendingRequests: number }): Promise<void> {
  const deadline = performance.now() + LAST_ANSWERS_MS;
  while (server.pendingRequests > 0 && performance.now() < deadline) await Bun.sleep(5);
}

export function isLoopbackHost(host: string): boolean {
  return host === "localhost" || host === "::1" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

function urlHost(host: string): string {
  if (host === "0.0.0.0" || host === "::" || host === "[::]") return "127.0.0.1";
  return host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
}

function listenError(error: unknown, host: string, port: number): ListenError {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "EADDRINUSE") {
    return new ListenError(`port ${port} on ${host} is in use; stop the other program or choose another --port`, {
      cause: error,
    });
  }
  if (code === "EACCES") {
    return new ListenError(`not allowed to listen on ${host}:${port}; ports below 1024 need rights`, { cause: error });
  }
  const reason = error instanceof Error ? error.message : String(error);
  return new ListenError(`could not listen on ${host}:${port}: ${reason}`, { cause: error });
}
