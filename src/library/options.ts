/**
 * Options of the library and what the engine gets for them. Keys are the flags of the command line in camelCase, with
 * their meaning; defaults are those of the modules that own them. An unknown key is a `TypeError` that names the nearest.
 */
import {
  DEFAULT_SPECULATION,
  type LoadProgress,
  type LoadSpec,
  type RequestSpeculation,
  type SamplingParams,
  type SpeculationSpec,
} from "../engine/protocol.ts";
import { nearestNames } from "../hub/names.ts";
import type { Mode } from "./events.ts";

export interface LoadOptions {
  /** `false`: none. Absent: the one that is known for the target. */
  readonly drafter?: string | false;
  readonly mode?: SpeculationSpec["mode"];
  /** Drafts per round; ≤ 0: the full block; `auto` (default): chosen round by round. */
  readonly maxDraft?: number | "auto";
  readonly confidenceThreshold?: number;
  /** Drafts from earlier text beside a drafter. Absent: the pair's default. */
  readonly lookupDrafts?: boolean;
  readonly lookupLongDraft?: number;
  readonly drafterBits?: SpeculationSpec["drafterBits"];
  readonly drafterWindow?: number;
  readonly kvBits?: 0 | 4 | 8;
  /** Most prompt and completion tokens. Absent: the model's own. */
  readonly contextWindow?: number;
  /** Generations computed at the same time (default 4); more wait. */
  readonly maxBatch?: number;
  /** CPU threads. Absent: all usable ones. */
  readonly threads?: number;
  /** Never connect. */
  readonly offline?: boolean;
  readonly onProgress?: (progress: LoadProgress) => void;
  readonly signal?: AbortSignal;
}

export interface GenerateOptions {
  /** Default 128. */
  readonly maxNewTokens?: number;
  /** 0 (default) is greedy. */
  readonly temperature?: number;
  readonly topP?: number;
  readonly topK?: number;
  readonly minP?: number;
  /** The same seed, input and options give the same tokens, in every mode. */
  readonly seed?: bigint | number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly repetitionPenalty?: number;
  /** Token id → added to its logit. */
  readonly logitBias?: Readonly<Record<number, number>>;
  readonly stop?: string | readonly string[];
  readonly ignoreEos?: boolean;
  /** Alternatives reported with every token, 0…20. Absent: no log-probabilities. */
  readonly logprobs?: number;
  /** 1: behind everything of priority 0. */
  readonly priority?: 0 | 1;
  readonly signal?: AbortSignal;
}

export interface SpeculativeOptions extends GenerateOptions {
  readonly maxDraft?: number | "auto";
  readonly confidenceThreshold?: number;
  readonly lookupDrafts?: boolean;
  readonly lookupLongDraft?: number;
  /** Reads the text again afterwards, a token at a time: `stats.lossless`. Greedy, or with a seed. */
  readonly verifyLossless?: boolean;
}

export interface LookupOptions extends GenerateOptions {
  /** Longest draft on a long match. */
  readonly longDraft?: number;
  readonly verifyLossless?: boolean;
}

/** Keys that exist, checked against the types by the compiler. */
type Keys<T> = { readonly [K in keyof Required<T>]: true };

const LOAD_KEYS: Keys<LoadOptions> = {
  ...{ drafter: true, mode: true, maxDraft: true, confidenceThreshold: true, lookupDrafts: true },
  ...{ lookupLongDraft: true, drafterBits: true, drafterWindow: true, kvBits: true, contextWindow: true },
  ...{ maxBatch: true, threads: true, offline: true, onProgress: true, signal: true },
};
const GENERATE_KEYS: Keys<GenerateOptions> = {
  ...{ maxNewTokens: true, temperature: true, topP: true, topK: true, minP: true, seed: true, presencePenalty: true },
  ...{ frequencyPenalty: true, repetitionPenalty: true, logitBias: true, stop: true, ignoreEos: true },
  ...{ logprobs: true, priority: true, signal: true },
};
const SPECULATIVE_KEYS: Keys<SpeculativeOptions> = {
  ...GENERATE_KEYS,
  ...{ maxDraft: true, confidenceThreshold: true, lookupDrafts: true, lookupLongDraft: true, verifyLossless: true },
};
const LOOKUP_KEYS: Keys<LookupOptions> = { ...GENERATE_KEYS, longDraft: true, verifyLossless: true };

