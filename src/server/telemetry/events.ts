/**
 * `GET /events` (admin-metrics.md §4): the last rounds, the statistics, then what happens, until the client or the model
 * goes. Silence is filled with comments, longer silence with statistics.
 */

import { invalidRequest } from "../errors.ts";
import { commentFrame, eventFrame } from "../http/sse.ts";
import type { Feed, FeedEvent, Subscription } from "./feed.ts";
import type { RoundLog } from "./round-log.ts";

const REPLAYED = 32;
const COMMENT_MS = 1000;
const STATS_MS = 15_000;
const BATCH_MIN_MS = 20;
const BATCH_MAX_MS = 1000;

export interface EventsParts {
  readonly feed: Feed;
  readonly rounds: RoundLog;
  /** Null: rounds come one by one. */
  readonly batchMs: number | null;
}

/** The query's `batch_ms`; throws 400. */
export function batchMsOf(url: string): number | null {
  const text = new URL(url).searchParams.get("batch_ms");
  if (text === null) return null;
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < BATCH_MIN_MS || value > BATCH_MAX_MS) {
    throw invalidRequest("batch_ms", `'batch_ms' must be an integer from ${BATCH_MIN_MS} to ${BATCH_MAX_MS}`);
  }
  return value;
}

/** Writes until `subscription` ends. Never rejects. */
export async function writeEvents(
  subscription: Subscription,
  { rounds, batchMs }: EventsParts,
  write: (text: string) => void,
): Promise<void> {
  const past = rounds.last(REPLAYED);
  if (batchMs !== null) write(eventFrame("rounds", { rounds: past }).toSSE());
  else for (const round of past) write(eventFrame("round", round).toSSE());
  const writeStats = () => write(eventFrame("stats", rounds.stats()).toSSE());
  writeStats();
  let silentMs = 0;
  for (;;) {
    const events = await subscription.take(batchMs ?? COMMENT_MS);
    if (events === null) return;
    if (events.length > 0) {
      silentMs = 0;
      write(textOf(events, batchMs !== null));
      // Collected for so long again; without this every event would be a batch of its own.
      if (batchMs !== null) await Bun.sleep(batchMs);
      continue;
    }
    const before = silentMs;
    silentMs += batchMs ?? COMMENT_MS;
    if (silentMs >= STATS_MS) {
      writeStats();
      silentMs = 0;
    } else if (Math.floor(silentMs / COMMENT_MS) > Math.floor(before / COMMENT_MS)) {
      write(commentFrame("keepalive").toSSE());
    }
  }
}

function textOf(events: readonly FeedEvent[], batched: boolean): string {
  if (!batched) return events.map(({ name, data }) => eventFrame(name, data).toSSE()).join("");
  const rounds = events.filter(({ name }) => name === "round").map(({ data }) => data);
  const others = events.filter(({ name }) => name !== "round");
  return (rounds.length > 0 ? eventFrame("rounds", { rounds }).toSSE() : "") + textOf(others, false);
}
