/**
 * The one way from a dialect to the engine: checks that a model is there, prepares the job, takes a place in the
 * queue and starts the rows. Everything that can be refused is refused before `begin` returns, so that it still has a
 * status of its own.
 */
import type { EngineClient } from "../../engine/client.ts";
import type { ModelInfo } from "../../engine/protocol.ts";
import { notReady } from "../errors.ts";
import type { ServerOptions } from "../options.ts";
import { Admission } from "./admission.ts";
import type { ChoiceEvent } from "./events.ts";
import { encodePrompts, type GenerationJob, prepareJob } from "./job.ts";
import type { GenerationRequest } from "./request.ts";
import { Rest } from "./rest.ts";
import { runJob } from "./run.ts";
import type { TextSource } from "./text.ts";

/** Must be disposed: that cancels rows that still run and gives the place in the queue back. */
export interface RunningGeneration extends Disposable {
  readonly job: GenerationJob;
  readonly text: TextSource;
  /** Leaving it early cancels the rows. */
  readonly events: AsyncGenerator<ChoiceEvent>;
}

export interface ServiceParts {
  readonly engine: EngineClient;
  /** Text side of the loaded model; null until it is read. */
  readonly text: () => TextSource | null;
  readonly options: ServerOptions;
}

export class GenerationService {
  private readonly admission: Admission;
  private readonly rest: Rest;
  private closing = false;

  constructor(private readonly parts: ServiceParts) {
    this.admission = new Admission(parts.options.maxBatch, parts.options.maxQueue);
    this.rest = new Rest(() => !this.admission.empty);
  }

  /** Rejects with `RequestError`: 503 without a model, 400 for a bad request, 429 when the queue is full. */
  async begin(request: GenerationRequest, signal: AbortSignal): Promise<RunningGeneration> {
    const { model, text } = this.loaded();
    const job = await prepareJob(request, { model, text, options: this.parts.options, signal });
    const ticket = this.admission.enter(job.rows.length);
    const stop = new AbortController();
    const { engine } = this.parts;
    return {
      job,
      text,
      events: runJob(job, { engine, text, ticket, signal: AbortSignal.any([signal, stop.signal]) }),
      [Symbol.dispose]: () => {
        stop.abort();
        ticket[Symbol.dispose]();
        this.rest.later();
      },
    };
  }

  /** The request's prompts in ids, however long: without a place in the queue, and nothing is generated. */
  async promptIds(request: GenerationRequest, signal: AbortSignal): Promise<readonly (readonly number[])[]> {
    return encodePrompts(request, { ...this.loaded(), options: this.parts.options, signal });
  }

  /** From now on nothing is admitted; running rows are the engine's to end. */
  close(): void {
    this.closing = true;
    this.rest.cancel();
  }

  queue(): { readonly running: number; readonly waiting: number } {
    return this.admission.counts();
  }

  /** The model in use; throws 503 while there is none. */
  loaded(): { readonly model: ModelInfo; readonly text: TextSource } {
    if (this.closing) throw notReady("the server is shutting down");
    const { status } = this.parts.engine;
    const text = this.parts.text();
    // Between "the engine is ready" and "the tokenizer is read" the model is still loading.
    if (status.state === "loading" || (status.state === "ready" && text === null)) {
      throw notReady("a model is loading — try again in a moment");
    }
    if (status.state !== "ready" || text === null) throw notReady("no model is loaded");
    return { model: status.model, text };
  }
}
