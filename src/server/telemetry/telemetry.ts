/**
 * What the server remembers of its work: totals since the start, by model and mode, the log of rounds, and the feed. Fed by
 * the generation service; warm-ups, which do not pass through it, never count.
 */
import { type Api, Feed } from "./feed.ts";
import { RoundLog } from "./round-log.ts";
import { CounterFamily, HistogramFamily } from "./series.ts";

/** Prefix of every name. */
export const PREFIX = "mlx_dspark_";

/** Seconds, admin-metrics.md §2. */
const LONG_BOUNDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];
/** Seconds between tokens: from a small model on a large machine to a large one on a small machine. */
const SHORT_BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

const counter = (name: string, help: string) => new CounterFamily(`${PREFIX}${name}`, help);
const histogram = (name: string, help: string, bounds: readonly number[]) =>
  new HistogramFamily(`${PREFIX}${name}`, help, bounds);

export class Telemetry {
  readonly feed = new Feed();
  readonly rounds = new RoundLog();
  readonly counters = {
    requests: counter("requests_total", "Finished requests"),
    promptTokens: counter("prompt_tokens_total", "Prompt tokens of finished requests"),
    cachedTokens: counter("cached_prompt_tokens_total", "Prompt tokens that came from the prefix cache"),
    completionTokens: counter("completion_tokens_total", "Tokens generated"),
    reasoningTokens: counter("reasoning_tokens_total", "Tokens generated that were thoughts"),
    prefillSeconds: counter("prefill_seconds_total", "Seconds in which prompts were read"),
    decodeSeconds: counter("decode_seconds_total", "Seconds in which tokens were generated"),
    rounds: counter("rounds_total", "Decode rounds by what drafted them"),
    draftTokens: counter("draft_tokens_total", "Tokens drafted"),
    acceptedTokens: counter("accepted_tokens_total", "Drafted tokens that the model accepted"),
    http: counter("http_requests_total", "HTTP requests answered"),
  };
  readonly histograms = {
    ttft: histogram("ttft_seconds", "From the start of a request to its first token", LONG_BOUNDS),
    queue: histogram("queue_seconds", "Waiting before the start of a request", LONG_BOUNDS),
    request: histogram("request_seconds", "From a request to the end of its answer", LONG_BOUNDS),
    interToken: histogram("inter_token_seconds", "Between committed tokens of a row", SHORT_BOUNDS),
  };
  /** Rows that run, and the most that ever did at once. */
  readonly rows = { running: 0, peak: 0 };
  /** Requests that shared the engine with another one, those that were alone all the time, and how often sharing began. */
  readonly sharing = { batched: 0, serial: 0, batches: 0 };
  /** Facts of the newest finished row. */
  last: {
    readonly contextTokens: number;
    readonly decodeTps: number | null;
    readonly acceptLen: number | null;
  } | null = null;
  /** Draft cap in force, and what its controller takes the chance of a draft to be. */
  cap: { readonly cap: number | null; readonly acceptance: number | null } = { cap: null, acceptance: null };
}

/** By the last parts of a generation route's path. */
export function apiOf(path: string): Api {
  if (path.includes("/chat/completions")) return "chat";
  if (path.includes("/messages")) return "messages";
  return path.includes("/responses") ? "responses" : "completions";
}
