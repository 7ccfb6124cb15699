/**
 * Runs a job's rows on the engine and gives the events of its choices. Leaving the generator early, or the signal,
 * cancels every row that still runs; a stop string, or the first call where only one is wanted, cancels its own row.
 * Rows of one job run at most `ticket.slots` at a time.
 */
import { type EngineClient, EngineError } from "../../engine/client.ts";
import type { FinishReason, TokenEvent, TokenLogprob } from "../../engine/protocol.ts";
import { type ReplyPiece, ReplyText, StopMatcher } from "../../text/index.ts";
import type { Ticket } from "./admission.ts";
import type { ChoiceEndReason, ChoiceEvent, TokenSource } from "./events.ts";
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
export function runJob(job: GenerationJob, context: RunContext): AsyncGenerator<ChoiceEvent> {
  const [only] = job.rows;
  // The common case goes without what several rows need between them: every layer costs each token.
  return job.rows.length === 1 && only !== undefined ? runRow(only, job, context) : runRows(job, context);
}

async function* runRows(job: GenerationJob, context: RunContext): AsyncGenerator<ChoiceEvent> {
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
  const reply = new ReplyText<TokenLogprob>({
    detokenizer: text.detokenizer(),
    stops: new StopMatcher(job.stops),
    silentIds: job.silentIds,
    form: job.reply,
    oneCall: job.oneCall,
  });
  const events = new RowEvents(row);
  const stopped = new AbortController();
  let started = false;
  let ended = false;
  try {
    for await (const event of engine.generate(row.request, AbortSignal.any([signal, stopped.signal]))) {
      if (!started) ticket.rowStarted();
      started = true;
      if (event.type === "tokens" && !reply.isOver) {
        const pieces = reply.push(event.ids, event.logprobs, job.tellSources ? sourcesOf(event) : null);
        for (const made of events.of(pieces)) yield made;
        // The engine answers a cancel with `done`, which carries the statistics: keep listening.
        if (reply.isOver) stopped.abort();
      } else if (event.type === "done") {
        ended = true;
        for (const made of events.of(reply.finish(event.reason === "stop" ? "ended" : "cut"))) yield made;
        const tokens = reply.rest();
        const reason = endReason(reply, event.reason);
        const { stopString, completionTokens, reasoningTokens } = reply;
        for (const choice of row.choices) {
          const counts = { completionTokens, reasoningTokens };
          yield { type: "end", choice, reason, stopString, tokens, ...counts, stats: event.stats };
        }
      }
    }
    if (!ended) throw new EngineError({ kind: "internal", message: "the engine ended a request without its result" });
  } finally {
    if (started) ticket.rowEnded();
  }
}

/** Of each id who proposed it: of a round, the accepted drafts come first, then the target's own token. */
function sourcesOf({ ids, round }: Pick<TokenEvent, "ids" | "round">): TokenSource[] {
  return ids.map((_, i) =>
    round !== null && round.source !== "plain" && i < round.accepted ? round.source : "target",
  );
}

function endReason(reply: ReplyText<TokenLogprob>, reason: FinishReason): ChoiceEndReason {
  // A row that this side cancelled has ended by what it wrote.
  if (reason === "cancelled" && !reply.isOver) return "cancelled";
  if (reply.calls > 0 && !reply.endedInCall) return "tool_calls";
  return reply.isOver ? "stop" : reason;
}

/** Pieces of a row as events of each of its choices, calls numbered. */
class RowEvents {
  private calls = 0;

  constructor(private readonly row: JobRow) {}

  of(pieces: readonly ReplyPiece<TokenLogprob>[]): ChoiceEvent[] {
    const events: ChoiceEvent[] = [];
    for (const piece of pieces) {
      const index = this.calls;
      if (piece.type === "call") this.calls += 1;
      for (const choice of this.row.choices) {
        if (piece.type !== "call") events.push({ ...piece, choice });
        else events.push({ type: "call", choice, call: { index, ...piece.call }, tokens: piece.tokens });
      }
    }
    return events;
  }
}
