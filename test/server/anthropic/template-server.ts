/**
 * A server whose text side is a real tokenizer and a template with tools and thoughts; its engine writes the texts that
 * a test gives it.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { textSource } from "../../../src/server/generation/text-source.ts";
import { startServer } from "../../../src/server/listen.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "../../../src/server/options.ts";
import { ChatTemplate, TextModel, TextTokenizer } from "../../../src/text/index.ts";
import { HERMES } from "../../text/chat/templates.ts";
import { SCRIPTED_MODEL, type Script, ScriptedEngine } from "../scripted-engine.ts";

const tokenizer = new TextTokenizer(
  {
    tokenizer: JSON.parse(readFileSync(join(import.meta.dir, "../../data/text/tok_qwen.json"), "utf8")),
    config: { eos_token: "<|im_end|>" },
    specialTokensMap: {},
    generationConfig: {},
  },
  { templateText: HERMES },
);
const template = new ChatTemplate(new Map([["default", HERMES]]), tokenizer.special);
const textModel = new TextModel(tokenizer, template);

/** Holds an agent's prompt. */
export const WINDOW = 200_000;

export interface TemplateServer extends AsyncDisposable {
  readonly url: string;
  readonly engine: ScriptedEngine;
  readonly client: Anthropic;
  /** POSTs JSON. */
  post(path: string, body: unknown, headers?: Readonly<Record<string, string>>): Promise<Response>;
  /** Text of the prompt of a request. */
  promptOf(request: number): string;
}

/**
 * @param answers what the model writes, request after request; the last one is repeated
 * @param script how it is written
 */
export function templateServer(
  answers: readonly string[],
  options: Partial<ServerOptions> = {},
  script: Partial<Script> = {},
): TemplateServer {
  let asked = 0;
  const engine = new ScriptedEngine(
    () => {
      const answer = answers[Math.min(asked++, answers.length - 1)] ?? "";
      const end = script.endless === true ? [] : textModel.eosIds.slice(0, 1);
      return { ids: [...tokenizer.encode(answer, { addSpecialTokens: false }), ...end], ...script };
    },
    { ...SCRIPTED_MODEL, vocabSize: tokenizer.vocabSize, eosIds: [...textModel.eosIds], contextWindow: WINDOW },
  );
  const text = textSource(textModel, () => undefined);
  const server = startServer({
    engine,
    text: () => (engine.status.state === "ready" ? text : null),
    options: { ...DEFAULT_SERVER_OPTIONS, version: "9.9.9", ...options },
    host: "127.0.0.1",
    port: 0,
  });
  return {
    url: server.url,
    engine,
    client: new Anthropic({ baseURL: server.url, apiKey: options.apiKey ?? "none", maxRetries: 0 }),
    post: (path, body, headers = {}) =>
      fetch(server.url + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
      }),
    promptOf: (request) => {
      const detokenizer = tokenizer.detokenizer({ atTextStart: true });
      const ids = Array.from(engine.requests[request]?.promptIds ?? []);
      return ids.map((id) => detokenizer.push(id)).join("") + detokenizer.flush();
    },
    [Symbol.asyncDispose]: () => server.stop(0),
  };
}
