/** A server that can load and unload, around the scripted engine. */
import type { GenerateRequest } from "../../../src/engine/protocol.ts";
import { NO_SPECULATION } from "../../../src/engine/protocol.ts";
import { examineMachine } from "../../../src/machine/doctor.ts";
import { ModelSlot } from "../../../src/server/admin/model-slot.ts";
import type { Catalogue } from "../../../src/server/admin/models-body.ts";
import { startServer } from "../../../src/server/listen.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "../../../src/server/options.ts";
import type { DoctorBody } from "../../../src/server/telemetry/doctor-body.ts";
import { ByteText } from "../byte-text.ts";
import { SCRIPTED_MODEL, type Script, ScriptedEngine, writes } from "../scripted-engine.ts";

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

const ROW: Omit<Catalogue["models"][number], "id" | "weight_bytes"> = {
  ...{ target: "org/tiny", mode: "lookup", dspark_drafter: null, dflash_drafter: null, speedup: null },
  ...{ ram: "~1 GB", ram_gb: 1, lookup_drafts: true, fits: true },
  ...{ target_installed: true, drafter_installed: false, ready: true, drafter_bytes: null, ceiling_tps: null },
};

const CATALOGUE: Catalogue = {
  models: [
    { ...ROW, id: "tiny", weight_bytes: 2_000_000_000 },
    { ...ROW, id: "absent", weight_bytes: null },
  ],
  installed: [
    {
      ...{ repo: "org/tiny", path: "/somewhere/tiny", kind: "model", source: "model_dirs" },
      ...{ size_bytes: 1, size: "1 B", registry_id: "tiny" },
    },
  ],
  disk: { total_bytes: 1, total: "1 B" },
  loaded: null,
  model_dirs: ["/somewhere"],
  bandwidth: null,
};

/** The examination of this very machine, without the libraries; once is enough. */
export function doctor(): Promise<DoctorBody> {
  examined ??= examine();
  return examined;
}

let examined: Promise<DoctorBody> | null = null;

async function examine(): Promise<DoctorBody> {
  const pinned = { mlx: "0", mlxC: "0" };
  const probe = () => Promise.resolve({ ok: false, error: "not tried" } as const);
  const report = await examineMachine({ version: "9.9.9", pinned, cacheFolder: import.meta.dir, probe });
  return {
    ...report,
    models: [{ id: "tiny", target: "org/tiny", ram_gb: 1, fits: true, state: "ready" }],
    model_dirs: { cache: "/somewhere", hub: "/somewhere", lmstudio: [], extra: [] },
  };
}

/** Starts empty unless `loaded`. */
export async function adminHarness(
  script: (request: GenerateRequest) => Script = () => writes("Hello."),
  options: Partial<ServerOptions> = {},
  { loaded = true, host = "127.0.0.1", insecure = false, model = SCRIPTED_MODEL } = {},
): Promise<AdminHarness> {
  const engine = new ScriptedEngine(script, model);
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
      doctor,
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
