/**
 * One running generation: its events, its text and its result, from one run of the engine that starts at the call. An
 * error that nobody awaits stays with the generation until it is asked for.
 */
import type { EngineClient } from "../engine/client.ts";
import { replayRun } from "../engine/lossless.ts";
import type { FinishReason, GenerateRequest, RequestStats, TokenLogprob } from "../engine/protocol.ts";
import { ChoiceText, StopMatcher, type TextModel, type TextToken } from "../text/index.ts";
import { cancellation, fromEngine } from "./errors.ts";
import { EventBuffer } from "./event-buffer.ts";
import type { GenerationEvent, GenerationResult, GenerationStats, LogprobEntry } from "./events.ts";

/** What is to be run, once the prompt is known as ids. */
export interface PreparedRequest {
  readonly request: GenerateRequest;
  readonly stops: readonly string[];
  /** Ids without text: they end a turn. */
  readonly silentIds: ReadonlySet<number>;
  readonly verifyLossless: boolean;
  /** The backend's bits depend on how many rows a forward has. */
  readonly inexactCaches: boolean;
}

export interface GenerationParts {
  readonly id: string;
  readonly engine: EngineClient;
  readonly text: TextModel;
  readonly prepare: (signal: AbortSignal | undefined) => Promise<PreparedRequest>;
  readonly signal: AbortSignal | undefined;
}

/**
 * Await it for the result, or iterate it for the events and then await it; leaving the loop early cancels. It can be
 * iterated once, as events or as text.
 */
export class Generation implements AsyncIterable<GenerationEvent>, PromiseLike<GenerationResult> {
  readonly id: string;
  private readonly stop = new AbortController();
  private readonly events = new EventBuffer();
  private readonly outcome: Promise<GenerationResult>;
  private taken = false;

  constructor(parts: GenerationParts) {
    this.id = parts.id;
    this.outcome = this.run(parts);
    // Reported on use, and only then.
    this.outcome.then(
      (result) => {
        this.events.push({ type: "end", result });
        this.events.end();
      },
      (error: unknown) => this.events.end({ error }),
    );
  }

  /** The result; the same as awaiting the generation. */
  result(): Promise<GenerationResult> {
    return this.outcome;
  }

  // biome-ignore lint/suspicious/noThenProperty: awaiting a generation gives its result, as its documentation says
  then<A = GenerationResult, B = never>(
    onResult?: ((result: GenerationResult) => A | PromiseLike<A>) | null,
    onError?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.outcome.then(onResult, onError);
  }

