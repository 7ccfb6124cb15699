/** The engine on its own thread, over a tiny golden model: loads, runs, cancels, failures and the end, as a server sees it. */
import { afterEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessagePort, Worker } from "node:worker_threads";
import { type EngineClient, EngineError, type GenerateEvent } from "../../src/engine/client.ts";
import { nativeFolder } from "../../src/engine/embedded/files.ts";
import { type GenerateRequest, type LoadProgress, type LoadSpec, NO_SPECULATION } from "../../src/engine/protocol.ts";
import { spawnEngine } from "../../src/engine/spawn.ts";
import { cpuThreads, setCpuThreads } from "../../src/mlx/cpu.ts";
import { goldenRoot } from "../support/golden.ts";
import { openTestMlx } from "../support/native.ts";
import { GREEDY } from "../support/sampling.ts";
import { request, serial, tinyModel } from "./tiny.ts";

setDefaultTimeout(60_000);

const folder = join(goldenRoot("dense"), "llama-f32");
const engines: EngineClient[] = [];
afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.shutdown(0)));
});

function spawn(native = nativeFolder()): EngineClient {
  const engine = spawnEngine(native);
  engines.push(engine);
  return engine;
}

function spec(part: Partial<LoadSpec> = {}): LoadSpec {
  return {
    model: folder,
    offline: true,
    kvBits: 0,
    contextWindow: null,
    threads: null,
    speculation: NO_SPECULATION,
    maxBatch: 2,
    maxQueue: 8,
    ...part,
  };
}

async function loaded(part: Partial<LoadSpec> = {}): Promise<EngineClient> {
  const engine = spawn();
  await engine.load(spec(part));
  return engine;
}

interface Told {
  readonly ids: number[];
  readonly types: string[];
  readonly end: string;
}

/** Everything that one request was told; `watch` may act on each event, or leave by returning true. */
async function told(
  events: AsyncIterableIterator<GenerateEvent>,
  watch: (event: GenerateEvent, ids: readonly number[]) => boolean = () => false,
): Promise<Told> {
  const ids: number[] = [];
  const types: string[] = [];
  let end = "left";
  for await (const event of events) {
    types.push(event.type);
    if (event.type === "tokens") ids.push(...event.ids);
    if (event.type === "done") end = event.reason;
    if (watch(event, ids)) break;
  }
  return { ids, types, end };
}

async function rejection(promise: Promise<unknown>): Promise<EngineError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof EngineError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

