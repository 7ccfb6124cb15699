/** Models come and go in one engine thread: what a load, its cancel and an unload leave behind. */
import { afterEach, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type EngineClient, EngineError } from "../../src/engine/client.ts";
import { nativeFolder } from "../../src/engine/embedded/files.ts";
import { contextNote, fittingWindow } from "../../src/engine/fitting-window.ts";
import { DEFAULT_SPECULATION, type LoadSpec, NO_SPECULATION } from "../../src/engine/protocol.ts";
import { spawnEngine } from "../../src/engine/spawn.ts";
import { goldenRoot } from "../support/golden.ts";
import { request } from "./tiny.ts";

setDefaultTimeout(60_000);

const llama = join(goldenRoot("dense"), "llama-f32");
const engines: EngineClient[] = [];
const folders: string[] = [];
afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.shutdown(0)));
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function spawn(): EngineClient {
  const engine = spawnEngine(nativeFolder());
  engines.push(engine);
  return engine;
}

function spec(part: Partial<LoadSpec> = {}): LoadSpec {
  const limits = { kvBits: 0, contextWindow: null, threads: null, maxBatch: 2, maxQueue: 8 } as const;
  return { model: llama, offline: true, speculation: NO_SPECULATION, ...limits, ...part };
}

async function rejection(promise: Promise<unknown>): Promise<EngineError> {
  const error = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (error instanceof EngineError) return error;
  throw new Error("no EngineError was thrown");
}

async function idsOf(engine: EngineClient, maxNewTokens = 12): Promise<number[]> {
  const ids: number[] = [];
  for await (const event of engine.generate(request({ maxNewTokens }))) {
    if (event.type === "tokens") ids.push(...event.ids);
  }
  return ids;
}

test("an unload frees every array, whatever the model drafted with; loading again gives the same text", async () => {
  const engine = spawn();
  const empty = await engine.stats();
  const texts: number[][] = [];
  for (const mode of ["lookup", "baseline", "lookup"] as const) {
    await engine.load(spec({ speculation: { ...DEFAULT_SPECULATION, mode } }));
    texts.push(await idsOf(engine));
    expect((await engine.stats()).liveArrays).toBeGreaterThan(empty.liveArrays);
    await engine.unload();
    await engine.unload();
    expect(engine.status).toEqual({ state: "no_model" });
    const { liveArrays, mlxActiveBytes } = await engine.stats();
    expect({ mode, liveArrays, mlxActiveBytes }).toEqual({
      mode,
      liveArrays: empty.liveArrays,
      mlxActiveBytes: empty.mlxActiveBytes,
    });
  }
  expect(texts[1]).toEqual(texts[0]);
  expect(texts[2]).toEqual(texts[0]);
});

test("rows that run when the model goes fail, and say why", async () => {
  const engine = spawn();
  await engine.load(spec());
  const started = Promise.withResolvers<void>();
  const running = rejection(
    (async () => {
      for await (const event of engine.generate(request({ maxNewTokens: 2000 }))) {
        if (event.type === "tokens") started.resolve();
      }
    })(),
  );
  await started.promise;
  await engine.unload();
  expect(await running).toMatchObject({ kind: "not_ready", message: "the model was unloaded" });
  expect((await rejection(idsOf(engine))).kind).toBe("not_ready");
});

test("a load is cancelled between two tensors, frees what it read, and the next one works", async () => {
  const engine = spawn();
  const empty = (await engine.stats()).liveArrays;
  let cancelled = false;
  const error = await rejection(
    engine.load(spec(), ({ phase, fraction }) => {
      if (phase !== "load" || cancelled || fraction === null) return;
      cancelled = true;
      engine.cancelLoad(false);
    }),
  ).catch(() => null);
  // The machine may be fast enough to read the whole model before the cancel arrives.
  if (error !== null) {
    expect(error.kind).toBe("load_cancelled");
    expect(engine.status).toMatchObject({ state: "failed" });
    expect((await engine.stats()).liveArrays).toBe(empty);
  }
  const early = rejection(engine.load(spec()));
  engine.cancelLoad(false);
  expect((await early).kind).toBe("load_cancelled");
  expect((await engine.stats()).liveArrays).toBe(empty);
  await engine.load(spec());
  expect(await idsOf(engine)).toHaveLength(12);
});

