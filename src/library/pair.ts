/**
 * A loaded target with its drafter, on an engine thread of its own. Generations on one pair are rows of one batch. An
 * idle pair does not keep the process alive; disposing of it ends the thread.
 */
import type { EngineClient } from "../engine/client.ts";
import { nativeFolder } from "../engine/embedded/files.ts";
import type { EngineStats, GenerateRequest, ModelInfo, RequestSpeculation } from "../engine/protocol.ts";
import { spawnEngine } from "../engine/spawn.ts";
import {
  type ChatTemplate,
  type LooseMessage,
  PromptError,
  type RenderOptions,
  TemplateError,
  TextModel,
  type TextTokenizer,
  type ToolDefinition,
} from "../text/index.ts";
import { DisposedError, RequestError } from "./errors.ts";
import type { Mode } from "./events.ts";
import { Generation } from "./generation.ts";
import { checkKeys, type GenerateOptions, inRange, KNOWN, type LoadOptions, loadSpec, samplingOf } from "./options.ts";

/** What to continue from. */
export type Input =
  /** One user message, through the chat template. */
  | string
  /** Raw text, without a template. */
  | { readonly prompt: string }
  | { readonly tokens: ArrayLike<number> }
  | { readonly messages: readonly LooseMessage[]; readonly tools?: readonly ToolDefinition[] };

const DEFAULT_MAX_NEW_TOKENS = 128;
/** A thread in the middle of a long call answers only after it. */
const DISPOSE_MS_MAX = 5000;

export class Pair implements AsyncDisposable {
  private readonly running = new Set<Generation>();
  private ending: Promise<void> | null = null;

  /** For `loadPair`. */
  constructor(
    private readonly engine: EngineClient,
    private readonly model: ModelInfo,
    private readonly text: TextModel,
  ) {}

  get target() {
    const { id, dir, family, vocabSize, contextWindow, quantization, weightBytes } = this.model;
    return { name: id, dir, modelType: family, vocabSize, contextWindow, quantization, bytes: weightBytes };
  }

  /** null: nothing but the target itself drafts. */
  get drafter(): { readonly name: string; readonly kind: Mode; readonly bytes: number } | null {
    const { drafter, drafting, mode } = this.model;
    return drafter === null ? null : { name: drafter, kind: mode, bytes: drafting?.drafterBytes ?? 0 };
  }

  get mode(): Mode {
    return this.model.mode;
  }

  /** Device and numeric path, e.g. "cpu (fused avx2, float32)". */
  get backend(): string {
    return this.model.backend;
  }

  /** Things worth knowing about this load. */
  get notes(): readonly string[] {
    return this.model.notes;
  }

  get tokenizer(): TextTokenizer {
    return this.text.tokenizer;
  }

  /** null: the model has no chat template and takes raw prompts only. */
  get template(): ChatTemplate | null {
    return this.text.template;
  }

  get disposed(): boolean {
    return this.ending !== null;
  }

  /** Ids of a conversation. Rejects with `RequestError` when the template refuses it. */
  async encodeChat(
    messages: readonly LooseMessage[],
    options: RenderOptions & { readonly tools?: readonly ToolDefinition[] } = {},
  ): Promise<Int32Array> {
    const { tools, ...render } = options;
    const conversation = { messages, ...(tools !== undefined && { tools }) };
    return Int32Array.from(await asRequestErrors(async () => (await this.text.encodeChat(conversation, render)).ids));
  }

  stats(): Promise<EngineStats> {
    return this.disposed ? Promise.reject(new DisposedError()) : this.engine.stats();
  }

