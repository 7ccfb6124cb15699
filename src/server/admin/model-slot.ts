/**
 * The one place where models come and go: the engine's weights and the text side change together, while the gate keeps
 * requests away. At any time there is a whole model or none; a failed load leaves none and says why.
 */
import { type EngineClient, EngineError, type EngineStatus } from "../../engine/client.ts";
import type { LoadProgress, LoadSpec, ModelInfo, WireError } from "../../engine/protocol.ts";
import { RequestError } from "../errors.ts";
import { Gate } from "../generation/gate.ts";
import type { TextSource } from "../generation/text.ts";

export interface SlotParts {
  readonly engine: EngineClient;
  /** Reads the tokenizer and template of a loaded model's folder. */
  readonly loadText: (dir: string) => Promise<TextSource>;
  /** One line for whoever runs the server. */
  readonly log: (line: string) => void;
}

export interface LoadWish {
  readonly spec: LoadSpec;
  /** Ends running requests with an error instead of waiting for them. */
  readonly force: boolean;
  /** Generates a little before the first request does. */
  readonly warmup: boolean;
}

interface Loading {
  readonly wish: LoadWish;
  readonly done: Promise<ModelInfo>;
  cancelled: boolean;
  /** Resolves when it is cancelled: waiting for running requests ends then. */
  readonly cancel: PromiseWithResolvers<void>;
}

const LOADING = "a model is loading — try again in a moment";
const CANCELLED: WireError = { kind: "load_cancelled", message: "the load was cancelled before it began" };
/** Prompt and answer of a warm-up: enough for every kind of forward to have run once. */
const WARMUP_TOKENS = 8;

export class ModelSlot {
  readonly gate = new Gate();
  private current: Loading | null = null;
  private unloading: Promise<void> | null = null;
  private textSide: TextSource | null = null;
  private progress: LoadProgress | null = null;
  private failure: WireError | null = null;
  private loadedWish: LoadWish | null = null;

  private readonly goneListeners: (() => void)[] = [];

  constructor(private readonly parts: SlotParts) {}

  /** Called whenever the model has gone, or is about to. */
  onGone(listener: () => void): void {
    this.goneListeners.push(listener);
  }

  private letGo(): void {
    this.textSide = null;
    this.loadedWish = null;
    this.failure = null;
    for (const listener of this.goneListeners) listener();
  }

  /** Text side of the loaded model; null while there is none, or its load is not over. */
  get text(): TextSource | null {
    return this.textSide;
  }

  /** What the loaded model was loaded with. */
  get loaded(): LoadWish | null {
    return this.loadedWish;
  }

  /** The engine's status, but loading from the wish to the last warm-up. */
  get status(): EngineStatus {
    const { engine } = this.parts;
    if (this.current !== null) {
      return { state: "loading", progress: this.progress, requested: this.current.wish.spec.model };
    }
    if (this.failure !== null && engine.status.state !== "ready") return { state: "failed", error: this.failure };
    return engine.status;
  }

  /**
   * Loads a model in the place of the one that is there. A wish equal to the one under way shares its end.
   * Rejects with `EngineError` (`load_refused`: nothing has changed) and with `RequestError` 409 during another load.
   */
  load(wish: LoadWish, onProgress?: (progress: LoadProgress) => void): Promise<ModelInfo> {
    if (this.current !== null) {
      if (JSON.stringify(this.current.wish) === JSON.stringify(wish)) return this.current.done;
      throw busy(`a load of '${this.current.wish.spec.model}' is under way`);
    }
    if (this.unloading !== null) throw busy("the model is being unloaded");
    const cancel = Promise.withResolvers<void>();
    const { promise: done, resolve, reject } = Promise.withResolvers<ModelInfo>();
    // Whoever asked hears of it through the returned promise; nobody else need be told.
    done.catch(() => undefined);
    const loading: Loading = { wish, done, cancelled: false, cancel };
    this.current = loading;
    this.run(loading, onProgress)
      .finally(() => {
        this.current = null;
        this.progress = null;
        this.gate.open();
      })
      .then(resolve, reject);
    return done;
  }