test("a question is answered and a second load refused while one runs; an unload waits for nobody", async () => {
  const engine = spawn();
  const loading = engine.load(spec());
  const second = rejection(engine.load(spec()));
  const unload = rejection(engine.unload());
  expect((await second).message).toContain("another load");
  expect((await unload).message).toContain("cancel it first");
  expect((await engine.stats()).liveArrays).toBeGreaterThanOrEqual(0);
  await loading;
});

test("an examination touches nothing: names that mean nothing, foreign code, missing drafters", async () => {
  const engine = spawn();
  const model = await engine.load(spec());
  const code = mkdtempSync(join(tmpdir(), "foreign-code-"));
  folders.push(code);
  cpSync(llama, code, { recursive: true });
  writeFileSync(join(code, "config.json"), '{"model_type":"unheard","auto_map":{"AutoModel":"modeling.Model"}}');
  const auto = { ...DEFAULT_SPECULATION };
  const refused: [Partial<LoadSpec>, string][] = [
    [{ model: "/no/such/folder" }, "no model at"],
    [{ model: "no-such-name" }, 'no model "no-such-name"'],
    [{ model: "some/where" }, "offline"],
    [{ model: code }, "Python code"],
    [{ speculation: { ...auto, mode: "dspark" } }, "no dspark drafter"],
    [{ speculation: { ...auto, drafter: "/no/such/drafter" } }, "no model at"],
  ];
  for (const [part, text] of refused) {
    const error = await rejection(engine.examine(spec(part)));
    expect({ kind: error.kind, message: error.message }).toEqual({
      kind: "load_refused",
      message: expect.stringContaining(text),
    });
    expect(engine.status).toEqual({ state: "ready", model });
  }
  await engine.examine(spec());
  // Not here, but it may be fetched: judged when it is there.
  await engine.examine(spec({ model: "some/where", offline: false }));
});

test("a name that means nothing is a refusal when it is loaded, too", async () => {
  const engine = spawn();
  expect((await rejection(engine.load(spec({ model: "no-such-name" })))).kind).toBe("load_refused");
});

test("a context that would not fit is said, with one that does", () => {
  const gb = 1e9;
  const model = { resident: 8 * gb, kvBytesPerToken: 65536, rows: 1 };
  expect(contextNote(model, 32_768, 20 * gb)).toBeNull();
  expect(contextNote(model, 262_144, 20 * gb)).toContain("a context window of 147456 fits");
  expect(contextNote({ ...model, resident: 19 * gb }, 8192, 20 * gb)).toContain("no useful context fits");
});

test("the window that fits is a multiple of 8192 and never below it", () => {
  const gb = 1e9;
  expect(fittingWindow({ resident: 8 * gb, kvBytesPerToken: 65536, rows: 1 }, 20 * gb)).toBe(
    Math.floor((0.9 * 20 * gb - 8 * gb - (512 << 20)) / 65536 / 8192) * 8192,
  );
  const alone = fittingWindow({ resident: 8 * gb, kvBytesPerToken: 65536, rows: 1 }, 20 * gb);
  expect(fittingWindow({ resident: 8 * gb, kvBytesPerToken: 65536, rows: 2 }, 20 * gb)).toBe(alone - 8192);
  expect(fittingWindow({ resident: 30 * gb, kvBytesPerToken: 65536, rows: 1 }, 20 * gb)).toBe(8192);
  expect(fittingWindow({ resident: 0, kvBytesPerToken: 0, rows: 1 }, gb)).toBe(Number.POSITIVE_INFINITY);
});
