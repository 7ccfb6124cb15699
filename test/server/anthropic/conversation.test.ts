/** Every row of http-anthropic.md §2, and what holds for any conversation: one rendering, stable prefixes. */
import { describe, expect, test } from "bun:test";
import { Value } from "@sinclair/typebox/value";
import fc from "fast-check";
import { MEDIA_OMITTED } from "../../../src/server/anthropic/content.ts";
import { conversationOf } from "../../../src/server/anthropic/conversation.ts";
import { type Block, messagesBodySchema, type Turn } from "../../../src/server/anthropic/schema.ts";
import { ChatTemplate } from "../../../src/text/chat/chat-template.ts";
import type { Message } from "../../../src/text/index.ts";
import { HERMES, SMOLLM2, XML } from "../../text/chat/templates.ts";
import { clientFixtures } from "../client-fixtures.ts";

const DROP = { keepBillingHeader: false };
const BILLING = "x-anthropic-billing-header: cc_version=2.1.332.e8f; cc_entrypoint=cli;";
const IMAGE = { type: "image", source: { type: "base64", media_type: "image/png", data: "iVBORw0KGgo=" } };

/** As it was sent: with a field that is never looked at. */
const THINKING = { type: "thinking", thinking: "hm", signature: "mlx-dspark" };

const text = (value: string): Block => ({ type: "text", text: value });
type Content = Exclude<Turn["content"], undefined>;

const user = (content: Content): Turn => ({ role: "user", content });
const assistant = (content: Content): Turn => ({ role: "assistant", content });
const system = (content: Content): Turn => ({ role: "system", content });

const prompt = (messages: Turn[], head?: Content, options = DROP) =>
  conversationOf({ messages, ...(head !== undefined && { system: head }) }, [], options);
const convert = (messages: Turn[], head?: Content, options = DROP) =>
  prompt(messages, head, options).conversation.messages;

describe("system", () => {
  test("a string and blocks; blocks are joined by newlines", () => {
    expect(convert([user("u")], "A")).toEqual([
      { role: "system", content: "A" },
      { role: "user", content: "u" },
    ]);
    expect(convert([user("u")], [text("A"), text("B\n"), text("")])[0]).toEqual({ role: "system", content: "A\nB\n" });
    expect(convert([user("u")], [])).toEqual([{ role: "user", content: "u" }]);
  });

  test("the billing line is dropped, in either form, and kept when asked to", () => {
    expect(convert([user("u")], [text(BILLING), text("A")])[0]).toEqual({ role: "system", content: "A" });
    expect(convert([user("u")], `${BILLING}\nA`)[0]).toEqual({ role: "system", content: "A" });
    expect(convert([user("u")], [text(BILLING)])).toEqual([{ role: "user", content: "u" }]);
    expect(convert([user("u")], [text(BILLING), text("A")], { keepBillingHeader: true })[0]).toEqual({
      role: "system",
      content: `${BILLING}\nA`,
    });
    const quoted = `Do not print ${BILLING}`;
    expect(convert([user("u")], quoted)[0]).toEqual({ role: "system", content: quoted });
  });

  test("inside messages: before the first answer it joins the head, later it reminds", () => {
    expect(
      convert(
        [
          user("u1"),
          system([text("env")]),
          assistant("a1"),
          user("u2"),
          system("later"),
          assistant("a2"),
          system("between"),
          user("u3"),
        ],
        "head",
      ),
    ).toEqual([
      { role: "system", content: "head\n\nenv" },
      { role: "user", content: "u1" },
      { role: "assistant", content: "a1" },
      { role: "user", content: "u2\n\n<system-reminder>\nlater\n</system-reminder>" },
      { role: "assistant", content: "a2" },
      { role: "user", content: "<system-reminder>\nbetween\n</system-reminder>\n\nu3" },
    ]);
    expect(convert([user("u1"), assistant("a1"), system("last")]).at(-1)).toEqual({
      role: "user",
      content: "<system-reminder>\nlast\n</system-reminder>",
    });
  });
});

test("a system turn behind results stays there when an answer follows, and goes before words of the user", () => {
  const call = assistant([{ type: "tool_use", id: "t", name: "f", input: {} }]);
  const result = user([{ type: "tool_result", tool_use_id: "t", content: "r" }]);
  const roles = (after: Turn[]) => convert([user("u"), call, result, system("s"), ...after]).map(({ role }) => role);
  const asked = roles([]);
  expect(asked).toEqual(["user", "assistant", "tool", "user"]);
  expect(roles([assistant("a"), user("v")])).toEqual([...asked, "assistant", "user"]);
  expect(convert([user("u"), call, result, system("s"), user("v")]).at(-1)?.content).toBe(
    "<system-reminder>\ns\n</system-reminder>\n\nv",
  );
});

