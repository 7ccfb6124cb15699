/** The server as a provider of pi's (clients.md §2), for an extension file or `models.json`. */
import type { ClientServer } from "./client-server.ts";

/** Where the server does not say: pi's own guess for a model that it does not know is larger than most. */
const UNKNOWN_WINDOW_TOKENS = 32768;
/** Of the window, an answer's share: more would end the conversation with one long answer. */
const ANSWER_SHARE = 4;
/** pi sums a conversation up when less than this is free of the window that it is told (`compaction.reserveTokens`). */
const PI_RESERVE_TOKENS = 16384;

/** @param apiKey the key, or the name of the variable that holds it */
export function piProvider({ served: { url, model, contextWindow } }: ClientServer, apiKey: string) {
  const window = contextWindow ?? UNKNOWN_WINDOW_TOKENS;
  const entry = {
    id: model,
    name: `${model} (mlx-dspark)`,
    reasoning: false,
    input: ["text"],
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
    // With a window near its reserve it would sum up after every turn; so told, it does at three quarters of ours.
    contextWindow: Math.max(window, Math.floor((window * 3) / 4) + PI_RESERVE_TOKENS),
    maxTokens: Math.max(1, Math.min(8192, Math.floor(window / ANSWER_SHARE))),
  };
  return { baseUrl: url, api: "anthropic-messages", apiKey, models: [entry] };
}
