/**
 * Runs a job's rows on the engine and gives the events of its choices. Leaving the generator early, or the signal,
 * cancels every row that still runs; a stop string cancels its own row. Rows of one job run at most `ticket.slots` at
 * a time.
 */
import { type EngineClient, EngineError } from "../../engine/client.ts";
import type { TokenLogprob } from "../../engine/protocol.ts";
import { ChoiceText, type ReleasedText, StopMatcher } from "../../text/index.ts";
import type { Ticket } from "./admission.ts";
import type { ChoiceEndReason, ChoiceEvent } from "./events.ts";
import type { GenerationJob, JobRow } from "./job.ts";
import { mergeBounded } from "./merge.ts";
import type { TextSource } from "./text.ts";

export interface RunContext {
  readonly engine: Pick<EngineClient, "generate">;
  readonly text: TextSource;
  readonly ticket: Ticket;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
}

/** Events of all choices; throws `EngineError` when a row fails. */
export async function* runJob(job: GenerationJob, context: RunContext): AsyncGenerator<ChoiceEvent> {
  const stop = new AbortController();
  const signal = AbortSignal.any([context.signal, stop.signal]);
  const sources = job.rows.map((row) => () => runRow(row, job, { ...context, signal }));
  try {
    yield* mergeBounded(sources, context.ticket.slots);
  } finally {
    stop.abort();
  }
}

async function* runRow(row: JobRow, job: GenerationJob, context: RunContext): AsyncGenerator<ChoiceEvent> {
  const { engine, text, ticket, signal } = context;
  const chain = new ChoiceText<TokenLogprob>(text.detokenizer(), new StopMatcher(job.stops), job.silentIds);
  const stopped = new AbortController();
  let started = false;
  let ended = false;
  try {
    for await (const event of engine.generate(row.request, AbortSignal.any([signal, stopped.signal]))) {
      if (!started) ticket.rowStarted();
      started = true;
      if (event.type === "tokens" && chain.stopString === null) {
        yield* textEvents(row, chain.push(event.ids, event.logprobs));
        // The engine answers a cancel with `done`, which carries the statistics: keep listening.
        if (chain.stopString !== null) stopped.abort();
      } else if (event.type === "done") {
        ended = true;
        yield* textEvents(row, chain.finish());
        const tokens = chain.rest();
        const reason: ChoiceEndReason = chain.stopString !== null ? "stop" : event.reason;
        const { stopString, completionTokens } = chain;
        for (const choice of row.choices) {
          const counts = { completionTokens, reasoningTokens: 0 };
          yield { type: "end", choice, reason, stopString, tokens, ...counts, stats: event.stats };
        }
      }
    }
    if (!ended) throw new EngineError({ kind: "internal", message: "the engine ended a request without its result" });
  } finally {
    if (started) ticket.rowEnded();
  }
}

function* textEvents(row: JobRow, released: ReleasedText<TokenLogprob>): Generator<ChoiceEvent> {
  if (released.text === "") return;
  for (const choice of row.choices) yield { type: "text", choice, text: released.text, tokens: released.tokens };
}
