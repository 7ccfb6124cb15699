/**
 * What the server and the CLI see of the engine: one object, promises and async iterators over `protocol.ts`.
 * The worker behind it is made in `spawn.ts`; tests put a scripted engine behind the same interface.
 */
import type {
  EngineStats,
  FinishReason,
  GenerateRequest,
  LoadProgress,
  LoadSpec,
  ModelInfo,
  ReplayReport,
  ReplayRequest,
  RequestStats,
  TokenEvent,
  WireError,
} from "./protocol.ts";

/** Events of one running request, in order; the last one is `done`. Errors are thrown as `EngineError`. */
export type GenerateEvent =
  | { readonly type: "prefill"; readonly processed: number; readonly total: number }
  | ({ readonly type: "tokens" } & Omit<TokenEvent, "id">)
  | { readonly type: "done"; readonly reason: FinishReason; readonly stats: RequestStats };

/** Events of one consumer, who takes them one by one or has them handed over. */
export interface EventSource<T> extends AsyncIterableIterator<T> {
  /**
   * Hands every event over at the moment when it comes; to be called instead of iterating. Resolves after the last one,
   * rejects with the source's error or with what `sink` throws, which also leaves the source.
   */
  each?(sink: (event: T) => void): Promise<void>;
}

/** State of the engine's model, for `/health` and for refusing requests early. */
export type EngineStatus =
  | { readonly state: "no_model" }
  | { readonly state: "loading"; readonly progress: LoadProgress | null; readonly requested: string }
  | { readonly state: "ready"; readonly model: ModelInfo }
  | { readonly state: "failed"; readonly error: WireError };

export interface EngineClient {
  readonly status: EngineStatus;
  /**
   * Judges a load without touching what is loaded: names that mean nothing, models that must not be loaded. What would
   * have to be downloaded is judged when it is there. Rejects with `EngineError` `load_refused`.
   */
  examine(spec: LoadSpec): Promise<void>;
  /**
   * Loads a model; progress is seen through `status` and `onProgress`. Whatever was loaded is freed first, and rows that
   * still run fail. Rejects with `EngineError`; then nothing is loaded.
   */
  load(spec: LoadSpec, onProgress?: (progress: LoadProgress) => void): Promise<ModelInfo>;
  /** Ends a running load, which then rejects with `load_cancelled`. `cleanup` also deletes what was half downloaded. */
  cancelLoad(cleanup: boolean): void;
  /** Frees the model; rows that still run fail. Harmless without one. Rejects with `EngineError` during a load. */
  unload(): Promise<void>;
  /**
   * Runs one request. The iterator ends after `done`; leaving it early (break, return, throw) cancels the row at the
   * next step. `signal` cancels too, also while the request is queued or in prefill.
   */
  generate(request: GenerateRequest, signal?: AbortSignal): EventSource<GenerateEvent>;
  /** Reads a committed text again, one token a forward. Rejects with `EngineError`, also when `signal` ends it. */
  replay(request: ReplayRequest, signal?: AbortSignal): Promise<ReplayReport>;
  stats(): Promise<EngineStats>;
  /** Stops admission, lets running rows end for at most `drainMs`, then ends the thread. */
  shutdown(drainMs: number): Promise<void>;
}

export class EngineError extends Error {
  override readonly name = "EngineError";
  readonly kind: WireError["kind"];
  constructor(error: WireError) {
    super(error.message);
    this.kind = error.kind;
  }
}
