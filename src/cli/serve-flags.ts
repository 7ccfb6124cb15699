/** The flags of `serve` (cli.md §4) and the server that they ask for. */
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "../server/options.ts";
import { usageError } from "./errors.ts";
import {
  autoNumberFlag,
  type FlagValues,
  listFlag,
  numberFlag,
  optionalChoiceFlag,
  switchFlag,
  textFlag,
  triFlag,
} from "./flags.ts";
import type { CliIo } from "./io.ts";
import { kvBits, modelFlags } from "./model-flags.ts";
import { thinkingFlags } from "./reply-flags.ts";

const D = DEFAULT_SERVER_OPTIONS;

export const serveFlags = {
  host: textFlag({ help: "address to listen on", hint: "H", defaultText: "127.0.0.1" }),
  port: numberFlag(8080, { min: 0, max: 65535, integer: true }, { help: "port; 0 = any free one" }),
  "api-key": textFlag({ help: "key that clients must send (better: env MLX_DSPARK_API_KEY)", hint: "K" }),
  insecure: switchFlag("allow other machines to connect without a key"),
  "no-model": switchFlag("start without a model"),
  "context-window": autoNumberFlag(
    { min: 1, integer: true },
    { help: "most tokens of prompt and answer; auto = what fits into memory", defaultText: "the model's own" },
  ),
  "max-batch": numberFlag(D.maxBatch, { min: 1, integer: true }, { help: "requests computed at the same time" }),
  "max-queue": numberFlag(D.maxQueue, { min: 0, integer: true }, { help: "requests that may wait; more get a 429" }),
  "default-max-tokens": numberFlag(
    D.defaultMaxTokens,
    { min: 1, integer: true },
    { help: "answer length when a request names none" },
  ),
  "max-tokens-cap": numberFlag(
    D.maxTokensCap,
    { min: 1, integer: true },
    { help: "most tokens that a request may ask for" },
  ),
  "default-temperature": numberFlag(
    null,
    { min: 0, max: 2 },
    { help: "when a request names none", defaultText: "the model's" },
  ),
  "default-top-p": numberFlag(
    null,
    { min: 0, above: true, max: 1 },
    { help: "when a request names none", defaultText: "the model's" },
  ),
  "default-top-k": numberFlag(
    null,
    { min: 0, integer: true },
    { help: "when a request names none", defaultText: "the model's" },
  ),
  warmup: triFlag("generate a little before the first request; --no-warmup does not"),
  "drain-seconds": numberFlag(10, { min: 0 }, { help: "time for running requests at shutdown" }),
  "max-body-mb": numberFlag(64, { min: 0, above: true }, { help: "largest request body" }),
  "cors-origin": listFlag({ help: "further web origin that may read answers, * = all (repeatable)", hint: "O" }),
  open: switchFlag("open the page of the API in the browser when ready"),
  "allow-host": listFlag({ help: "further Host name to answer under (repeatable)", hint: "H" }),
  "tool-format": optionalChoiceFlag(["hermes", "xml", "gemma4", "muse", "minicpm5", "lfm2", "none"], {
    help: "how the model writes tool calls; none leaves them in the text",
    defaultText: "from the template",
  }),
  "keep-billing-header": switchFlag("keep the line that Claude Code puts first, which differs in every session"),
  ...thinkingFlags,
  ...modelFlags,
};

export type ServeFlags = FlagValues<typeof serveFlags>;

/** Throws a usage error. */
export function serverOptions(flags: ServeFlags, io: CliIo): ServerOptions {
  const apiKey = flags["api-key"] ?? io.env.MLX_DSPARK_API_KEY ?? null;
  if (flags["api-key"] === "") throw usageError("--api-key must not be empty");
  const temperature = flags["default-temperature"];
  const topP = flags["default-top-p"];
  const topK = flags["default-top-k"];
  return {
    ...D,
    version: io.version,
    apiKey: apiKey === "" ? null : apiKey,
    corsOrigins: flags["cors-origin"],
    allowHosts: flags["allow-host"],
    maxBodyBytes: Math.floor(flags["max-body-mb"] * 2 ** 20),
    defaultMaxTokens: flags["default-max-tokens"],
    maxTokensCap: flags["max-tokens-cap"],
    samplingDefaults: {
      ...(temperature !== null && { temperature }),
      ...(topP !== null && { topP }),
      ...(topK !== null && { topK }),
    },
    thinking: flags.thinking ? undefined : false,
    reasoningEffort: flags["reasoning-effort"] ?? undefined,
    toolFormat: flags["tool-format"] ?? undefined,
    keepBillingHeader: flags["keep-billing-header"],
    maxBatch: flags["max-batch"],
    maxQueue: flags["max-queue"],
    kvBits: kvBits(flags),
    keepAliveMs: keepAliveMs(io),
  };
}

function keepAliveMs(io: CliIo): number {
  const text = io.env.MLX_DSPARK_STREAM_KEEPALIVE_S;
  if (text === undefined || text === "") return D.keepAliveMs;
  const seconds = Number(text);
  if (!Number.isFinite(seconds) || seconds < 0) {
    throw usageError(`MLX_DSPARK_STREAM_KEEPALIVE_S must be seconds (0 = off), got '${text}'`);
  }
  return seconds * 1000;
}
