/**
 * The typed messages between the main thread (sockets and text) and the engine thread (MLX and every array).
 * Plain structured-clonable values only; a token id is a number below the vocabulary size, times are milliseconds
 * unless the name says otherwise. The engine never sees text and the main thread never sees an array.
 */
import type { ConstraintSpec } from "../decoding/constraint.ts";
import type { ReplayStep } from "../decoding/replay.ts";
import type { SamplingParams, TokenLogprob } from "../decoding/sampling-params.ts";
import type { LogitDtype } from "../decoding/verdict.ts";
import type { GrammarMetrics } from "./grammar/metrics.ts";

export type { ConstraintSpec, GrammarMetrics, LogitDtype, ReplayStep, SamplingParams, TokenLogprob };

/** How to draft. */
export interface SpeculationSpec {
  /** `auto`: an explicit drafter's kind, else the registry's drafter for the target, else lookup. */
  readonly mode: "auto" | "dspark" | "dflash" | "lookup" | "baseline";
  /** Folder, repository or `gguf:…`; null: the registry's. */
  readonly drafter: string | null;
  /** Drafts per round; `auto` and null: chosen round by round; ≤ 0: the full block. */
  readonly maxDraft: number | "auto" | null;
  /** Drafts are cut where their joint confidence falls below it; 0: never. */
  readonly confidenceThreshold: number;
  /** The drafter's weights are packed to this at load; 0 keeps the file's. */
  readonly drafterBits: 0 | 2 | 3 | 4 | 5 | 6 | 8;
  /** Lookup drafts beside a drafter; null: the pair's default. */
  readonly lookupDrafts: boolean | null;
  /** Longest lookup draft on a long match. */
  readonly lookupLongDraft: number;
  /** Context rows that a drafter without a window of its own attends to; 0: all. */
  readonly drafterWindow: number;
}

/** No drafts at all. */
export const NO_SPECULATION: SpeculationSpec = {
  mode: "baseline",
  drafter: null,
  maxDraft: null,
  confidenceThreshold: 0,
  drafterBits: 4,
  lookupDrafts: null,
  lookupLongDraft: 32,
  drafterWindow: 4096,
};

/** The program's defaults. */
export const DEFAULT_SPECULATION: SpeculationSpec = { ...NO_SPECULATION, mode: "auto" };

/**
 * How one request drafts where that is not how the pair was loaded: comparisons in one process, calls of the library.
 * What is left out is as loaded.
 */
export interface RequestSpeculation {
  /** `pair`: the loaded mode; `lookup`: from the row's own text only; `baseline`: plain steps. */
  readonly mode: "pair" | "lookup" | "baseline";
  /** Drafter drafts per round; ≤ 0: the full block. */
  readonly maxDraft?: number | "auto";
  readonly confidenceThreshold?: number;
  /** Lookup drafts beside a drafter. */
  readonly lookupDrafts?: boolean;
  readonly lookupLongDraft?: number;
}

/** What drafting costs on this machine, measured, in ms; keys are rows of a verify and drafts of a block. */
export interface DraftingCosts {
  readonly verify: Readonly<Record<string, number>>;
  readonly drafter: Readonly<Record<string, number>> | number;
  /** Of a round, in neither curve. */
  readonly overhead: number;
  /** One plain step; null: not measured. */
  readonly plain: number | null;
  /** All but the drafter's: measured at a context of so many tokens, and what one more costs a verify of `key` rows. */
  readonly depth0: number;
  readonly depthSlope: Readonly<Record<string, number>> | null;
}

/** How a loaded pair drafts, for reports. */
export interface DraftingInfo {
  /** Drafts per round as loaded. */
  readonly maxDraft: number | "auto";
  /** Lookup drafts beside a drafter, or alone. */
  readonly lookupDrafts: boolean;
  readonly confidenceThreshold: number;
  /** Context rows that the drafter attends to; null: all, or no drafter. */
  readonly drafterWindow: number | null;
  /** Bytes of the drafter's own weights in memory. */
  readonly drafterBytes: number;
  /** null: not measured. */
  readonly costs: DraftingCosts | null;
}

/** What to load. Names are resolved on the engine thread by `src/hub/`. */
export interface LoadSpec {
  /** Registry id, repository, folder, `.gguf` file or `gguf:<owner>/<repo>/<file>`. */
  readonly model: string;
  /** Never connect: only what is on this machine. */
  readonly offline: boolean;
  /** Quantized KV cache: 0 keeps the activation dtype. */
  readonly kvBits: 0 | 4 | 8;
  /** Upper limit of prompt + completion tokens; null: the model's own; `auto`: of that, what fits into memory. */
  readonly contextWindow: number | "auto" | null;
  /** CPU worker threads; null: all usable CPUs. */
  readonly threads: number | null;
  readonly speculation: SpeculationSpec;
  /** Rows computed at the same time. */
  readonly maxBatch: number;
  /** Requests that may wait; more are refused. */
  readonly maxQueue: number;
}

