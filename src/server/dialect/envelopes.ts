/** Which dialect an error is told in: the path decides, since most errors come before any route is known. */
import { errorBody as anthropicBody } from "../anthropic/envelope.ts";
import type { RequestError } from "../errors.ts";
import { errorBody as openAiBody } from "../openai/envelope.ts";
import { hexId } from "./fresh-id.ts";

export interface ErrorReply {
  readonly body: object;
  readonly headers: Readonly<Record<string, string>>;
}

interface Envelope {
  readonly paths: RegExp;
  reply(error: RequestError): ErrorReply;
}

const ENVELOPES: readonly Envelope[] = [
  {
    paths: /^(?:\/v1)?\/messages(?:\/|$)/,
    reply: (error) => {
      const requestId = hexId("req_");
      return { body: anthropicBody(error, requestId), headers: { ...error.headers, "request-id": requestId } };
    },
  },
];

export function errorReply(error: RequestError, path: string): ErrorReply {
  const envelope = ENVELOPES.find(({ paths }) => paths.test(path));
  return envelope?.reply(error) ?? { body: openAiBody(error), headers: error.headers };
}
