/** A server that can load and unload, around the scripted engine. */
import type { GenerateRequest } from "../../../src/engine/protocol.ts";
import { NO_SPECULATION } from "../../../src/engine/protocol.ts";
import { ModelSlot } from "../../../src/server/admin/model-slot.ts";
import { startServer } from "../../../src/server/listen.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "../../../src/server/options.ts";
import { ByteText } from "../byte-text.ts";
import { type Script, ScriptedEngine, writes } from "../scripted-engine.ts";

export interface AdminHarness extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly engine: ScriptedEngine;
  readonly slot: ModelSlot;
  /** The text sides that were read, one a load. */
  readonly texts: ByteText[];
  readonly log: string[];
  /** What reading a text side does first. */
  reading: () => Promise<void>;
  get(path: string, init?: RequestInit): Promise<Response>;
  json(path: string, init?: RequestInit): Promise<unknown>;
  post(path: string, body?: unknown, init?: RequestInit): Promise<Response>;
}

const CATALOGUE = {
  models: [
    { id: "tiny", weight_bytes: 2_000_000_000 },
    { id: "absent", weight_bytes: null },
  ],
  installed: [{ repo: "org/tiny", path: "/somewhere/tiny", kind: "model" }],
  disk: { total_bytes: 1, total: "1 B" },
  model_dirs: ["/somewhere"],
};

/** Starts empty unless `loaded`. */
export async function adminHarness(
  script: (request: GenerateRequest) => Script = () => writes("Hello."),
  options: Partial<ServerOptions> = {},
  { loaded = true, host = "127.0.0.1", insecure = false } = {},
): Promise<AdminHarness> {
  const engine = new ScriptedEngine(script);
  engine.status = { state: "no_model" };
  const texts: ByteText[] = [];
  const log: string[] = [];
  const say = (line: string) => log.push(line);
  const limits = { offline: true, kvBits: 0, contextWindow: null, threads: null, maxBatch: 4, maxQueue: 8 } as const;
  const h = { reading: () => Promise.resolve() };
  const loadText = async () => {
    await h.reading();
    const text = new ByteText();
    texts.push(text);
    return text;
  };
  const slot = new ModelSlot({ engine, loadText, log: say });
  const server = startServer({
    engine,
    text: () => slot.text,
    options: { ...DEFAULT_SERVER_OPTIONS, version: "9.9.9", ...options },
    host,
    port: 0,
    insecure,
    log: say,
    admin: {
      slot,
      defaults: { spec: { ...limits, speculation: NO_SPECULATION }, warmup: true },
      catalogue: () => Promise.resolve(CATALOGUE),
      doctor: () => Promise.resolve({ ok: true, problems: [], environment: { version: "9.9.9" } }),
    },
  });
  if (loaded) {
    await slot.load({
      spec: { ...limits, model: "first", speculation: NO_SPECULATION },
      force: false,
      warmup: false,
    });
  }
  const get = (path: string, init: RequestInit = {}) => fetch(server.url + path, init);
  return Object.assign(h, {
    url: server.url,
    port: server.port,
    engine,
    slot,
    texts,
    log,
    get,
    json: async (path: string, init: RequestInit = {}): Promise<unknown> => (await get(path, init)).json(),
    post: (path: string, body?: unknown, init: RequestInit = {}) =>
      get(path, { method: "POST", ...(body !== undefined && { body: JSON.stringify(body) }), ...init }),
    [Symbol.asyncDispose]: () => server.stop(0),
  });
}

export const CHAT = { messages: [{ role: "user", content: "hi" }] };