  /** Cancels what runs, frees the model and ends the thread; again is a no-op. */
  dispose(): Promise<void> {
    this.ending ??= this.end();
    return this.ending;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  private async end(): Promise<void> {
    const generations = [...this.running];
    for (const generation of generations) generation.cancel();
    const ended = Promise.allSettled(generations.map((generation) => generation.result())).then(() =>
      this.engine.shutdown(0),
    );
    const patience = Promise.withResolvers<void>();
    const timer = setTimeout(patience.resolve, DISPOSE_MS_MAX);
    await Promise.race([ended, patience.promise]);
    clearTimeout(timer);
  }

  /** Starts a generation at once. For the functions of `index.ts`, which have checked the keys of `options`. */
  start(
    input: Input,
    options: GenerateOptions,
    speculation: RequestSpeculation | undefined,
    verifyLossless = false,
  ): Generation {
    if (this.disposed) throw new DisposedError();
    const sampling = samplingOf(options);
    const { logprobs, priority = 0, ignoreEos = false, stop = [] } = options;
    const maxNewTokens = inRange(
      "maxNewTokens",
      options.maxNewTokens ?? DEFAULT_MAX_NEW_TOKENS,
      1,
      Number.MAX_SAFE_INTEGER,
    );
    const topLogprobs = logprobs === undefined ? null : inRange("logprobs", logprobs, 0, 20);
    const stops = typeof stop === "string" ? [stop] : stop;
    if (stops.includes("")) throw new TypeError("a stop string must not be empty");
    if (verifyLossless && sampling.temperature > 0 && sampling.seed === null) {
      throw new TypeError("verifyLossless needs temperature 0 or a seed: without a seed no two runs draw alike");
    }
    const id = crypto.getRandomValues(Buffer.alloc(4)).toString("hex");
    const eosIds = [...new Set([...this.model.eosIds, ...this.text.eosIds])];
    const request = (promptIds: Int32Array): GenerateRequest => ({
      ...{ id, promptIds, maxNewTokens, sampling, topLogprobs, priority },
      eosIds: ignoreEos ? [] : eosIds,
      ...(speculation !== undefined && { speculation }),
    });
    const generation = new Generation({
      id,
      engine: this.engine,
      text: this.text,
      signal: options.signal,
      prepare: async (signal) => ({
        request: request(await this.encode(input, signal)),
        ...{ stops, silentIds: new Set(eosIds), verifyLossless, inexactCaches: this.inexactCaches },
      }),
    });
    this.running.add(generation);
    const done = () => void this.running.delete(generation);
    generation.result().then(done, done);
    return generation;
  }

  /** The backend's bits depend on how many rows a forward has. */
  get inexactCaches(): boolean {
    return this.model.backend.startsWith("metal");
  }

  /** The engine behind the pair, for comparisons of runs. */
  get client(): EngineClient {
    return this.engine;
  }

  /** Ids of an input, as a generation reads it. Rejects with `RequestError`. */
  encode(input: Input, signal?: AbortSignal): Promise<Int32Array> {
    return asRequestErrors(async () => {
      if (typeof input === "object" && "tokens" in input) return Int32Array.from(input.tokens);
      if (typeof input === "object" && "prompt" in input)
        return Int32Array.from(this.text.encodeCompletion(input.prompt).ids);
      const conversation =
        typeof input === "string" ? { messages: [{ role: "user" as const, content: input }] } : input;
      return Int32Array.from((await this.text.encodeChat(conversation, {}, signal)).ids);
    });
  }
}

async function asRequestErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof PromptError || error instanceof TemplateError) {
      throw new RequestError(error.message, { cause: error });
    }
    throw error;
  }
}

/**
 * Loads a target with its drafter.
 * @param model registry id, repository, folder, `.gguf` file or `gguf:<owner>/<repo>/<file>`
 * @throws TypeError for an unknown option; rejects with `EngineError` for a model that cannot be loaded, with the
 * signal's reason when it aborts
 */
export function loadPair(model: string, options: LoadOptions = {}): Promise<Pair> {
  checkKeys(options, KNOWN.load);
  return load(model, options);
}

async function load(model: string, options: LoadOptions): Promise<Pair> {
  const { signal, onProgress } = options;
  signal?.throwIfAborted();
  const engine = spawnEngine(nativeFolder(), { holdsProcess: false });
  const aborted = Promise.withResolvers<never>();
  const abort = () => aborted.reject(signal?.reason);
  signal?.addEventListener("abort", abort, { once: true });
  try {
    const loading = engine.load(loadSpec(model, options), onProgress);
    // Once given up, how the load ends is of no interest.
    void loading.catch(() => undefined);
    const info = await Promise.race([loading, aborted.promise]);
    const text = await Promise.race([TextModel.load(info.dir), aborted.promise]);
    return new Pair(engine, info, text);
  } catch (error) {
    await engine.shutdown(0);
    throw error;
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}
