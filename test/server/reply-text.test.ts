/** The chain of a row with thoughts and calls: which piece carries which token, where stop strings and one call end it. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type ReplyForm, type ReplyPiece, ReplyText, StopMatcher } from "../../src/text/index.ts";
import { ByteText } from "./byte-text.ts";
import { EOS } from "./scripted-engine.ts";

const FORM: ReplyForm = {
  reasoning: { kind: "tags", tags: { open: "<think>", close: "</think>" } },
  start: "outside",
  family: "hermes",
  tools: [{ name: "f" }],
  begun: "",
};
const CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>';

interface Options {
  readonly form?: ReplyForm;
  readonly stops?: readonly string[];
  readonly oneCall?: boolean;
  readonly step?: number;
}

function run(text: string, { form = FORM, stops = [], oneCall = false, step = 1 }: Options = {}) {
  const reply = new ReplyText<never>({
    detokenizer: new ByteText().detokenizer(),
    stops: new StopMatcher(stops),
    silentIds: new Set([EOS]),
    form,
    oneCall,
  });
  const ids = [...new TextEncoder().encode(text), EOS];
  const pieces: ReplyPiece<never>[] = [];
  for (let i = 0; i < ids.length && !reply.isOver; i += step) pieces.push(...reply.push(ids.slice(i, i + step), null));
  pieces.push(...reply.finish("ended"));
  return { reply, pieces, rest: reply.rest() };
}

/** `type: what shows | text of all tokens that travel with it | text of the visible ones`. */
function shown({ pieces, rest }: ReturnType<typeof run>): string[] {
  const textOf = (tokens: readonly { id: number }[]) =>
    new TextDecoder().decode(Uint8Array.from(tokens, ({ id }) => (id === EOS ? 36 : id)));
  const line = (what: string, tokens: readonly { id: number; visible: boolean }[]) =>
    `${what}|${textOf(tokens)}|${textOf(tokens.filter(({ visible }) => visible))}`;
  return [
    ...pieces.map((piece) =>
      line(`${piece.type}: ${piece.type === "call" ? piece.call.arguments : piece.text}`, piece.tokens),
    ),
    line("end", rest),
  ];
}

describe("tokens", () => {
  test("markers and white space travel with the next piece, a call's with the call", () => {
    const whole = run(`<think>\nhm</think>\n\nHi.\n${CALL}\nx`, { step: 1000 });
    expect(shown(whole)).toEqual([
      "reasoning: hm|<think>\nhm|hm",
      "text: Hi.|</think>\n\nHi.|Hi.",
      `call: {"a":"b"}|\n${CALL}|`,
      "text: x|\nx|x",
      "end|$|",
    ]);
    expect(whole.reply.reasoningTokens).toBe(2);
    expect(whole.reply.completionTokens).toBe(`<think>\nhm</think>\n\nHi.\n${CALL}\nx`.length + 1);
  });

  test("a swallowed end comes with the end", () => {
    expect(shown(run(`a${CALL}\n\n`)).slice(-2)).toEqual([`call: {"a":"b"}|${CALL}|`, "end|\n\n$|"]);
    expect(shown(run("<think>a</think>"))).toEqual(["reasoning: a|<think>a|a", "end|</think>$|"]);
  });

  test("half characters in thoughts, calls and text", () => {
    const call = CALL.replace("b", "€");
    for (const step of [1, 2, 3, 7, 1000]) {
      const { pieces, rest, reply } = run(`<think>é</think>${call}😀`, { step });
      const ids = [...pieces.flatMap(({ tokens }) => tokens), ...rest].map(({ id }) => id);
      expect(ids).toEqual([...new TextEncoder().encode(`<think>é</think>${call}😀`), EOS]);
      expect(reply.reasoningTokens).toBe(2);
      expect(pieces.at(-1)).toMatchObject({ type: "text", text: "😀", tokens: [{}, {}, {}, {}] });
    }
  });

  test("every token comes once and in order, whatever is written and however it is stepped", () => {
    const part = fc.constantFrom("<think>", "</think>", CALL, "<tool_call>", "\n", "x", "€", "stop", '{"name"', "st");
    fc.assert(
      fc.property(
        fc.array(part, { maxLength: 12 }),
        fc.integer({ min: 1, max: 40 }),
        fc.boolean(),
        (parts, step, oneCall) => {
          const text = parts.join("");
          const { reply, pieces, rest } = run(text, { step, oneCall, stops: ["stop"] });
          const tokens = [...pieces.flatMap((piece) => piece.tokens), ...rest];
          const bytes = [...new TextEncoder().encode(text), EOS];
          expect(tokens.map(({ id }) => id)).toEqual(bytes.slice(0, reply.completionTokens));
          if (!reply.isOver) expect(reply.completionTokens).toBe(bytes.length);
          // The end does not depend on how many ids came at once.
          const single = run(text, { oneCall, stops: ["stop"] });
          expect(single.reply.completionTokens).toBe(reply.completionTokens);
          expect(single.reply.reasoningTokens).toBe(reply.reasoningTokens);
          const texts = (all: typeof pieces) => all.map((piece) => (piece.type === "text" ? piece.text : "")).join("");
          expect(texts(single.pieces)).toBe(texts(pieces));
          expect(texts(pieces)).not.toContain("stop");
        },
      ),
      { seed: 20_261_130, numRuns: 500 },
    );
  });
});