export const KNOWN = { load: LOAD_KEYS, generate: GENERATE_KEYS, speculative: SPECULATIVE_KEYS, lookup: LOOKUP_KEYS };

/** @throws TypeError */
export function checkKeys(options: object, known: Readonly<Record<string, true>>): void {
  for (const key of Object.keys(options)) {
    if (Object.hasOwn(known, key)) continue;
    const [near] = nearestNames(key, Object.keys(known));
    throw new TypeError(`unknown option '${key}'${near === undefined ? "" : `; did you mean '${near}'?`}`);
  }
}

const DEFAULT_MAX_BATCH = 4;
/** A program waits for its own generations; it is not refused. */
const QUEUE_MAX = 1_000_000;

export function loadSpec(model: string, options: LoadOptions): LoadSpec {
  const { drafter, mode, contextWindow, threads } = options;
  const chosen = mode ?? (drafter === false ? "lookup" : DEFAULT_SPECULATION.mode);
  return {
    model,
    offline: options.offline ?? false,
    kvBits: options.kvBits ?? 0,
    contextWindow: contextWindow ?? null,
    threads: threads ?? null,
    maxBatch: options.maxBatch ?? DEFAULT_MAX_BATCH,
    maxQueue: QUEUE_MAX,
    speculation: {
      mode: chosen,
      drafter: drafter === undefined || drafter === false ? null : drafter,
      maxDraft: options.maxDraft ?? DEFAULT_SPECULATION.maxDraft,
      confidenceThreshold: options.confidenceThreshold ?? DEFAULT_SPECULATION.confidenceThreshold,
      drafterBits: options.drafterBits ?? DEFAULT_SPECULATION.drafterBits,
      lookupDrafts: options.lookupDrafts ?? DEFAULT_SPECULATION.lookupDrafts,
      lookupLongDraft: options.lookupLongDraft ?? DEFAULT_SPECULATION.lookupLongDraft,
      drafterWindow: options.drafterWindow ?? DEFAULT_SPECULATION.drafterWindow,
    },
  };
}

/** @throws TypeError for a number that is none, or outside of its range */
export function samplingOf(options: GenerateOptions): SamplingParams {
  const { seed, logitBias = {} } = options;
  return {
    temperature: inRange("temperature", options.temperature ?? 0, 0, 2),
    topP: inRange("topP", options.topP ?? 1, Number.MIN_VALUE, 1),
    topK: inRange("topK", options.topK ?? 0, 0, Number.MAX_SAFE_INTEGER),
    minP: inRange("minP", options.minP ?? 0, 0, 1),
    presencePenalty: inRange("presencePenalty", options.presencePenalty ?? 0, -2, 2),
    frequencyPenalty: inRange("frequencyPenalty", options.frequencyPenalty ?? 0, -2, 2),
    repetitionPenalty: inRange("repetitionPenalty", options.repetitionPenalty ?? 1, Number.MIN_VALUE, 100),
    logitBias: Object.entries(logitBias).map(([id, bias]) => [Number(id), inRange("logitBias", bias, -100, 100)]),
    seed: seed === undefined ? null : BigInt.asUintN(64, BigInt(seed)).toString(),
  };
}

/** @throws TypeError */
export function inRange(name: string, value: number, min: number, max: number): number {
  if (typeof value !== "number" || !(value >= min && value <= max)) {
    throw new TypeError(`${name} must be a number from ${min} to ${max}, got ${String(value)}`);
  }
  return value;
}

/** undefined: as the pair was loaded. */
export function speculationOf(options: SpeculativeOptions): RequestSpeculation | undefined {
  const { maxDraft, confidenceThreshold, lookupDrafts, lookupLongDraft } = options;
  const wish = {
    ...(maxDraft !== undefined && { maxDraft }),
    ...(confidenceThreshold !== undefined && { confidenceThreshold }),
    ...(lookupDrafts !== undefined && { lookupDrafts }),
    ...(lookupLongDraft !== undefined && { lookupLongDraft }),
  };
  return Object.keys(wish).length === 0 ? undefined : { mode: "pair", ...wish };
}

export type { LoadProgress, Mode };