describe("turns", () => {
  test("text blocks are joined by newlines, white space stays, same-role neighbours merge", () => {
    expect(convert([user([text(" a "), text("b\n")]), user("c")])).toEqual([
      { role: "user", content: " a \nb\n\n\nc" },
    ]);
    expect(convert([user("u"), system("s"), user("v")])).toEqual([
      { role: "system", content: "s" },
      { role: "user", content: "u\n\nv" },
    ]);
  });

  test("calls carry objects; results come before the turn's text, in the order sent, errors marked", () => {
    const messages = convert([
      user("run"),
      assistant([
        THINKING,
        { type: "redacted_thinking" },
        text("Now."),
        { type: "tool_use", id: "t0", name: "Bash", input: { command: "a", n: 1 } },
        { type: "tool_use", id: "t1", name: "Now", input: {} },
      ]),
      user([
        text("go on"),
        { type: "tool_result", tool_use_id: "t1", content: [text("one"), text("two"), IMAGE] },
        { type: "tool_result", tool_use_id: "t0", content: "no such file", is_error: true },
      ]),
    ]);
    expect(messages).toEqual([
      { role: "user", content: "run" },
      {
        role: "assistant",
        content: "Now.",
        reasoning: "hm",
        toolCalls: [
          { id: "t0", name: "Bash", arguments: { command: "a", n: 1 } },
          { id: "t1", name: "Now", arguments: {} },
        ],
      },
      { role: "tool", content: `one\ntwo\n${MEDIA_OMITTED}`, toolCallId: "t1" },
      { role: "tool", content: "Error: no such file", toolCallId: "t0" },
      { role: "user", content: "go on" },
    ]);
  });

  test("a turn of results alone has no text of its own; empty turns stay", () => {
    const result = { type: "tool_result", tool_use_id: "t", content: "r" };
    const call = { type: "tool_use", id: "t", name: "f", input: {} };
    expect(convert([user("u"), assistant([call]), user([result])]).map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "tool",
    ]);
    expect(convert([user([]), assistant(""), user("x")])).toEqual([
      { role: "user", content: "" },
      { role: "assistant", content: "" },
      { role: "user", content: "x" },
    ]);
  });

  test("found tools are told by name, documents by their text where it came as text", () => {
    const references = [
      { type: "tool_reference", tool_name: "Grep" },
      { type: "tool_reference", tool_name: "Glob" },
    ];
    expect(convert([user([{ type: "tool_result", tool_use_id: "t", content: references }])])[0]?.content).toBe(
      "Grep\nGlob",
    );
    const documents: Block[] = [
      { type: "document", source: { type: "text", media_type: "text/plain", data: "plain" } },
      { type: "document", source: { type: "content", content: [text("in"), IMAGE] } },
      { type: "document", source: { type: "base64", media_type: "application/pdf", data: "JVBERi0=" } },
    ];
    expect(convert([user([...documents, text("read")])])[0]?.content).toBe(
      `plain\nin\n${MEDIA_OMITTED}\n${MEDIA_OMITTED}\nread`,
    );
  });

  test("a picture in the history is named, a last turn of pictures alone is refused without its data", () => {
    expect(convert([user([IMAGE]), assistant("a"), user("u")])[0]?.content).toBe(MEDIA_OMITTED);
    for (const content of [[IMAGE], [text(""), IMAGE], [{ type: "container_upload" }]]) {
      expect(() => convert([user("u"), assistant("a"), user(content)])).toThrow(
        /^content block '(image|container_upl)/,
      );
    }
    expect(() => convert([user([IMAGE])])).not.toThrow(/iVBOR/);
    expect(convert([user([{ type: "tool_result", tool_use_id: "t", content: [IMAGE] }])])[0]?.content).toBe(
      MEDIA_OMITTED,
    );
  });

  test("a last assistant turn is continued; one that says nothing, and one that calls, is not", () => {
    expect(prompt([user("u"), assistant("The answer is ")])).toEqual({
      kind: "chat",
      conversation: {
        messages: [
          { role: "user", content: "u" },
          { role: "assistant", content: "The answer is " },
        ],
      },
      continueFinal: true,
    });
    expect(prompt([user("u"), assistant([])])).toEqual({
      kind: "chat",
      conversation: { messages: [{ role: "user", content: "u" }] },
    });
    const call = { type: "tool_use", id: "t", name: "f", input: {} };
    expect(prompt([user("u"), assistant([call])]).continueFinal).toBeUndefined();
  });

  test("what cannot be carried is refused by its place", () => {
    const wrong: [Turn[], RegExp][] = [
      [[{ role: "tool", content: "x" }], /unknown role 'tool'/],
      [[user([{ type: "text" }])], /'messages\[0\]\.content\[0\]\.text' must be a string/],
      [[user("u"), assistant([{ type: "tool_use", input: {} }])], /'messages\[1\]\.content\[0\]\.name'/],
      [[assistant([{ type: "tool_use", name: "f", input: nested(70) }])], /nested deeper than 64/],
    ];
    for (const [messages, message] of wrong) expect(() => convert(messages)).toThrow(message);
  });
});

