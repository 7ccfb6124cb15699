/**
 * The engine thread: owns MLX and every array. While rows are active its loop never returns to the event loop; it polls
 * the port between turns, so that a cancel or a new request is seen at the next step. Idle, it waits for messages.
 */
import { type MessagePort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { hubSettings } from "../hub/environment.ts";
import { RepoCache } from "../hub/hf-cache.ts";
import { liveArrays } from "../mlx/array.ts";
import { activeBytes, cachedBytes, peakBytes, releaseMemory, resetPeak, setCacheLimit } from "../mlx/memory.ts";
import { openMlx } from "../mlx/native.ts";
import { embeddedModelFile } from "./embedded/files.ts";
import { GrammarMeter } from "./grammar/metrics.ts";
import { loadError } from "./load-error.ts";
import { loadModel, type ReadyModel } from "./load-model.ts";
import type { FromEngine, LoadSpec, ToEngine, WireError } from "./protocol.ts";
import { Replays } from "./replays.ts";
import { Scheduler } from "./scheduler.ts";
import type { WorkerSetup } from "./spawn.ts";

/** Freed buffers kept for reuse, in bytes: a step's worth of activations, not a model's. */
const CACHE_LIMIT_BYTES = 256 << 20;
/** Idle time after which freed memory goes back to the system: clients that take turns do not pay for it. */
const REST_AFTER_MS = 500;

/** A load under way. */
interface Loading {
  readonly abort: AbortController;
  /** Repository that is being fetched, or was: what a cancel with `cleanup` deletes the parts of. */
  repo: string | null;
  cleanup: boolean;
}

class EngineThread {
  private scheduler: Scheduler | null = null;
  private replays: Replays | null = null;
  private ready: ReadyModel | null = null;
  private loading: Loading | null = null;
  /** Of all models that were loaded. */
  private readonly grammars = new GrammarMeter();
  private running = false;
  private stopped = false;
  private stopping = false;
  private drainUntil = 0;
  private rest: NodeJS.Timeout | null = null;

  constructor(
    private readonly port: MessagePort,
    nativeFolder: string,
  ) {
    openMlx(nativeFolder);
    setCacheLimit(CACHE_LIMIT_BYTES);
    port.on("message", (message: ToEngine) => {
      this.handle(message);
      this.run();
    });
  }

  private post = (message: FromEngine): void => this.port.postMessage(message);

  /** Turns until nothing is active. */
  private run(): void {
    if (this.running) return;
    this.running = true;
    let worked = false;
    while (this.scheduler?.busy || this.replays?.busy) {
      worked = true;
      this.receive();
      if (this.stopping && performance.now() > this.drainUntil) break;
      if (this.scheduler?.busy) this.scheduler.turn();
      if (this.replays?.busy) {
        this.scheduler?.interrupted();
        this.replays.turn();
      }
    }
    this.running = false;
    if (this.stopping) this.stop();
    else if (worked) this.restLater();
  }

  /** An idle engine holds the model and nothing else: neither garbage nor the buffers of the longest prompt so far. */
  private restLater(): void {
    if (this.rest !== null) clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      Bun.gc(true);
      releaseMemory();
    }, REST_AFTER_MS);
  }

  private handle(message: ToEngine): void {
    switch (message.type) {
      case "load":
        void this.load(message.spec);
        return;
      case "cancel_load":
        if (this.loading !== null) this.loading.cleanup = message.cleanup;
        this.loading?.abort.abort(new Error("the load was cancelled"));
        return;
      case "unload":
        this.unload({ kind: "not_ready", message: "the model was unloaded" });
        this.post({ type: "unloaded" });
        return;
      case "generate":
        if (this.stopping)
          this.refuse(message.request.id, { kind: "shutdown", message: "the server is shutting down" });
        else if (this.scheduler === null) {
          this.refuse(message.request.id, { kind: "not_ready", message: "no model is loaded" });
        } else {
          this.scheduler.submit(message.request);
          if (message.cancelled) this.scheduler.cancel(message.request.id);
        }
        return;
      case "replay":
        if (this.stopping || this.replays === null) {
          this.refuse(message.request.id, { kind: "not_ready", message: "no model is loaded" });
        } else {
          this.replays.submit(message.request);
          if (message.cancelled) this.replays.cancel(message.request.id);
        }
        return;
      case "cancel":
        this.scheduler?.cancel(message.id);
        this.replays?.cancel(message.id);
        return;
      case "stats":
        this.postStats(message.seq);
        return;
      case "shutdown":
        this.stopping = true;
        this.drainUntil = performance.now() + message.drainMs;
        this.loading?.abort.abort(new Error("the server is shutting down"));
        this.scheduler?.refuseWaiting({ kind: "shutdown", message: "the server is shutting down" });
        return;
    }
  }

  private refuse(id: string, error: WireError): void {
    this.post({ type: "failed", id, error });
  }

  private async load(spec: LoadSpec): Promise<void> {
    if (this.loading !== null) {
      this.post({ type: "load_failed", error: { kind: "load", message: "another load is running" } });
      return;
    }
    const loading: Loading = { abort: new AbortController(), repo: null, cleanup: false };
    const { signal } = loading.abort;
    this.loading = loading;
    this.unload({ kind: "not_ready", message: "another model is being loaded" });
    try {
      const ready = await loadModel(spec, {
        onProgress: (progress) => {
          loading.repo = progress.download?.repo ?? loading.repo;
          this.post({ type: "load_progress", progress });
        },
        onTensor: () => this.receive(),
        signal,
        embedded: (id) => embeddedModelFile(id),
        grammars: this.grammars,
      });
      this.ready = ready;
      this.scheduler = new Scheduler(ready, spec, this.post, () => this.run());
      this.replays = new Replays(ready, spec, this.post);
      this.post({ type: "loaded", model: ready.info });
    } catch (error) {
      releaseMemory();
      if (loading.cleanup && loading.repo !== null) await removeParts(loading.repo);
      const failed = loadError(error, signal);
      this.post({ type: "load_failed", error: this.stopping ? { ...failed, kind: "shutdown" } : failed });
    } finally {
      this.loading = null;
      if (this.stopping) this.stop();
    }
  }

  /** Takes what has come meanwhile: long work of this thread does not return to its event loop. */
  private receive(): void {
    for (let next = receiveMessageOnPort(this.port); next !== undefined; next = receiveMessageOnPort(this.port)) {
      this.handle(next.message as ToEngine);
    }
  }

  private unload(error: WireError): void {
    this.scheduler?.abort(error);
    this.scheduler = null;
    this.replays?.abort(error);
    this.replays = null;
    this.ready?.grammars?.close();
    this.ready?.speculator?.drafter?.dispose();
    this.ready?.target.model.dispose();
    this.ready = null;
    // Drafters and graphs that only garbage holds would keep their buffers until somebody collects it.
    Bun.gc(true);
    releaseMemory();
    resetPeak();
  }

  private postStats(seq: number): void {
    this.post({
      type: "stats",
      seq,
      stats: {
        liveArrays: liveArrays(),
        activeRows: this.scheduler?.activeRows ?? 0,
        queuedRows: this.scheduler?.queuedRows ?? 0,
        steps: this.scheduler?.steps ?? 0,
        requestsDone: this.scheduler?.requestsDone ?? 0,
        mlxActiveBytes: activeBytes(),
        mlxPeakBytes: peakBytes(),
        mlxCacheBytes: cachedBytes(),
        grammars: this.grammars.metrics,
      },
    });
  }

  private stop(): void {
    if (this.stopped || this.loading !== null) return;
    this.stopped = true;
    if (this.rest !== null) clearTimeout(this.rest);
    this.unload({ kind: "shutdown", message: "the server is shutting down" });
    this.post({ type: "stopped" });
    this.port.close();
  }
}

async function removeParts(repo: string): Promise<void> {
  const { cacheDir } = hubSettings(process.env, true);
  await new RepoCache(cacheDir, repo).removePartFiles();
}

const setup = workerData as WorkerSetup;
new EngineThread(setup.port, setup.nativeFolder);
