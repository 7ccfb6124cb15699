/** The real text side behind the server's interface: its errors become 400s, its ids and bytes pass through. */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { RequestError } from "../../src/server/errors.ts";
import { textSource } from "../../src/server/generation/text-source.ts";
import { ChatTemplate, TextModel, TextTokenizer } from "../../src/text/index.ts";
import { XML } from "../text/chat/templates.ts";

const tokenizer = new TextTokenizer({
  tokenizer: JSON.parse(readFileSync(join(import.meta.dir, "../data/text/tok_qwen.json"), "utf8")),
  config: {},
  specialTokensMap: {},
  generationConfig: {},
});
const never = new AbortController().signal;
const hello = { messages: [{ role: "user" as const, content: "Hello, 🦁!" }] };

const lines: string[] = [];
const JOINED =
  "{% for message in messages %}{{ message.content }}{% if not loop.last %}<|im_end|>{% endif %}{% endfor %}";

function source(template: ChatTemplate | null) {
  return textSource(new TextModel(tokenizer, template), (line) => lines.push(line));
}

function chatTemplate(text: string): ChatTemplate {
  return new ChatTemplate(new Map([["default", text]]), tokenizer.special);
}

/** A template with a defect that is not the template's. */
class BrokenTemplate extends ChatTemplate {
  override render(): string {
    throw new TypeError("x is undefined");
  }
}

async function refusal(work: Promise<unknown>): Promise<RequestError> {
  const error = await work.then(
    () => null,
    (e: unknown) => e,
  );
  if (!(error instanceof RequestError)) throw new Error(`expected a RequestError, got ${error}`);
  return error;
}

describe("text source", () => {
  test("ids of a chat, bytes and detokenizer agree", async () => {
    const text = source(chatTemplate(JOINED));
    const ids = await text.encodeChat(hello, never);
    const bytes = Buffer.concat(ids.map((id) => text.tokenBytes(id)));
    expect(bytes.toString()).toBe("Hello, 🦁!");
    const detokenizer = text.detokenizer();
    expect(ids.map((id) => detokenizer.push(id)).join("") + detokenizer.flush()).toBe("Hello, 🦁!");
    expect(Array.from(text.encodeCompletion("Hello, 🦁!"))).toEqual(Array.from(ids));
  });

  test("what dialects ask of a template: calls, thoughts, effort, and where the reply begins", async () => {
    const text = source(chatTemplate(XML));
    expect(text).toMatchObject({
      toolFormat: "xml",
      reasoningForm: { kind: "tags", tags: { open: "<think>", close: "</think>" } },
      supportsReasoningEffort: true,
      thinkingDefault: true,
    });
    expect(text.tail(await text.encodeChat(hello, never))).toEndWith("<think>\n");
    expect(text.tail(await text.encodeChat(hello, never, { enableThinking: false }))).toEndWith("</think>\n\n");
    const messages = [...hello.messages, { role: "assistant" as const, content: "Well, " }];
    expect(text.tail(await text.encodeChat({ messages }, never, { continueFinal: true }))).toEndWith("Well, ");
    const refused = await refusal(text.encodeChat(hello, never, { continueFinal: true }));
    expect(refused).toMatchObject({ status: 400, param: "messages" });
    expect(source(null)).toMatchObject({ toolFormat: null, supportsReasoningEffort: false, thinkingDefault: false });
  });

  test("no template, and a template that throws, are 400s about the messages", async () => {
    const none = await refusal(source(null).encodeChat(hello, never));
    expect(none).toMatchObject({ status: 400, param: "messages", message: "this model has no chat template" });
    const throws = source(chatTemplate("{{ raise_exception('Conversation roles must alternate') }}"));
    expect(await refusal(throws.encodeChat(hello, never))).toMatchObject({
      status: 400,
      param: "messages",
      message: "could not apply chat template: Conversation roles must alternate",
    });
  });

  test("a defect of ours is not the client's fault", async () => {
    const broken = source(new BrokenTemplate(new Map([["default", JOINED]]), tokenizer.special));
    await expect(broken.encodeChat(hello, never)).rejects.toBeInstanceOf(TypeError);
  });

  test("a client that leaves while its prompt is encoded ends the work", async () => {
    const gone = new AbortController();
    const words = "word ".repeat(200_000);
    const long = {
      messages: Array.from({ length: 4 }, (_, i) => ({ role: "user" as const, content: `${words}${i}` })),
    };
    const text = source(chatTemplate(JOINED));
    const encoding = refusal(text.encodeChat(long, gone.signal));
    setImmediate(() => gone.abort());
    expect((await encoding).type).toBe("client_closed");
  });
});