/** Bytes of a model's weights by how often a step reads them (memory.md §8). */
export interface WeightFootprint {
  readonly totalBytes: number;
  /** Read by one decode step of one row. */
  readonly activeBytes: number;
  /** Of all routed experts. */
  readonly expertBytes: number;
  readonly embedBytes: number;
  /** 0: not a mixture of experts. */
  readonly experts: number;
  /** null: not a mixture, or the config does not say. */
  readonly expertsPerToken: number | null;
  /** True when experts count whole because it is not known how many a token takes. */
  readonly activeIsEstimate: boolean;
}

/** What was measured of this machine's memory. */
export interface MeasuredBandwidth {
  /** 1e9 bytes a second. */
  readonly gbS: number;
  /** ISO 8601. */
  readonly measuredAt: string;
  readonly method: string;
}

/** Facts of a loaded model, read from the model object, never from its name. */
export interface ModelInfo {
  /** Last path part of the target, as clients see it. */
  readonly id: string;
  /** The name that was asked for. */
  readonly requested: string;
  /** Folder with config and tokenizer files (after conversion, for GGUF). */
  readonly dir: string;
  readonly family: string;
  readonly mode: "baseline" | "lookup" | "dspark" | "dflash";
  /** Last path part of the drafter; null: none. */
  readonly drafter: string | null;
  /** null: nothing is drafted. */
  readonly drafting: DraftingInfo | null;
  readonly vocabSize: number;
  readonly contextWindow: number;
  /** End-of-sequence ids from generation_config.json / config.json (the tokenizer's own are added by the text side). */
  readonly eosIds: readonly number[];
  /** Sampling defaults of generation_config.json; absent keys are undefined. */
  readonly samplingDefaults: { readonly temperature?: number; readonly topP?: number; readonly topK?: number };
  /** Bytes of weights resident after load. */
  readonly weightBytes: number;
  readonly footprint: WeightFootprint;
  /** null: not measured yet on this machine. */
  readonly bandwidth: MeasuredBandwidth | null;
  /** Version of MLX. */
  readonly mlx: string;
  /** Bytes of KV state that one token adds. */
  readonly kvBytesPerToken: number;
  /** "cpu" or "metal", and the numeric path, e.g. "cpu (stock, float32)". */
  readonly backend: string;
  readonly quantization: string | null;
  /** Things worth telling the user at load (narrowed dtypes, requantized tensors…). */
  readonly notes: readonly string[];
}

export interface GenerateRequest {
  /** 8 hex digits, unique while the request lives; also shown to clients as `req`. */
  readonly id: string;
  readonly promptIds: readonly number[] | Int32Array;
  readonly maxNewTokens: number;
  readonly sampling: SamplingParams;
  /** Ids that end the row (included in the output ids, excluded from text by the receiver). Empty: ignore EOS. */
  readonly eosIds: readonly number[];
  /** null: none; otherwise this many top alternatives with every token (0…20). */
  readonly topLogprobs: number | null;
  /** 0 interactive, 1 background. */
  readonly priority: 0 | 1;
  /** Absent: as the pair was loaded. */
  readonly speculation?: RequestSpeculation;
  /** What the completion must be; absent or null: free text. Needs `eosIds`. */
  readonly constraint?: ConstraintSpec | null;
}

/** How a grammar did in one request. */
export interface GrammarStats {
  readonly kind: ConstraintSpec["kind"];
  readonly compileMs: number;
  /** The compiled grammar was there already. */
  readonly cached: boolean;
  /** Rows of logits that were masked. */
  readonly maskedRows: number;
  /** Drafts cut at an illegal token. */
  readonly cutDrafts: number;
  /** Accepted drafts that the grammar itself had proposed. */
  readonly forcedTokens: number;
  /** Waiting for masks, in ms. */
  readonly maskMs: number;
  /** JSON pointers of what is not enforced. */
  readonly relaxed: readonly string[];
}

/** A committed text, to be read again one token a forward on caches of its own (decoding.md §10). */
export interface ReplayRequest {
  /** As for `GenerateRequest`. */
  readonly id: string;
  readonly promptIds: readonly number[] | Int32Array;
  /** The completion. */
  readonly ids: readonly number[];
  /** As the text was chosen by; sampled text needs its seed. */
  readonly sampling: SamplingParams;
}

export interface ReplayReport {
  /** One for each id. */
  readonly steps: readonly ReplayStep[];
  /** Of the logits. */
  readonly dtype: LogitDtype;
}

/** `stop`: an EOS id; `length`: token or context limit; `cancelled`: `cancel` was received. */
export type FinishReason = "stop" | "length" | "cancelled";