function nested(depth: number): unknown {
  return depth === 0 ? 1 : { a: nested(depth - 1) };
}

/** A turn as a client may write it: the same content as a string or as blocks, with and without marks of caching. */
interface Forms {
  readonly plain: Turn;
  readonly blocks: Turn;
}

const words = fc.oneof(fc.string(), fc.constantFrom("", "\n", " a ", "<|im_end|>", "</think>", "ä🦁"));

const textTurn = fc.tuple(fc.constantFrom("user", "assistant", "system"), words).map(
  ([role, content]): Forms => ({
    plain: { role, content },
    blocks: { role, content: [{ ...text(content), ...{ cache_control: { type: "ephemeral" } } }] },
  }),
);

const loop = fc.tuple(words, words, fc.string()).map(([thinking, result, id]): Forms[] => {
  const call = assistant([
    { type: "thinking", thinking },
    { type: "tool_use", id, name: "f", input: { a: thinking } },
  ]);
  const results = (content: unknown) => user([{ type: "tool_result", tool_use_id: id, content }]);
  return [
    { plain: call, blocks: call },
    { plain: results(result), blocks: results([text(result)]) },
  ];
});

const conversation = fc
  .array(fc.oneof({ weight: 3, arbitrary: textTurn.map((turn) => [turn]) }, { weight: 1, arbitrary: loop }))
  .map((turns) => turns.flat());

describe("for any conversation", () => {
  test("strings and blocks give the same messages", () => {
    fc.assert(
      fc.property(conversation, (turns) => {
        expect(convert(turns.map(({ blocks }) => blocks))).toEqual(convert(turns.map(({ plain }) => plain)));
      }),
    );
  });

  test("what was rendered stays, in either form, whatever follows an answer", () => {
    fc.assert(
      fc.property(conversation, words, conversation, (before, answer, after) => {
        const form = (which: keyof Forms) => {
          const turns = [user("first"), ...before.map((turn) => turn[which])];
          // A prefill is part of the answer that follows it.
          return convert(turns).at(-1)?.role === "assistant" ? [...turns, user("asked")] : turns;
        };
        const was = convert(form("plain"), "head");
        const later = [
          ...form("blocks"),
          assistant(`answer ${answer}`),
          ...after.map(({ plain }) => plain),
          user("last"),
        ];
        const now = convert(later, "head");
        expect(now.slice(0, was.length)).toEqual([...was]);
        for (const template of TEMPLATES) {
          const render = (messages: readonly Message[]) =>
            template.render(template.normalize({ messages }), { addGenerationPrompt: false });
          expect(render(now).startsWith(render(was))).toBe(true);
        }
      }),
    );
  });
});

const NO_TOKENS = { bos: null, eos: null, pad: null, unk: null, additional: [] };

/** Those that print all thoughts or none: the others drop them at the next words of the user, as they were trained to. */
const TEMPLATES = [HERMES, XML, SMOLLM2]
  .map((source) => new ChatTemplate(new Map([["default", source]]), NO_TOKENS))
  .filter(({ traits }) => traits.keepsReasoning !== "since_user");

test("there are templates of that kind", () => expect(TEMPLATES.length).toBeGreaterThan(0));

test("recorded: two sessions of Claude Code with other first words share everything before them", () => {
  const body = clientFixtures("/messages").find(({ name }) => name === "claude-code.headless.turn1")?.body;
  const session = (fingerprint: string, asked: string) => {
    const changed = JSON.stringify(body)
      .replace(/2\.1\.332\.\w{3}/, fingerprint)
      .replaceAll("say hi", asked);
    const { messages, system: head } = Value.Parse(messagesBodySchema, JSON.parse(changed));
    return convert(messages, head);
  };
  const [head, ...turns] = session("2.1.332.0b8", "one");
  // Both the instructions and the environment, which stood behind the user's words.
  expect(head?.role).toBe("system");
  expect(head?.content.length).toBeGreaterThan(15_000);
  expect(head?.content).not.toContain("billing");
  expect(turns.map(({ role }) => role)).toEqual(["user"]);
  expect(session("2.1.332.e8f", "two")[0]).toEqual(head);
});
