/**
 * Log-probabilities on the wire: the chat form (token, bytes, alternatives) and the older completions form (parallel
 * lists). Only tokens with visible text are listed. `bytes` are the token's own, also when it is half a character.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import type { ChoiceToken } from "../generation/events.ts";
import type { TextSource } from "../generation/text.ts";

const entryFields = { token: t.String(), logprob: t.Number(), bytes: t.Array(t.Integer({ minimum: 0, maximum: 255 })) };

export const chatLogprobsSchema = t.Object(
  {
    content: t.Array(t.Object({ ...entryFields, top_logprobs: t.Array(t.Object(entryFields)) })),
    refusal: t.Null(),
  },
  { $id: "ChatLogprobs" },
);

export const completionLogprobsSchema = t.Object(
  {
    tokens: t.Array(t.String()),
    token_logprobs: t.Array(t.Number()),
    top_logprobs: t.Array(t.Record(t.String(), t.Number())),
    text_offset: t.Array(t.Integer({ minimum: 0 })),
  },
  { $id: "CompletionLogprobs" },
);

/** JSON has no -Infinity; OpenAI writes this for "impossible". */
const LOGPROB_MIN = -9999;

type TokenBytes = Pick<TextSource, "tokenBytes">;

/** `choices[].logprobs` of a chat answer or chunk. */
export function chatLogprobs(tokens: readonly ChoiceToken[], text: TokenBytes): Static<typeof chatLogprobsSchema> {
  const content = listed(tokens).map(({ logprob }) => ({
    ...chatEntry(logprob.id, logprob.logprob, text),
    top_logprobs: logprob.top.map(([id, value]) => chatEntry(id, value, text)),
  }));
  return { content, refusal: null };
}

/** `choices[].logprobs` of a text completion or chunk. `text_offset` counts code points of the choice's text. */
export function completionLogprobs(
  tokens: readonly ChoiceToken[],
  text: TokenBytes,
): Static<typeof completionLogprobsSchema> {
  const shown = listed(tokens);
  return {
    tokens: shown.map(({ id }) => tokenText(text.tokenBytes(id))),
    token_logprobs: shown.map(({ logprob }) => finite(logprob.logprob)),
    top_logprobs: shown.map(({ logprob }) =>
      Object.fromEntries(logprob.top.map(([id, value]) => [tokenText(text.tokenBytes(id)), finite(value)])),
    ),
    text_offset: shown.map(({ offset }) => offset),
  };
}

function listed(tokens: readonly ChoiceToken[]) {
  return tokens.flatMap(({ id, logprob, offset, visible }) => (visible && logprob ? [{ id, logprob, offset }] : []));
}

function chatEntry(id: number, logprob: number, text: TokenBytes) {
  const bytes = text.tokenBytes(id);
  return { token: tokenText(bytes), logprob: finite(logprob), bytes: Array.from(bytes) };
}

function tokenText(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

function finite(logprob: number): number {
  return Number.isFinite(logprob) ? logprob : LOGPROB_MIN;
}
