/**
 * `GET /events` (admin-metrics.md §4): the last rounds, the statistics, then what happens, until the client or the model
 * goes. Silence is filled with comments, longer silence with statistics.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import { commentFrame, eventFrame } from "../http/sse.ts";
import { type Feed, type FeedEvent, prefillSchema, requestSchema, type Subscription } from "./feed.ts";
import { type RoundLog, roundSchema, roundStatsSchema } from "./round-log.ts";

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

export const eventsQuery = t.Object({
  batch_ms: t.Optional(
    t.Integer({
      ...{ minimum: BATCH_MIN_MS, maximum: BATCH_MAX_MS },
      description: "Rounds come as one event in so many milliseconds.",
    }),
  ),
});

/** Data of the stream's events, by their names. */
const BY_NAME = {
  round: roundSchema,
  rounds: t.Object({ rounds: t.Array(roundSchema) }, { $id: "RoundsEvent" }),
  stats: roundStatsSchema,
  prefill: prefillSchema,
  request: requestSchema,
};

/** Each object of a stream. The name of its event is its key in `x-events`. */
export const eventSchema = t.Union(Object.values(BY_NAME), { "x-events": BY_NAME });

/** Writes until `subscription` ends. Never rejects. */
export async function writeEvents(
  subscription: Subscription,
  { rounds, batchMs }: EventsParts,
  write: (text: string) => void,
): Promise<void> {
  const past = rounds.last(REPLAYED);
  if (batchMs !== null) write(frame("rounds", { rounds: past }));
  else for (const round of past) write(frame("round", round));
  const writeStats = () => write(frame("stats", rounds.stats()));
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
  const rounds = events.flatMap((event) => (event.name === "round" ? [event.data] : []));
  const others = events.filter(({ name }) => name !== "round");
  return (rounds.length > 0 ? frame("rounds", { rounds }) : "") + textOf(others, false);
}

type ByName = { readonly [Name in keyof typeof BY_NAME]: Static<(typeof BY_NAME)[Name]> };

function frame<Name extends keyof ByName>(name: Name, data: ByName[Name]): string {
  return eventFrame(name, data).toSSE();
}
