/**
 * An engine that plays a script: given ids at given times, errors and cancels included, and keeps a record of what it
 * was asked. Token ids are bytes (0…255), 256 is the end of a turn.
 */
import { type EngineClient, EngineError, type EngineStatus, type GenerateEvent } from "../../src/engine/client.ts";
import { GrammarMeter } from "../../src/engine/grammar/metrics.ts";
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
  RoundInfo,
  TokenLogprob,
  WireError,
} from "../../src/engine/protocol.ts";

export const EOS = 256;

export interface Script {
  /** Ids in the order of generation; the row ends at an EOS id, the limit, or the end of the list (as `length`). */
  readonly ids: readonly number[];
  /** Ids per step. */
  readonly perStep?: number;
  /** Wait before each step, also before the first. */
  readonly stepMs?: number;
  /** Repeats `ids` without end. */
  readonly endless?: boolean;
  /** Fails with this error after so many ids. */
  readonly failure?: { readonly after: number; readonly error: WireError };
  /** What is said of each step's round. */
  readonly round?: RoundInfo;
  /** Prompt tokens read before the whole prompt is. */
  readonly prefill?: readonly number[];
  /** Of its statistics, what is not as `statsOf` has it. */
  readonly stats?: Partial<RequestStats>;
  /** Most likely alternatives of every token. */
  readonly top?: readonly (readonly [number, number])[];
}

export const SCRIPTED_MODEL: ModelInfo = {
  id: "scripted-1b",
  requested: "scripted",
  dir: "/models/somewhere/scripted-1b",
  family: "scripted",
  mode: "baseline",
  drafter: null,
  drafting: null,
  vocabSize: 257,
  contextWindow: 4096,
  eosIds: [EOS],
  samplingDefaults: {},
  weightBytes: 1000,
  footprint: {
    ...{ totalBytes: 1000, activeBytes: 800, expertBytes: 0, embedBytes: 200 },
    ...{ experts: 0, expertsPerToken: null, activeIsEstimate: false },
  },
  bandwidth: { gbS: 10, measuredAt: "2026-11-01T00:00:00.000Z", method: "scripted" },
  mlx: "0.0.1",
  kvBytesPerToken: 10,
  backend: "cpu (scripted)",
  quantization: null,
  notes: [],
};

export class ScriptedEngine implements EngineClient {
  status: EngineStatus;
  readonly requests: GenerateRequest[] = [];
  readonly cancelled: string[] = [];
  readonly finished: string[] = [];
  /** What its grammars are said to have done. */
  readonly grammars = new GrammarMeter();
  readonly loads: LoadSpec[] = [];
  active = 0;
  activePeak = 0;
  shutdowns: number[] = [];
  readonly replayed: ReplayRequest[] = [];
  replays = (report: ReplayReport): ReplayReport => report;
  /** What `examine` says; the default is nothing. */
  examining: (spec: LoadSpec) => Promise<void> = () => Promise.resolve();
  /** Cleanups that were asked for. */
  readonly cancels: boolean[] = [];
  unloads = 0;
  /** Kept apart from `requests`: no client asked for them. */
  warmups = 0;
  private cancelling: PromiseWithResolvers<never> | null = null;
  /** What `load` does; the default is ready at once. */
  loading: (onProgress: (progress: LoadProgress) => void) => Promise<ModelInfo>;
  private readonly stop = new AbortController();
  private failure: WireError | null = null;

  constructor(
    private readonly script: (request: GenerateRequest) => Script,
    readonly model: ModelInfo = SCRIPTED_MODEL,
  ) {
    this.status = { state: "ready", model };
    this.loading = () => Promise.resolve(model);
  }

  async load(spec: LoadSpec, onProgress?: (progress: LoadProgress) => void): Promise<ModelInfo> {
    this.loads.push(spec);
    this.status = { state: "loading", progress: null, requested: spec.model };
    try {
      this.cancelling = Promise.withResolvers<never>();
      const loading = this.loading((progress) => {
        this.status = { state: "loading", progress, requested: spec.model };
        onProgress?.(progress);
      });
      const model = await Promise.race([loading, this.cancelling.promise]);
      this.status = { state: "ready", model };
      return model;
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      const wire: WireError = { kind: error instanceof EngineError ? error.kind : "load", message };
      this.status = { state: "failed", error: wire };
      throw new EngineError(wire);
    } finally {
      this.cancelling = null;
    }
  }

  examine(spec: LoadSpec): Promise<void> {
    return this.examining(spec);
  }

