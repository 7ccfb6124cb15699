/**
 * The one way from a dialect to the engine: checks that a model is there, prepares the job, takes a place in the
 * queue and starts the rows. Everything that can be refused is refused before `begin` returns, so that it still has a
 * status of its own.
 */
import { type EngineClient, EngineError } from "../../engine/client.ts";
import type { ModelInfo } from "../../engine/protocol.ts";
import { notReady } from "../errors.ts";
import type { ServerOptions } from "../options.ts";
import type { Api } from "../telemetry/feed.ts";
import { Telemetry } from "../telemetry/telemetry.ts";
import { RequestWatch } from "../telemetry/watch-request.ts";
import { Admission } from "./admission.ts";
import type { ChoiceEvent } from "./events.ts";
import { Gate } from "./gate.ts";
import { encodePrompts, type GenerationJob, prepareJob } from "./job.ts";
import type { GenerationRequest } from "./request.ts";
import { Rest } from "./rest.ts";
import { driveJob, runJob } from "./run.ts";
import type { TextSource } from "./text.ts";

/** Must be disposed: that cancels rows that still run and gives the place in the queue back. */
export interface RunningGeneration extends Disposable {
  readonly job: GenerationJob;
  readonly text: TextSource;
  /** One by one; leaving it early cancels the rows. */
  readonly events: AsyncGenerator<ChoiceEvent>;
  /** In place of `events`: each is handed over the moment it comes. Resolves after the last; rejects with an error. */
  each(sink: (event: ChoiceEvent) => void): Promise<void>;
}

export interface ServiceParts {
  readonly engine: EngineClient;
  /** Text side of the loaded model; null until it is read. */
  readonly text: () => TextSource | null;
  readonly options: ServerOptions;
  /** Closed while the model changes; absent: it never does. */
  readonly gate?: Gate | undefined;
  readonly telemetry?: Telemetry;
}

export class GenerationService {
  private readonly admission: Admission;
  private readonly rest: Rest;
  private readonly gate: Gate;
  readonly telemetry: Telemetry;
  private closing = false;

  constructor(private readonly parts: ServiceParts) {
    this.admission = new Admission(parts.options.maxBatch, parts.options.maxQueue);
    this.rest = new Rest(() => !this.admission.empty);
    this.gate = parts.gate ?? new Gate();
    this.telemetry = parts.telemetry ?? new Telemetry();
  }

  /** Rejects with `RequestError`: 503 without a model, 400 for a bad request, 429 when the queue is full. */
  async begin(request: GenerationRequest, signal: AbortSignal, api: Api = "chat"): Promise<RunningGeneration> {
    if (this.closing) throw notReady("the server is shutting down");
    const pass = this.gate.enter();
    try {
      const { model, text } = this.loaded();
      const job = await prepareJob(request, { model, text, options: this.parts.options, signal });
      const ticket = this.admission.enter(job.rows.length);
      const watch = new RequestWatch(this.telemetry, job, api);
      const stop = new AbortController();
      const engine = this.engineOf(model, watch);
      const running = { engine, text, ticket, signal: AbortSignal.any([signal, stop.signal]) };
      return {
        job,
        text,
        events: watch.choices(runJob(job, running)),
        each: async (sink) => {
          try {
            await driveJob(job, running, (event) => {
              watch.choice(event);
              sink(event);
            });
          } catch (error) {
            watch.failed();
            throw error;
          }
        },
        [Symbol.dispose]: () => {
          stop.abort();
          ticket[Symbol.dispose]();
          pass[Symbol.dispose]();
          watch.finish();
          this.rest.later();
        },
      };
    } catch (error) {
      pass[Symbol.dispose]();
      throw error;
    }
  }

  /** The engine as long as it has the model that the request was prepared for: ids mean something else in another. */
  private engineOf(model: ModelInfo, watch: RequestWatch): Pick<EngineClient, "generate"> {
    const { engine } = this.parts;
    return {
      generate: (request, signal) => {
        if (engine.status.state !== "ready" || engine.status.model !== model) {
          throw new EngineError({ kind: "not_ready", message: "another model is being loaded" });
        }
        return watch.row(request.id, engine.generate(request, signal));
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
    if (status.state !== "ready" || text === null)
      throw notReady("no model is loaded — load one with POST /admin/load");
    return { model: status.model, text };
  }
}
