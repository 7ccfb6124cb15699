/**
 * What a running server says of itself, for programs that are to use it: `/health` for its state, and one request with
 * the key, since `/health` asks for none.
 */
import type { LoadProgress } from "../../engine/protocol.ts";
import type { ServedModel } from "../../server/clients/client-server.ts";
import { reaching } from "./proxies.ts";

/** cli.md §5. */
const ANSWER_LIMIT_MS = 3000;

export type ServerState =
  /** Nothing listens there. */
  | { readonly kind: "none" }
  /** Something else, or nothing that may be used. */
  | { readonly kind: "unusable"; readonly reason: string }
  | { readonly kind: "wrong_key" }
  | { readonly kind: "loading"; readonly progress: LoadProgress }
  | { readonly kind: "no_model"; readonly error: string | null }
  | { readonly kind: "ready"; readonly served: ServedModel };

/** @param key sent when it is not null */
export async function serverState(url: string, key: string | null): Promise<ServerState> {
  // A proxy has no business between two programs of one machine; only the process's own environment says so to fetch.
  Object.assign(process.env, reaching(url, process.env));
  const health = await ask(`${url}/health`, key);
  if (typeof health === "string") return { kind: "unusable", reason: health };
  if (health === null) return { kind: "none" };
  if (health.status !== 200) return { kind: "unusable", reason: `it answers ${health.status} to GET /health` };
  const { body } = health;
  if (body.status === "no_model") return { kind: "no_model", error: text(body.error) };
  if (body.status === "loading") return { kind: "loading", progress: loadProgress(body) };
  const model = text(body.model);
  if (body.status !== "ok" || model === null) return { kind: "unusable", reason: "its /health is not mlx-dspark's" };
  const models = await ask(`${url}/v1/models`, key);
  if (models !== null && typeof models !== "string" && models.status === 401) return { kind: "wrong_key" };
  return {
    kind: "ready",
    served: {
      ...{ url, model, mode: text(body.mode) ?? "unknown", backend: text(body.backend) ?? "cpu" },
      contextWindow: number(body.context_window),
      maxOutputTokens: number(body.max_output_tokens),
    },
  };
}

interface Answer {
  readonly status: number;
  /** Empty when it was no JSON object. */
  readonly body: Readonly<Record<string, unknown>>;
}

/** null: nobody listens; a text: why there is no answer. */
async function ask(url: string, key: string | null): Promise<Answer | string | null> {
  try {
    const headers: Record<string, string> = key === null ? {} : { authorization: `Bearer ${key}` };
    const reply = await fetch(url, { headers, redirect: "manual", signal: AbortSignal.timeout(ANSWER_LIMIT_MS) });
    const body: unknown = await reply.json().catch(() => null);
    return { status: reply.status, body: record(body) };
  } catch (error) {
    if (error instanceof Error && error.name === "TimeoutError") {
      return `it did not answer within ${ANSWER_LIMIT_MS / 1000} s`;
    }
    // Bun's own name of it, and the system's: both are seen.
    const code = error instanceof Error && "code" in error ? error.code : null;
    if (code === "ConnectionRefused" || code === "ECONNREFUSED") return null;
    return error instanceof Error ? error.message : String(error);
  }
}

/** What `/health` tells of a load, as the engine itself would. */
function loadProgress(body: Readonly<Record<string, unknown>>): LoadProgress {
  const download = record(body.download);
  const progress = record(body.progress);
  const [done, total] = [number(download.bytes_done), number(download.bytes_total)];
  const phases = ["resolve", "download", "convert", "load", "warmup"] as const;
  return {
    phase: phases.find((phase) => phase === progress.phase) ?? "load",
    fraction: number(progress.fraction),
    bytesDone: done,
    bytesTotal: total,
    bytesPerSecond: number(download.bytes_per_s),
    detail: text(download.repo) ?? "",
  };
}

function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function text(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

function number(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