  cancelLoad(cleanup: boolean): void {
    this.cancels.push(cleanup);
    this.cancelling?.reject(new EngineError({ kind: "load_cancelled", message: "download of it cancelled" }));
  }

  async unload(): Promise<void> {
    this.unloads += 1;
    this.status = { state: "no_model" };
  }

  async *generate(request: GenerateRequest, signal?: AbortSignal): AsyncIterableIterator<GenerateEvent> {
    if (request.id === "warmup00") {
      this.warmups += 1;
      yield { type: "done", reason: "length", stats: statsOf(request, 0) };
      return;
    }
    this.requests.push(request);
    this.active += 1;
    this.activePeak = Math.max(this.activePeak, this.active);
    const ended = AbortSignal.any([this.stop.signal, ...(signal ? [signal] : [])]);
    let reason: FinishReason | null = null;
    try {
      const script = this.script(request);
      let produced = 0;
      const total = request.promptIds.length;
      for (const processed of script.prefill ?? []) yield { type: "prefill", processed, total };
      yield { type: "prefill", processed: total, total };
      while (reason === null) {
        if (script.stepMs !== undefined) await sleep(script.stepMs, ended);
        if (this.failure !== null) throw new EngineError(this.failure);
        if (ended.aborted) {
          reason = "cancelled";
          break;
        }
        const ids: number[] = [];
        for (let i = 0; i < (script.perStep ?? 1) && reason === null; i++) {
          if (script.failure?.after === produced) throw new EngineError(script.failure.error);
          const id = script.endless ? script.ids[produced % script.ids.length] : script.ids[produced];
          if (id === undefined) {
            reason = "length";
            break;
          }
          ids.push(id);
          produced += 1;
          if (request.eosIds.includes(id)) reason = "stop";
          else if (produced >= request.maxNewTokens) reason = "length";
        }
        if (ids.length > 0)
          yield { type: "tokens", ids, logprobs: this.logprobs(request, script, ids), round: script.round ?? null };
      }
      this.finished.push(request.id);
      yield { type: "done", reason, stats: { ...statsOf(request, produced), ...script.stats } };
    } finally {
      this.active -= 1;
      if (reason === null || reason === "cancelled") this.cancelled.push(request.id);
    }
  }

  /** Every row that runs fails at its next step, as when the model goes. */
  fail(error: WireError): void {
    this.failure = error;
  }

  /** Every token is what plain decoding would have chosen, unless `replays` says otherwise. */
  replay(request: ReplayRequest): Promise<ReplayReport> {
    this.replayed.push(request);
    const steps = request.ids.map((id) => ({ choice: id, rank: 1, gap: 1, top: 10, deficit: 0 }));
    return Promise.resolve(this.replays({ steps, dtype: "float32" }));
  }

  stats(): Promise<EngineStats> {
    return Promise.resolve({
      liveArrays: 0,
      activeRows: this.active,
      queuedRows: 0,
      steps: 0,
      requestsDone: this.finished.length,
      mlxActiveBytes: 0,
      mlxPeakBytes: 0,
      mlxCacheBytes: 0,
      grammars: this.grammars.metrics,
    });
  }

  async shutdown(drainMs: number): Promise<void> {
    this.shutdowns.push(drainMs);
    const deadline = performance.now() + drainMs;
    while (this.active > 0 && performance.now() < deadline) await Bun.sleep(5);
    this.stop.abort();
    while (this.active > 0) await Bun.sleep(1);
  }

  private logprobs(request: GenerateRequest, script: Script, ids: readonly number[]): TokenLogprob[] | null {
    const top = request.topLogprobs;
    if (top === null) return null;
    return ids.map((id) => ({ id, logprob: -0.5, top: (script.top ?? [[id, -0.5]]).slice(0, top) }));
  }
}

/** A script that writes `text` and ends the turn. */
export function writes(text: string, extra: Partial<Script> = {}): Script {
  return { ids: [...new TextEncoder().encode(text), EOS], ...extra };
}

export function statsOf(request: GenerateRequest, produced: number): RequestStats {
  return {
    mode: "baseline",
    seed: request.sampling.seed ?? "0",
    promptTokens: request.promptIds.length,
    cachedTokens: 3,
    completionTokens: produced,
    rounds: produced,
    drafted: 0,
    accepted: 0,
    acceptLengths: [],
    parkedRounds: 0,
    lookupRounds: 0,
    targetForwards: produced,
    cap: null,
    acceptance: null,
    decayRatio: null,
    queueSeconds: 0.25,
    prefillSeconds: 0.5,
    decodeSeconds: 2,
    ttftSeconds: 0.5,
  };
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