/** Waits until the engine has no rows: a cancelled one is gone. */
async function idle(engine: EngineClient): Promise<void> {
  for (let i = 0; i < 500; i++) {
    const { activeRows, queuedRows } = await engine.stats();
    if (activeRows + queuedRows === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  throw new Error("rows are left behind");
}

const long = (part: Partial<GenerateRequest> = {}) => request({ maxNewTokens: 2000, ...part });

function reference(asked: GenerateRequest) {
  openTestMlx();
  const tiny = tinyModel();
  try {
    return serial(tiny, asked);
  } finally {
    tiny.dispose();
  }
}

describe("a model", () => {
  test("is loaded with progress, and says what it is", async () => {
    const engine = spawn();
    expect(engine.status).toEqual({ state: "no_model" });
    const progress: LoadProgress[] = [];
    const loading = engine.load(spec(), (step) => progress.push(step));
    expect(engine.status.state).toBe("loading");
    const model = await loading;
    expect(model).toMatchObject({
      family: "llama",
      mode: "baseline",
      vocabSize: 288,
      contextWindow: 2048,
      id: "llama-f32",
    });
    expect(engine.status).toEqual({ state: "ready", model });
    expect(progress.at(0)?.phase).toBe("resolve");
    expect(progress.at(-1)).toMatchObject({ phase: "load", fraction: 1 });
    const fractions = progress.flatMap((step) => (step.phase === "load" ? [step.fraction ?? 0] : []));
    expect(fractions).toEqual([...fractions].sort((a, b) => a - b));
  });

  test("generates what the serial reference does, alone and beside others", async () => {
    const engine = await loaded();
    const asked = [
      request({ maxNewTokens: 20 }),
      request({ promptIds: Int32Array.of(9, 8, 7, 6), sampling: { ...GREEDY, temperature: 1, seed: "5" } }),
      request({ promptIds: new Array(400).fill(11), maxNewTokens: 6, topLogprobs: 2 }),
    ];
    const all = await Promise.all(asked.map((each) => told(engine.generate(each))));
    for (const [i, each] of asked.entries()) {
      const { ids, end } = reference(each);
      expect(all[i]).toMatchObject({ ids, end });
      expect(all[i]?.types.at(-1)).toBe("done");
    }
    expect(all[2]?.types.filter((type) => type === "prefill").length).toBeGreaterThan(1);
  });

  test("loading another one replaces it: running and waiting requests are told", async () => {
    const engine = await loaded({ maxBatch: 1 });
    const running = rejection(told(engine.generate(long())));
    const waiting = rejection(told(engine.generate(long())));
    const second = await engine.load(spec({ model: join(goldenRoot("dense"), "qwen2-f32") }));
    expect((await running).kind).toBe("not_ready");
    expect((await waiting).kind).toBe("not_ready");
    expect(second.family).toBe("qwen2");
    expect((await told(engine.generate(request()))).end).toBe("length");
  });

  test("a second load while one is running is refused, and does not disturb it", async () => {
    const engine = spawn();
    const first = engine.load(spec());
    expect((await rejection(engine.load(spec()))).message).toContain("another load is running");
    expect((await first).family).toBe("llama");
    expect(engine.status.state).toBe("ready");
  });

  test("handles do not grow with loads and requests", async () => {
    const engine = await loaded();
    const once = async () => {
      await told(engine.generate(request()));
      await idle(engine);
      return (await engine.stats()).liveArrays;
    };
    const alive = await once();
    for (let i = 0; i < 3; i++) {
      await engine.load(spec());
      expect(await once()).toBe(alive);
    }
  });
});

describe("a load that fails", () => {
  const broken = mkdtempSync(join(tmpdir(), "broken-model-"));
  const copy = (name: string, spoil: (dir: string) => void) => {
    const dir = join(broken, name);
    cpSync(folder, dir, { recursive: true });
    spoil(dir);
    return dir;
  };
  const cases: readonly (readonly [string, () => Partial<LoadSpec>, string])[] = [
    ["no such folder", () => ({ model: join(broken, "none") }), "none"],
    [
      "weights cut short",
      () => ({ model: copy("cut", (dir) => truncateSync(join(dir, "model.safetensors"), 9000)) }),
      "model.safetensors",
    ],
    [
      "a config that is no JSON",
      () => ({ model: copy("json", (dir) => writeFileSync(join(dir, "config.json"), "{")) }),
      "config.json",
    ],
    [
      "an unknown family",
      () => ({
        model: copy("family", (dir) => writeFileSync(join(dir, "config.json"), '{"model_type":"unheard"}')),
      }),
      "unheard",
    ],
    [
      "a config that asks for more layers than there are",
      () => ({
        model: copy("layers", (dir) => {
          const config = JSON.parse(readFileSync(join(dir, "config.json"), "utf8"));
          writeFileSync(join(dir, "config.json"), JSON.stringify({ ...config, num_hidden_layers: 4 }));
        }),
      }),
      "is missing",
    ],
    [
      "a config that asks for fewer layers",
      () => ({
        model: copy("fewer", (dir) => {
          const config = JSON.parse(readFileSync(join(dir, "config.json"), "utf8"));
          writeFileSync(join(dir, "config.json"), JSON.stringify({ ...config, num_hidden_layers: 2 }));
        }),
      }),
      "no place in this model",
    ],
    ["a cache that the model does not allow", () => ({ kvBits: 8 }), "--kv-bits 8"],
  ];

  test("each is a clean rejection that frees everything, and the engine can load again", async () => {
    const engine = spawn();
    const empty = (await engine.stats()).liveArrays;
    expect((await rejection(told(engine.generate(request())))).kind).toBe("not_ready");
    for (const [name, part, text] of cases) {
      const error = await rejection(engine.load(spec(part())));
      expect({ name, kind: error.kind, message: error.message }).toEqual({
        name,
        kind: name === "no such folder" ? "load_refused" : "load",
        message: expect.stringContaining(text),
      });
      expect(engine.status).toMatchObject({ state: "failed", error: { kind: error.kind } });
      expect({ name, live: (await engine.stats()).liveArrays }).toEqual({ name, live: empty });
      expect((await rejection(told(engine.generate(request())))).kind).toBe("not_ready");
    }
    await engine.load(spec());
    expect((await told(engine.generate(request()))).end).toBe("length");
    rmSync(broken, { recursive: true });
  });
});

describe("cancel", () => {
  test("by leaving the loop", async () => {
    const engine = await loaded();
    const left = await told(engine.generate(long()), (_, ids) => ids.length >= 3);
    expect(left.end).toBe("left");
    await idle(engine);
    expect((await engine.stats()).requestsDone).toBe(1);
  });

  test("by signal while decoding: the loop ends with `cancelled`", async () => {
    const engine = await loaded();
    const abort = new AbortController();
    const asked = long();
    const { ids, end } = await told(engine.generate(asked, abort.signal), (_, sofar) => {
      if (sofar.length === 3) abort.abort();
      return false;
    });
    expect(end).toBe("cancelled");
    expect(ids.length).toBeGreaterThanOrEqual(3);
    expect(ids.length).toBeLessThan(2000);
    expect(ids).toEqual(reference({ ...asked, maxNewTokens: ids.length }).ids);
  });

  test("by signal during prefill", async () => {
    const engine = await loaded();
    const abort = new AbortController();
    const { ids, end, types } = await told(
      engine.generate(long({ promptIds: new Array(1200).fill(5) }), abort.signal),
      (event) => {
        if (event.type === "prefill") abort.abort();
        return false;
      },
    );
    expect(end).toBe("cancelled");
    // The machine may be fast enough for a last chunk before the cancel is seen.
    expect(ids.length).toBeLessThan(40);
    expect(types[0]).toBe("prefill");
  });

  test("while queued; the one that runs is not disturbed", async () => {
    const engine = await loaded({ maxBatch: 1 });
    // Long: the waiting one must not be reached while this thread is between its two messages.
    const asked = request({ maxNewTokens: 500 });
    const running = told(engine.generate(asked));
    const abort = new AbortController();
    const waiting = told(engine.generate(long(), abort.signal));
    abort.abort();
    expect(await waiting).toEqual({ ids: [], types: ["done"], end: "cancelled" });
    expect(await running).toMatchObject(reference(asked));
  });

  test("before it began: nothing is run, however late this thread comes to its next message", async () => {
    const engine = await loaded();
    const { port } = engine as unknown as { port: MessagePort };
    const send = port.postMessage.bind(port);
    port.postMessage = (message: unknown) => {
      send(message);
      Bun.sleepSync(20);
    };
    for (const asked of [long(), long({ promptIds: new Array(600).fill(5) })]) {
      const { ids, end } = await told(engine.generate(asked, AbortSignal.abort()));
      expect({ ids, end }).toEqual({ ids: [], end: "cancelled" });
    }
    const check = { id: "check", promptIds: [1, 2], ids: [3], sampling: GREEDY };
    expect((await rejection(engine.replay(check, AbortSignal.abort()))).kind).toBe("cancelled");
    expect((await engine.stats()).steps).toBe(0);
  });

  test("a signal that lives on keeps no listener of what has ended", async () => {
    const engine = await loaded();
    const abort = new AbortController();
    let listening = 0;
    const { signal } = abort;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = (...args: Parameters<typeof add>) => {
      listening++;
      add(...args);
    };
    signal.removeEventListener = (...args: Parameters<typeof remove>) => {
      listening--;
      remove(...args);
    };
    for (let i = 0; i < 3; i++) await told(engine.generate(request({ maxNewTokens: 1 }), signal));
    await told(engine.generate(long(), signal), () => true);
    expect(listening).toBe(0);
  });
});

test("a living id is refused, and the first request under it goes on", async () => {
  const engine = await loaded();
  const asked = request({ maxNewTokens: 30 });
  const first = told(engine.generate(asked));
  expect((await rejection(told(engine.generate({ ...asked })))).kind).toBe("invalid_request");
  expect(await first).toMatchObject(reference(asked));
});

describe("the end", () => {
  test("shutdown with time lets rows end, refuses what waits, and ends the thread", async () => {
    const engine = await loaded({ maxBatch: 1 });
    const asked = request({ maxNewTokens: 500 });
    const started = Promise.withResolvers<void>();
    const running = told(engine.generate(asked), () => {
      started.resolve();
      return false;
    });
    const waiting = rejection(told(engine.generate(long())));
    await started.promise;
    const down = engine.shutdown(30_000);
    expect(await running).toMatchObject(reference(asked));
    expect((await waiting).kind).toBe("shutdown");
    await down;
    expect((await rejection(told(engine.generate(request())))).kind).toBe("shutdown");
    expect((await rejection(engine.load(spec()))).kind).toBe("shutdown");
    expect((await rejection(engine.stats())).kind).toBe("shutdown");
  });

  test("shutdown without time fails what runs", async () => {
    const engine = await loaded();
    const running = rejection(told(engine.generate(long())));
    await Promise.all([engine.shutdown(0), engine.shutdown(0)]);
    expect((await running).kind).toBe("shutdown");
    await engine.shutdown(0);
  });

  test("shutdown while loading", async () => {
    const engine = spawn();
    const loading = rejection(engine.load(spec()));
    await engine.shutdown(0);
    expect((await loading).kind).toBe("shutdown");
  });

  test("a thread that dies is reported to everybody who waits", async () => {
    const engine = await loaded();
    const running = rejection(told(engine.generate(long())));
    const { worker } = engine as unknown as { worker: Worker };
    await new Promise((resolve) => setTimeout(resolve, 20));
    const stats = rejection(
      (async () => {
        // A question that is still open when the thread goes.
        for (;;) await engine.stats();
      })(),
    );
    void worker.terminate();
    expect((await running).message).toContain("engine thread");
    expect((await stats).message).toContain("engine thread");
    expect(engine.status.state).toBe("failed");
    expect((await rejection(engine.load(spec()))).kind).toBe("shutdown");
    await engine.shutdown(1000);
  });

  test("a thread that cannot start is reported as well", async () => {
    const engine = spawn("/no/such/folder");
    const loading = await rejection(engine.load(spec()));
    expect(loading.message).toContain("cannot load");
    expect((await rejection(engine.stats())).kind).toBe("shutdown");
  });
});

test("threads are those of the load, and the usual ones again for a load without a wish", async () => {
  openTestMlx();
  const usual = cpuThreads();
  try {
    for (const threads of [1, usual + 1, null]) {
      await loaded({ threads });
      expect(cpuThreads()).toBe(threads ?? usual);
    }
  } finally {
    setCpuThreads(null);
  }
});
