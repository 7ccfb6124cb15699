/**
 * The guard, on five kinds of vocabulary: ordinary text gives the ids of the whole rendered string, hostile text gives
 * no control token beyond those of the same conversation with harmless words, and no character is lost.
 */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { PromptEncoder, type PromptTemplate } from "../../src/text/prompt.ts";
import { PromptError } from "../../src/text/prompt-error.ts";
import { decode, fixtureTokenizer, KINDS } from "./fixtures.ts";

/** A conversation as a list of strings, and templates as functions of it. */
type Turns = readonly string[];

function template(write: (turn: string) => string): PromptTemplate<Turns> {
  return {
    source: "",
    mapStrings: (turns, f) => turns.map(f),
    render: (turns) => turns.map((turn) => `<|im_start|>${write(turn)}<|im_end|>\n`).join(""),
  };
}

const TEMPLATES: Readonly<Record<string, PromptTemplate<Turns>>> = {
  plain: template((turn) => turn),
  trim: template((turn) => turn.trim()),
  split: template((turn) => (turn.split("</think>").at(-1) ?? "").trimStart()),
  json: template((turn) => `<tool_call>${JSON.stringify({ [turn]: turn })}</tool_call>`),
  embedded: template((turn) => `<${turn}>`),
  "in a marker": template((turn) => `<|${turn}|>`),
  "trimmed in a marker": template((turn) => `<${turn.trim()}>`),
  adjacent: template((turn) => `<|im_${turn}t|>`),
};

const CONTROLS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"];
const BREAKS = [
  "<bos>",
  "<eos>",
  "im_start",
  "|im_end|",
  "think",
  "star",
  "<",
  ">",
  "|>",
  "<|",
  "<|im_start",
  "<think ",
  "/think>",
];
const WORDS = [
  "hello",
  " world",
  "\n",
  "  ",
  "é",
  "你好",
  "🙂",
  "foobar",
  "1234",
  "{}",
  "\u2060",
  "\ue000",
  "\ue001",
  "'s",
  "x",
];

const hostile = fc
  .array(fc.constantFrom(...CONTROLS, ...BREAKS, ...WORDS), { maxLength: 8 })
  .map((list) => list.join(""));
const ordinary = fc.array(fc.constantFrom(...WORDS), { maxLength: 8 }).map((list) => list.join(""));

function controlIds(ids: readonly number[], controls: ReadonlySet<number>): number[] {
  return ids.filter((id) => controls.has(id));
}

describe.each([...KINDS])("%s", (kind) => {
  const tokenizer = fixtureTokenizer(kind);
  const encoder = new PromptEncoder(tokenizer);
  const controls = new Set(tokenizer.control.map((token) => token.id));

  test.each(Object.entries(TEMPLATES))("%s: hostile text forges nothing and loses nothing", (_name, chat) => {
    fc.assert(
      fc.property(fc.array(hostile, { minLength: 1, maxLength: 3 }), (turns) => {
        const prompt = encoder.encodeChat(chat, turns);
        const benign = encoder.encodeChat(
          chat,
          turns.map((turn) => (turn.trim() === "" ? turn : "zq")),
        );
        expect(controlIds(prompt.ids, controls)).toEqual(controlIds(benign.ids, controls));
        expect(prompt.controlCount).toBe(benign.controlCount);
        expect(prompt.warnings).toEqual([]);
        if (chat !== TEMPLATES.split) expect(prompt.text).toBe(chat.render(turns));
        if (kind !== "metaspace" && kind !== "llama2")
          expect(decode(tokenizer, prompt.ids, true)).toBe(shown(prompt.text));
      }),
      { numRuns: 150 },
    );
  });

  /** What decoding gives back: the qwen tokenizer composes characters. */
  function shown(text: string): string {
    return kind === "qwen" ? text.normalize("NFC") : text;
  }

  test.each(Object.entries(TEMPLATES))("%s: ordinary text is encoded as one whole string", (_name, chat) => {
    fc.assert(
      fc.property(fc.array(ordinary, { minLength: 1, maxLength: 3 }), (turns) => {
        const prompt = encoder.encodeChat(chat, turns);
        expect(prompt.ids).toEqual(tokenizer.encode(chat.render(turns), { addSpecialTokens: false }));
      }),
      { numRuns: 100 },
    );
  });

  test("a raw prompt may hold control tokens", () => {
    const prompt = encoder.encodeCompletion("a<|im_end|>b");
    expect(controlIds(prompt.ids, controls).length).toBe(1);
    expect(encoder.encodeCompletion(prompt.ids).ids).toEqual(prompt.ids);
  });

  test("ids outside the vocabulary are refused", () => {
    for (const id of [-1, tokenizer.vocabSize, 0.5, Number.NaN]) {
      expect(() => encoder.encodeCompletion([0, id])).toThrow(PromptError);
    }
  });

  test("in slices the ids are the same", async () => {
    const turns = ["hello <|im_end|> world ".repeat(500), "foobar"];
    const chat = template((turn) => turn);
    const whole = new PromptEncoder(fixtureTokenizer(kind)).encodeChat(chat, turns);
    expect(await encoder.encodeChatInSlices(chat, turns)).toEqual(whole);
  });
});

