/** Starts the engine thread and speaks `protocol.ts` with it: the EngineClient of the real program. */
import { MessageChannel, type MessagePort, Worker } from "node:worker_threads";
import { type EngineClient, EngineError, type EngineStatus, type EventSource, type GenerateEvent } from "./client.ts";
import { EventStream } from "./event-stream.ts";
import { examineLoad } from "./examine.ts";
import type {
  EngineStats,
  FromEngine,
  GenerateRequest,
  LoadProgress,
  LoadSpec,
  ModelInfo,
  ReplayReport,
  ReplayRequest,
  ToEngine,
  WireError,
} from "./protocol.ts";
import { workerUrl } from "./worker-url.ts";

/** What the thread gets when it starts. */
export interface WorkerSetup {
  readonly port: MessagePort;
  /** Folder of the native libraries, see `openMlx`. */
  readonly nativeFolder: string;
}

interface Running {
  readonly stream: EventStream<GenerateEvent>;
  /** Takes the listener off the request's signal. */
  readonly unlisten: () => void;
}

interface PendingReplay {
  readonly resolve: (report: ReplayReport) => void;
  readonly reject: (error: EngineError) => void;
}

interface PendingStats {
  readonly resolve: (stats: EngineStats) => void;
  readonly reject: (error: EngineError) => void;
}

interface PendingLoad {
  readonly resolve: (model: ModelInfo) => void;
  readonly reject: (error: EngineError) => void;
  readonly onProgress: ((progress: LoadProgress) => void) | undefined;
}

export interface SpawnOptions {
  /** Whether an idle engine keeps the process alive; default true. A busy one always does. */
  readonly holdsProcess?: boolean;
}

export function spawnEngine(nativeFolder: string, { holdsProcess = true }: SpawnOptions = {}): EngineClient {
  return new WorkerEngine(nativeFolder, holdsProcess);
}

class WorkerEngine implements EngineClient {
  status: EngineStatus = { state: "no_model" };
  private readonly worker: Worker;
  private readonly port: MessagePort;
  private readonly running = new Map<string, Running>();
  private readonly replaying = new Map<string, PendingReplay>();
  private readonly statsWaiting = new Map<number, PendingStats>();
  private pendingLoad: PendingLoad | null = null;
  private unloading: PromiseWithResolvers<void> | null = null;
  private statsSeq = 0;
  private ending = false;
  private readonly ended: Promise<void>;
  private signalEnd: () => void = () => undefined;
  /** Set once the thread is gone; every later call fails with it. */
  private gone: WireError | null = null;

  constructor(
    nativeFolder: string,
    private readonly holdsProcess: boolean,
  ) {
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    this.ended = new Promise((resolve) => {
      this.signalEnd = resolve;
    });
    port1.on("message", (message: FromEngine) => this.receive(message));
    this.worker = new Worker(workerUrl(), {
      workerData: { port: port2, nativeFolder } satisfies WorkerSetup,
      transferList: [port2],
    });
    this.worker.on("error", (error) => {
      this.lost(`the engine thread failed: ${error instanceof Error ? error.message : String(error)}`);
    });
    this.worker.on("exit", () => this.lost("the engine thread has ended"));
    if (!holdsProcess) this.worker.unref();
    this.holdWhileBusy();
  }

  /** The port keeps the process alive as long as somebody waits for what comes through it. */
  private holdWhileBusy(): void {
    if (this.holdsProcess) return;
    const waits = this.running.size + this.replaying.size + this.statsWaiting.size > 0;
    if (waits || this.pendingLoad !== null || this.unloading !== null || this.ending) this.port.ref();
    else this.port.unref();
  }

  examine(spec: LoadSpec): Promise<void> {
    return examineLoad(spec);
  }

  load(spec: LoadSpec, onProgress?: (progress: LoadProgress) => void): Promise<ModelInfo> {
    if (this.gone !== null) return Promise.reject(new EngineError(this.gone));
    if (this.pendingLoad !== null) {
      return Promise.reject(new EngineError({ kind: "load", message: "another load is running" }));
    }
    this.status = { state: "loading", progress: null, requested: spec.model };
    return new Promise((resolve, reject) => {
      this.pendingLoad = { resolve, reject, onProgress };
      this.send({ type: "load", spec });
    });
  }

  cancelLoad(cleanup: boolean): void {
    if (this.pendingLoad !== null) this.send({ type: "cancel_load", cleanup });
  }

  unload(): Promise<void> {
    if (this.gone !== null) return Promise.reject(new EngineError(this.gone));
    if (this.pendingLoad !== null) {
      return Promise.reject(new EngineError({ kind: "load", message: "a load is running: cancel it first" }));
    }
    this.status = { state: "no_model" };
    if (this.unloading === null) {
      this.unloading = Promise.withResolvers();
      this.send({ type: "unload" });
    }
    return this.unloading.promise;
  }