/** Statistics of one finished request. Seconds are measured on the engine thread. */
export interface RequestStats {
  readonly mode: ModelInfo["mode"];
  readonly seed: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Verify rounds and plain steps behind the first token. */
  readonly rounds: number;
  /** Accepted drafts of each round and one more; what an EOS within a block dropped of them counts, too. */
  readonly acceptLengths: readonly number[];
  readonly drafted: number;
  readonly accepted: number;
  readonly lookupRounds: number;
  /** Plain steps taken because drafting did not pay. */
  readonly parkedRounds: number;
  readonly targetForwards: number;
  /** Draft cap in force, null where nothing is drafted. */
  readonly cap: number | null;
  /** What the cap's controller takes the chance of a draft to be; null: the cap is fixed. */
  readonly acceptance: number | null;
  /** Committed per ms of the last 16 rounds over that of the first 16, round 0 left out; null below 32 rounds. */
  readonly decayRatio: number | null;
  readonly queueSeconds: number;
  readonly prefillSeconds: number;
  readonly decodeSeconds: number;
  /** From the start of prefill to the first token. */
  readonly ttftSeconds: number;
  /** Absent: free text. */
  readonly grammar?: GrammarStats;
}

/** An error that crosses the thread border. `kind` decides status and exit code. */
export interface WireError {
  readonly kind:
    | "invalid_request"
    /** A load failed. */
    | "load"
    /** What was asked to be loaded is wrong or must not be loaded: asking again does not help. */
    | "load_refused"
    | "load_cancelled"
    | "queue_full"
    | "not_ready"
    | "shutdown"
    | "cancelled"
    | "internal";
  readonly message: string;
}

export type ToEngine =
  | { readonly type: "load"; readonly spec: LoadSpec }
  /** Honoured between two steps of a load: at the next byte of a download, the next tensor, the next measurement. */
  | { readonly type: "cancel_load"; readonly cleanup: boolean }
  /** Frees everything that the model has; rows that still run fail. */
  | { readonly type: "unload" }
  /** `cancelled`: given up before it was sent. In one message, so that no turn comes in between. */
  | { readonly type: "generate"; readonly request: GenerateRequest; readonly cancelled: boolean }
  | { readonly type: "replay"; readonly request: ReplayRequest; readonly cancelled: boolean }
  | { readonly type: "cancel"; readonly id: string }
  | { readonly type: "stats"; readonly seq: number }
  /** Stop admission, finish running rows for at most `drainMs`, then end the worker. */
  | { readonly type: "shutdown"; readonly drainMs: number };

/** Progress of a load. `fraction` in [0, 1] when known; `detail` is ready to print. */
export interface LoadProgress {
  readonly phase: "resolve" | "download" | "convert" | "load" | "warmup";
  readonly fraction: number | null;
  readonly bytesDone: number | null;
  readonly bytesTotal: number | null;
  readonly bytesPerSecond: number | null;
  readonly detail: string;
  /** In the phase of the same name. */
  readonly download?: DownloadFacts;
}

export interface DownloadFacts {
  readonly repo: string;
  /** The file that got the last bytes. */
  readonly file: string;
  readonly filesDone: number;
  readonly filesTotal: number;
  /** null: the rate is not known yet. */
  readonly etaSeconds: number | null;
  /** Of the bytes done, those of an earlier attempt. */
  readonly resumedBytes: number;
}

/** Counters of the engine thread, for tests, `/health` and `/metrics`. */
export interface EngineStats {
  readonly liveArrays: number;
  readonly activeRows: number;
  readonly queuedRows: number;
  readonly steps: number;
  readonly requestsDone: number;
  readonly mlxActiveBytes: number;
  readonly mlxPeakBytes: number;
  readonly mlxCacheBytes: number;
  /** Of all models that were loaded since the start. */
  readonly grammars: GrammarMetrics;
}

export interface TokenEvent {
  readonly id: string;
  /** Ids committed in this step, in order. */
  readonly ids: readonly number[];
  /** One per id when the request asked for them. */
  readonly logprobs: readonly TokenLogprob[] | null;
  /** The round that committed them; null: the first token, which belongs to none. */
  readonly round: RoundInfo | null;
}

/** One verify round or plain step of one row. */
export interface RoundInfo {
  /** `forced`: what the row's grammar says must follow. */
  readonly source: "drafter" | "lookup" | "forced" | "plain";
  readonly drafted: number;
  readonly accepted: number;
  /** Draft cap in force, null where nothing is drafted. */
  readonly cap: number | null;
  /** Since the row's tokens before. */
  readonly ms: number;
}

export type FromEngine =
  | { readonly type: "load_progress"; readonly progress: LoadProgress }
  | { readonly type: "loaded"; readonly model: ModelInfo }
  | { readonly type: "load_failed"; readonly error: WireError }
  | { readonly type: "unloaded" }
  | { readonly type: "prefill"; readonly id: string; readonly processed: number; readonly total: number }
  /** All rows of one step together. */
  | { readonly type: "tokens"; readonly batch: readonly TokenEvent[] }
  | { readonly type: "done"; readonly id: string; readonly reason: FinishReason; readonly stats: RequestStats }
  | { readonly type: "replayed"; readonly id: string; readonly report: ReplayReport }
  | { readonly type: "failed"; readonly id: string; readonly error: WireError }
  | { readonly type: "stats"; readonly seq: number; readonly stats: EngineStats }
  | { readonly type: "stopped" };