  /** Ends at the next round; the result then holds what was committed, with `finishReason: "cancelled"`. */
  cancel(): void {
    this.stop.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<GenerationEvent, void, void> {
    if (this.taken) throw new Error("a generation can be iterated once");
    this.taken = true;
    try {
      for (let event = await this.events.next(); event !== undefined; event = await this.events.next()) yield event;
    } finally {
      // Behind the end this changes nothing.
      this.cancel();
    }
  }

  /** The text as it comes. */
  async *text(): AsyncGenerator<string, void, void> {
    for await (const event of this) if (event.type === "text" && event.text !== "") yield event.text;
  }

  private async run({ engine, text, prepare, signal }: GenerationParts): Promise<GenerationResult> {
    const called = performance.now();
    const stopped = AbortSignal.any([this.stop.signal, ...(signal === undefined ? [] : [signal])]);
    let result: GenerationResult;
    try {
      if (signal?.aborted) throw cancellation(signal, null);
      // Not with `stopped`: a generation that is cancelled this early still ends with a result.
      const prepared = await prepare(signal);
      result = await this.decode(prepared, { engine, text, signal: stopped, called });
    } catch (error) {
      throw signal?.aborted ? cancellation(signal, null) : fromEngine(error);
    }
    if (signal?.aborted && result.finishReason === "cancelled") throw cancellation(signal, result);
    return result;
  }

  private async decode(
    { request, stops, silentIds, verifyLossless, inexactCaches }: PreparedRequest,
    run: { engine: EngineClient; text: TextModel; signal: AbortSignal; called: number },
  ): Promise<GenerationResult> {
    const { engine, text, signal, called } = run;
    const chain = new ChoiceText<TokenLogprob>(text.detokenizer(), new StopMatcher(stops), silentIds);
    const tokens: TextToken<TokenLogprob>[] = [];
    const pieces: string[] = [];
    const tell = (piece: string, told: readonly TextToken<TokenLogprob>[]) => {
      tokens.push(...told);
      pieces.push(piece);
      const tokenIds = told.filter(({ id }) => !silentIds.has(id)).map(({ id }) => id);
      if (piece !== "" || tokenIds.length > 0) this.events.push({ type: "text", text: piece, tokenIds });
      const entries = told.flatMap(({ logprob }) => (logprob === null ? [] : [entryOf(logprob, text)]));
      if (entries.length > 0) this.events.push({ type: "logprobs", entries });
    };
    const full = new AbortController();
    let end: { readonly reason: FinishReason; readonly stats: RequestStats } | null = null;
    let started = false;
    let rounds = 0;
    for await (const event of engine.generate(request, AbortSignal.any([signal, full.signal]))) {
      if (!started && event.type !== "done") {
        started = true;
        const queueSeconds = (performance.now() - called) / 1000;
        this.events.push({ type: "start", promptTokens: request.promptIds.length, queueSeconds });
      }
      if (event.type === "prefill") this.events.push(event);
      else if (event.type === "done") end = event;
      else if (chain.stopString === null) {
        const { round } = event;
        if (round !== null) {
          this.events.push({ type: "round", index: rounds++, committed: event.ids.length, ...round });
        }
        const released = chain.push(event.ids, event.logprobs);
        if (released.text !== "") tell(released.text, released.tokens);
        // The engine answers a cancel with its statistics: keep listening.
        if (chain.stopString !== null) full.abort();
      }
    }
    if (end === null) throw new Error("the engine ended a request without its result");
    const last = chain.finish();
    tell(last.text, [...last.tokens, ...chain.rest()]);
    const ids = tokens.map(({ id }) => id);
    const { sampling, promptIds } = request;
    const checked =
      verifyLossless && end.reason !== "cancelled"
        ? await replayRun(engine, { promptIds, ids }, { sampling, inexactCaches, signal })
        : null;
    const logprobs = tokens.flatMap(({ logprob }) => (logprob === null ? [] : [entryOf(logprob, text)]));
    return {
      text: pieces.join(""),
      tokenIds: Int32Array.from(ids),
      finishReason: chain.stopString !== null ? "stop" : end.reason,
      stopString: chain.stopString,
      logprobs: request.topLogprobs === null ? null : logprobs,
      stats: statsOf(end.stats, chain.completionTokens, checked),
    };
  }
}

function entryOf({ id, logprob, top }: TokenLogprob, text: TextModel): LogprobEntry {
  const bytes = text.tokenBytes(id);
  return {
    tokenId: id,
    token: new TextDecoder().decode(bytes),
    bytes,
    logprob,
    top: top.map(([tokenId, value]) => ({ tokenId, logprob: value })),
  };
}

function statsOf(stats: RequestStats, completionTokens: number, checked: GenerationStats["lossless"]): GenerationStats {
  const { prefillSeconds, decodeSeconds, acceptLengths, rounds } = stats;
  const committed = acceptLengths.reduce((sum, length) => sum + length, 0);
  const rate = (seconds: number) => (seconds > 0 ? completionTokens / seconds : 0);
  return {
    mode: stats.mode,
    promptTokens: stats.promptTokens,
    cachedTokens: stats.cachedTokens,
    completionTokens,
    queueSeconds: stats.queueSeconds,
    prefillSeconds,
    decodeSeconds,
    ttftSeconds: stats.ttftSeconds,
    tokensPerSecond: rate(prefillSeconds + decodeSeconds),
    decodeTokensPerSecond: rate(decodeSeconds),
    rounds,
    targetForwards: stats.targetForwards,
    acceptLengths,
    meanAcceptLength: rounds > 0 ? committed / rounds : 1,
    drafted: stats.drafted,
    accepted: stats.accepted,
    lookupRounds: stats.lookupRounds,
    parkedRounds: stats.parkedRounds,
    cap: stats.cap,
    seed: BigInt(stats.seed),
    decayRatio: stats.decayRatio,
    lossless:
      checked === null
        ? null
        : {
            tokens: checked.tokens,
            argmaxEqual: checked.argmaxEqual,
            maxGapAtMismatch: checked.maxGapAtMismatch,
          },
  };
}