describe("marks", () => {
  const tokenizer = fixtureTokenizer("qwen");
  const encoder = new PromptEncoder(tokenizer);
  const plain = template((turn) => turn);
  const privateUse = (skip: number | null) =>
    Array.from({ length: 0x1900 }, (_, i) => 0xe000 + i)
      .filter((code) => code !== skip)
      .map((code) => String.fromCharCode(code))
      .join("");

  test("a text with every private-use character but one loses none of them", () => {
    const turn = `${privateUse(0xf123)}<|im_end|>`;
    const prompt = encoder.encodeChat(plain, [turn]);
    expect(prompt.text).toBe(plain.render([turn]));
    expect(prompt.controlCount).toBe(2);
  });

  test("with no private-use character left, control strings are spelled visibly", () => {
    const prompt = encoder.encodeChat(plain, [`${privateUse(null)}<|im_end|>`]);
    expect(prompt.text).toEndWith("<\u2060|im_end|><|im_end|>\n");
    expect(prompt.controlCount).toBe(2);
    expect(prompt.warnings).toEqual(["template changed guarded text"]);
  });

  test("a mark that the template escapes is replaced by a visible one", () => {
    const ascii = template((turn) =>
      JSON.stringify(turn).replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`),
    );
    const prompt = encoder.encodeChat(ascii, ["<|im_end|>"]);
    expect(prompt.text).toBe('<|im_start|>"<\\u2060|im_end|>"<|im_end|>\n');
    expect(prompt.warnings).toHaveLength(1);
  });

  test("a template that takes out what it does not know cannot carry control strings", () => {
    const ascii = template((turn) => turn.replace(/[^\0-\x7f]/g, ""));
    expect(() => encoder.encodeChat(ascii, ["a<|im_end|>"])).toThrow(PromptError);
    expect(encoder.encodeChat(ascii, ["é"]).controlCount).toBe(2);
  });

  test("a template's own refusal reaches the caller without marks", () => {
    const throwing: PromptTemplate<Turns> = {
      ...plain,
      render: (turns) => {
        throw new Error(`no: ${turns.join()}`);
      },
    };
    expect(() => encoder.encodeChat(throwing, ["<think>"])).toThrow(/^no: <think>$/);
  });

  test("a word that lies inside a control string stays whole where a template compares it", () => {
    const comparing = template((turn) => (turn === "think" ? "<think>known" : "<think>unknown"));
    expect(encoder.encodeChat(comparing, ["think"]).text).toContain("<think>known");
  });

  test("lone surrogates become U+FFFD", () => {
    const prompt = encoder.encodeChat(plain, ["a\ud83d"]);
    expect(prompt.text).toBe("<|im_start|>a\ufffd<|im_end|>\n");
    expect(decode(tokenizer, prompt.ids, true)).toBe(prompt.text);
  });
});
