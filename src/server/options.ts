/** Everything a server can be told at start, with the defaults of cli.md §4 in one table. */
import type { CallFamily, Effort } from "../text/index.ts";
import { DEFAULT_LIMITS, type TransportLimits } from "./http/limits.ts";

export interface ServerOptions {
  readonly version: string;
  /** Null: no key is asked for. */
  readonly apiKey: string | null;
  /** Further origins (`https://host:port`) that may read answers; `*` = all. Loopback origins always may. */
  readonly corsOrigins: readonly string[];
  /** Further accepted `Host` names on a loopback bind. */
  readonly allowHosts: readonly string[];
  /** True when the socket is bound to loopback: the `Host` header is then checked (DNS rebinding). */
  readonly loopbackBind: boolean;
  readonly maxBodyBytes: number;
  readonly defaultMaxTokens: number;
  readonly maxTokensCap: number;
  /** Server-wide sampling defaults; they win over the model's `generation_config.json`. */
  readonly samplingDefaults: { readonly temperature?: number; readonly topP?: number; readonly topK?: number };
  /** False: no thinking unless a request asks for it; undefined: the template's own default. A load may change it. */
  thinking: false | undefined;
  /** Of requests that name none; undefined: the template's own default. A load may change it. */
  reasoningEffort: Effort | undefined;
  /** How the model writes calls; undefined: as its template says. */
  readonly toolFormat: CallFamily | "none" | undefined;
  readonly maxBatch: number;
  readonly maxQueue: number;
  readonly kvBits: 0 | 4 | 8;
  /** True: the line that Claude Code puts first stays in its system prompt, and no two sessions share a prefix. */
  readonly keepBillingHeader: boolean;
  readonly limits: TransportLimits;
  /** Silence on a stream after which a keep-alive frame is sent. */
  readonly keepAliveMs: number;
}

/** Defaults of cli.md §4; the keep-alive interval is http-openai.md §1's. */
export const DEFAULT_SERVER_OPTIONS: ServerOptions = {
  version: "0.0.0",
  apiKey: null,
  corsOrigins: [],
  allowHosts: [],
  loopbackBind: true,
  maxBodyBytes: 64 * 2 ** 20,
  defaultMaxTokens: 2048,
  maxTokensCap: 32768,
  samplingDefaults: {},
  thinking: undefined,
  reasoningEffort: undefined,
  toolFormat: undefined,
  maxBatch: 4,
  maxQueue: 64,
  kvBits: 0,
  keepBillingHeader: false,
  limits: DEFAULT_LIMITS,
  keepAliveMs: 15_000,
};