  generate(request: GenerateRequest, signal?: AbortSignal): EventSource<GenerateEvent> {
    const cancel = () => this.send({ type: "cancel", id: request.id });
    const stream = new EventStream<GenerateEvent>(() => {
      this.forget(request.id);
      cancel();
    });
    const refusal: WireError | null = this.running.has(request.id)
      ? { kind: "invalid_request", message: `request ${request.id} is running` }
      : this.gone;
    if (refusal !== null) {
      stream.end(new EngineError(refusal));
      return stream;
    }
    this.running.set(request.id, { stream, unlisten: () => signal?.removeEventListener("abort", cancel) });
    this.send({ type: "generate", request, cancelled: signal?.aborted === true });
    signal?.addEventListener("abort", cancel, { once: true });
    return stream;
  }

  replay(request: ReplayRequest, signal?: AbortSignal): Promise<ReplayReport> {
    if (this.gone !== null) return Promise.reject(new EngineError(this.gone));
    const { id } = request;
    const cancel = () => this.send({ type: "cancel", id });
    const report = new Promise<ReplayReport>((resolve, reject) => {
      this.replaying.set(id, { resolve, reject });
      this.send({ type: "replay", request, cancelled: signal?.aborted === true });
    });
    signal?.addEventListener("abort", cancel, { once: true });
    return report.finally(() => signal?.removeEventListener("abort", cancel));
  }

  stats(): Promise<EngineStats> {
    if (this.gone !== null) return Promise.reject(new EngineError(this.gone));
    const seq = this.statsSeq++;
    return new Promise((resolve, reject) => {
      this.statsWaiting.set(seq, { resolve, reject });
      this.send({ type: "stats", seq });
    });
  }

  async shutdown(drainMs: number): Promise<void> {
    this.ending = true;
    if (this.gone === null) this.send({ type: "shutdown", drainMs });
    await this.ended;
    await this.worker.terminate();
  }

  private send(message: ToEngine): void {
    this.port.postMessage(message);
    this.holdWhileBusy();
  }

  private receive(message: FromEngine): void {
    this.accept(message);
    if (this.gone === null) this.holdWhileBusy();
  }

  private accept(message: FromEngine): void {
    switch (message.type) {
      case "load_progress":
        if (this.status.state === "loading") this.status = { ...this.status, progress: message.progress };
        this.pendingLoad?.onProgress?.(message.progress);
        return;
      case "loaded":
        this.status = { state: "ready", model: message.model };
        this.pendingLoad?.resolve(message.model);
        this.pendingLoad = null;
        return;
      case "load_failed":
        this.status = { state: "failed", error: message.error };
        this.pendingLoad?.reject(new EngineError(message.error));
        this.pendingLoad = null;
        return;
      case "unloaded":
        this.unloading?.resolve();
        this.unloading = null;
        return;
      case "prefill":
        this.running
          .get(message.id)
          ?.stream.push({ type: "prefill", processed: message.processed, total: message.total });
        return;
      case "tokens":
        for (const { id, ...event } of message.batch) this.running.get(id)?.stream.push({ type: "tokens", ...event });
        return;
      case "done":
        this.running.get(message.id)?.stream.push({ type: "done", reason: message.reason, stats: message.stats });
        this.endStream(message.id, null);
        return;
      case "replayed":
        this.replaying.get(message.id)?.resolve(message.report);
        this.replaying.delete(message.id);
        return;
      case "failed":
        this.replaying.get(message.id)?.reject(new EngineError(message.error));
        this.replaying.delete(message.id);
        this.endStream(message.id, new EngineError(message.error));
        return;
      case "stats":
        this.statsWaiting.get(message.seq)?.resolve(message.stats);
        this.statsWaiting.delete(message.seq);
        return;
      case "stopped":
        this.lost("the engine has been shut down");
        return;
    }
  }

  private endStream(id: string, error: EngineError | null): void {
    this.running.get(id)?.stream.end(error);
    this.forget(id);
  }

  private forget(id: string): void {
    this.running.get(id)?.unlisten();
    this.running.delete(id);
  }

  /** The thread is gone: everybody who waits is told. */
  private lost(message: string): void {
    if (this.gone !== null) return;
    this.gone = { kind: "shutdown", message };
    const error = new EngineError(this.gone);
    if (this.status.state !== "failed") this.status = { state: "failed", error: this.gone };
    this.pendingLoad?.reject(error);
    this.pendingLoad = null;
    this.unloading?.reject(error);
    this.unloading = null;
    for (const id of [...this.running.keys()]) this.endStream(id, error);
    for (const waiting of [...this.replaying.values(), ...this.statsWaiting.values()]) waiting.reject(error);
    this.replaying.clear();
    this.statsWaiting.clear();
    this.port.close();
    this.signalEnd();
  }
}