  private async run({ wish, cancel }: Loading, onProgress?: (progress: LoadProgress) => void): Promise<ModelInfo> {
    const { engine, log } = this.parts;
    await engine.examine(wish.spec);
    this.gate.close(LOADING);
    if (!wish.force) await Promise.race([this.gate.empty(), cancel.promise]);
    // Until here the old model is whole, and stays.
    if (this.isCancelled()) throw new EngineError(CANCELLED);
    this.letGo();
    try {
      const model = await engine.load(wish.spec, (progress) => {
        this.progress = progress;
        onProgress?.(progress);
      });
      this.progress = { ...STILL, phase: "warmup", detail: "reading the tokenizer" };
      const text = await this.readText(model);
      if (wish.warmup) await warmUp(engine, text, log);
      // Too late for the engine to hear of it.
      if (this.isCancelled()) {
        await engine.unload();
        throw new EngineError({ kind: "load_cancelled", message: "the load was cancelled" });
      }
      this.textSide = text;
      this.loadedWish = wish;
      return model;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.failure = { kind: error instanceof EngineError ? error.kind : "load", message: reason };
      throw error;
    }
  }

  private isCancelled(): boolean {
    return this.current?.cancelled === true;
  }

  /** A model whose text files cannot be read is of no use: it goes. */
  private async readText(model: ModelInfo): Promise<TextSource> {
    try {
      return await this.parts.loadText(model.dir);
    } catch (error) {
      await this.parts.engine.unload();
      const reason = error instanceof Error ? error.message : String(error);
      throw new EngineError({ kind: "load", message: `cannot read the model's text files: ${reason}` });
    }
  }

  /** The model being loaded, or null when there is nothing to cancel. Its load rejects with `load_cancelled`. */
  cancel(cleanup: boolean): string | null {
    if (this.current === null) return null;
    this.current.cancelled = true;
    this.current.cancel.resolve();
    this.parts.engine.cancelLoad(cleanup);
    return this.progress?.download?.repo ?? this.current.wish.spec.model;
  }

  /** Frees the model, after running requests unless `force`. Throws 409 during a load. */
  unload(force: boolean): Promise<void> {
    if (this.current !== null) {
      throw busy(`'${this.current.wish.spec.model}' is being loaded; cancel it with POST /admin/load/cancel`);
    }
    this.unloading ??= this.release(force).finally(() => {
      this.unloading = null;
      this.gate.open();
    });
    return this.unloading;
  }

  private async release(force: boolean): Promise<void> {
    this.gate.close("the model is being unloaded");
    if (!force) await this.gate.empty();
    this.letGo();
    await this.parts.engine.unload();
  }
}

const STILL: LoadProgress = {
  phase: "load",
  fraction: null,
  bytesDone: null,
  bytesTotal: null,
  bytesPerSecond: null,
  detail: "",
};

function busy(message: string): RequestError {
  return new RequestError({ status: 409, type: "invalid_request_error", code: "load_in_progress", message });
}

/** Nobody sees it, and no counter counts it: it goes to the engine itself. */
async function warmUp(engine: EngineClient, text: TextSource, log: (line: string) => void): Promise<void> {
  const words = text.encodeCompletion("Tell me about the sea.");
  const request = {
    id: "warmup00",
    promptIds: words.length > 0 ? words : [0],
    maxNewTokens: WARMUP_TOKENS,
    sampling: {
      ...{ temperature: 0, topP: 1, topK: 0, minP: 0, presencePenalty: 0, frequencyPenalty: 0 },
      ...{ repetitionPenalty: 1, logitBias: [], seed: "0" },
    },
    eosIds: [],
    topLogprobs: null,
    priority: 0,
  } as const;
  try {
    for await (const event of engine.generate(request)) if (event.type === "done") break;
  } catch (error) {
    log(`warm-up failed: ${error instanceof Error ? error.message : String(error)}`);
  }
}