describe("stop strings", () => {
  test("only in the answer", () => {
    const call = CALL.replace("b", "END");
    const { reply, pieces } = run(`<think>a END b</think>x${call} y END z`, { stops: ["END"] });
    expect(reply.stopString).toBe("END");
    expect(pieces.map((piece) => (piece.type === "call" ? "call" : piece.text)).join("")).toBe("a END bxcally ");
    expect(reply.completionTokens).toBe(`<think>a END b</think>x${call} y END`.length);
  });

  test("none across a call, and what was held comes before it", () => {
    const { reply, pieces } = run(`EN${CALL}D`, { stops: ["END"] });
    expect(reply.stopString).toBeNull();
    expect(pieces.map(({ type }) => type)).toEqual(["text", "call", "text"]);
  });

  test("white space that a call swallows is not in the answer", () => {
    expect(run(`a\n\n${CALL}`, { stops: ["\n\n"] }).reply.stopString).toBeNull();
    const stopped = run("a\n\nb", { stops: ["\n\n"] });
    expect([stopped.reply.stopString, stopped.reply.completionTokens]).toEqual(["\n\n", 3]);
  });

  test("a match that is decided by what ends the text", () => {
    const { reply, pieces } = run(`xab${CALL}`, { stops: ["b", "abz"] });
    expect([reply.stopString, reply.calls, reply.completionTokens]).toEqual(["b", 0, 3]);
    expect(pieces).toMatchObject([{ text: "x" }, { text: "a" }]);
  });
});

describe("one call", () => {
  test("the reply ends with its first call, also of a list", () => {
    const { reply, pieces } = run(`a${CALL}\n${CALL}b`, { oneCall: true, step: 1000 });
    expect(reply.isOver).toBe(true);
    expect(pieces.map(({ type }) => type)).toEqual(["text", "call"]);
    expect(reply.completionTokens).toBe(`a${CALL}`.length);
    const list = "<|tool_call_start|>[f(), f()]<|tool_call_end|>";
    const lfm = run(list, { oneCall: true, form: { ...FORM, family: "lfm2" } });
    expect([lfm.reply.calls, lfm.pieces.length]).toEqual([1, 1]);
  });

  test("a text that only mentions one goes on", () => {
    expect(run("<tool_call> is a tag", { oneCall: true }).reply.isOver).toBe(false);
  });
});

test("without a form text is text", () => {
  const plain = { reasoning: null, start: "answer", family: null, tools: [], begun: "" } as const;
  const text = `<think>a</think>${CALL} `;
  expect(shown(run(text, { form: plain, step: 1000 }))).toEqual([`text: ${text}|${text}|${text}`, "end|$|"]);
});
