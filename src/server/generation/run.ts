/**
 * Runs a job's rows on the engine and gives the events of its choices. Leaving the generator early, or the signal,
 * cancels every row that still runs; a stop string, or the first call where only one is wanted, cancels its own row.
 * Rows of one job run at most `ticket.slots` at a time.
 */
import { type EngineClient, EngineError, type EventSource, type GenerateEvent } from "../../engine/client.ts";
import type { FinishReason, RequestStats, TokenEvent, TokenLogprob } from "../../engine/protocol.ts";
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

/** Events of all choices, one by one; throws `EngineError` when a row fails. */
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

/**
 * The same events, each handed over at the moment when the engine tells it. Resolves after the last one; rejects with
 * `EngineError` when a row fails, and with what `sink` throws.
 */
export async function driveJob(
  job: GenerationJob,
  context: RunContext,
  sink: (event: ChoiceEvent) => void,
): Promise<void> {
  const stop = new AbortController();
  const rows = { ...context, signal: AbortSignal.any([context.signal, stop.signal]) };
  const waiting = [...job.rows];
  const lane = async () => {
    for (let row = waiting.shift(); row !== undefined; row = waiting.shift()) await driveRow(row, job, rows, sink);
  };
  try {
    await Promise.all(Array.from({ length: Math.min(context.ticket.slots, job.rows.length) }, lane));
  } finally {
    waiting.length = 0;
    stop.abort();
  }
}

async function* runRow(row: JobRow, job: GenerationJob, context: RunContext): AsyncGenerator<ChoiceEvent> {
  using run = new RowRun(row, job, context);
  for await (const event of run.source()) for (const made of run.push(event)) yield made;
  run.checkEnd();
}

async function driveRow(row: JobRow, job: GenerationJob, context: RunContext, sink: (event: ChoiceEvent) => void) {
  using run = new RowRun(row, job, context);
  await eachEvent(run.source(), (event) => {
    for (const made of run.push(event)) sink(made);
  });
  run.checkEnd();
}

/** One row from the engine's events to those of its choices. To be disposed when the row is over. */
class RowRun implements Disposable {
  private readonly reply: ReplyText<TokenLogprob>;
  private readonly events: RowEvents;
  private readonly stopped = new AbortController();
  private started = false;
  private ended = false;

  constructor(
    private readonly row: JobRow,
    private readonly job: GenerationJob,
    private readonly context: RunContext,
  ) {
    this.events = new RowEvents(row);
    this.reply = new ReplyText<TokenLogprob>({
      detokenizer: context.text.detokenizer(),
      stops: new StopMatcher(job.stops),
      silentIds: job.silentIds,
      form: job.reply,
      oneCall: job.oneCall,
    });
  }

  source(): EventSource<GenerateEvent> {
    const { engine, signal } = this.context;
    return engine.generate(this.row.request, AbortSignal.any([signal, this.stopped.signal]));
  }

  push(event: GenerateEvent): readonly ChoiceEvent[] {
    if (!this.started) this.context.ticket.rowStarted();
    this.started = true;
    if (event.type === "done") return this.done(event.reason, event.stats);
    if (event.type === "prefill" || this.reply.isOver) return [];
    const { ids, logprobs } = event;
    const made = this.events.of(this.reply.push(ids, logprobs, this.job.tellSources ? sourcesOf(event) : null));
    // The engine answers a cancel with `done`, which carries the statistics: it is listened to until then.
    if (this.reply.isOver) this.stopped.abort();
    return made;
  }

  private done(how: FinishReason, stats: RequestStats): ChoiceEvent[] {
    const { reply } = this;
    this.ended = true;
    const last = this.events.of(reply.finish(how === "stop" ? "ended" : "cut"));
    const tokens = reply.rest();
    const reason = endReason(reply, how);
    const { stopString, completionTokens, reasoningTokens } = reply;
    const counts = { completionTokens, reasoningTokens };
    for (const choice of this.row.choices) {
      last.push({ type: "end", choice, reason, stopString, tokens, ...counts, stats });
    }
    return last;
  }

  /** Throws when the engine's events were over before the row was. */
  checkEnd(): void {
    if (this.ended) return;
    throw new EngineError({ kind: "internal", message: "the engine ended a request without its result" });
  }

  [Symbol.dispose](): void {
    if (this.started) this.context.ticket.rowEnded();
  }
}

/** Events as they come, from an engine that hands them over or from one that is asked. */
async function eachEvent<T>(source: EventSource<T>, sink: (event: T) => void): Promise<void> {
  if (source.each !== undefined) await source.each(sink);
  else for await (const event of source) sink(event);
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
        if (piece.type === "call") {
          events.push({ type: "call", choice, call: { index, ...piece.call }, tokens: piece.tokens });
        } else if (piece.spans !== undefined) events.push({ ...piece, choice });
        // Field by field: each token of every stream is here, and copying whatever there is costs more than the rest.
        else events.push({ type: piece.type, choice, text: piece.text, tokens: piece.tokens });
      }
    }
    return events;
  }
}
