/** Where the template text is found, by the order of text.md §5. */
import { afterAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { ChatTemplate } from "../../../src/text/chat/chat-template.ts";
import { chooseTemplate, readTemplateTexts } from "../../../src/text/chat/template-source.ts";
import { TemplateError } from "../../../src/text/jinja/errors.ts";

const root = mkdtempSync(join(tmpdir(), "chat-template-"));
afterAll(() => rmSync(root, { recursive: true }));

let count = 0;

function folder(files: Readonly<Record<string, string | object>>): string {
  const dir = join(root, String(count++));
  mkdirSync(dir);
  for (const [name, content] of Object.entries(files)) {
    const path = join(dir, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  }
  return dir;
}

test("first hit: .jinja, tokenizer_config.json, chat_template.json", async () => {
  const json = { "chat_template.json": { chat_template: "C" } };
  const config = { ...json, "tokenizer_config.json": { chat_template: "B" } };
  const jinja = { ...config, "chat_template.jinja": "A" };
  expect(await readTemplateTexts(folder(jinja))).toEqual({
    origin: "chat_template.jinja",
    named: new Map([["default", "A"]]),
  });
  expect((await readTemplateTexts(folder(config)))?.named).toEqual(new Map([["default", "B"]]));
  expect((await readTemplateTexts(folder(json)))?.named).toEqual(new Map([["default", "C"]]));
  expect(await readTemplateTexts(folder({ "tokenizer_config.json": { chat_template: null } }))).toBeNull();
  expect(await readTemplateTexts(folder({}))).toBeNull();
  expect(await readTemplateTexts(join(root, "absent"))).toBeNull();
});

test("named templates: tool_use with tools, default, the only one, else an error", async () => {
  const list = [
    { name: "default", template: "D" },
    { name: "tool_use", template: "T" },
  ];
  const texts = await readTemplateTexts(
    folder({
      "tokenizer_config.json": { chat_template: list },
      "additional_chat_templates/rag.jinja": "R",
      "additional_chat_templates/notes.txt": "no",
    }),
  );
  expect(texts?.named).toEqual(
    new Map([
      ["rag", "R"],
      ["default", "D"],
      ["tool_use", "T"],
    ]),
  );
  expect(chooseTemplate(texts?.named ?? new Map(), true)).toBe("T");
  expect(chooseTemplate(texts?.named ?? new Map(), false)).toBe("D");
  expect(chooseTemplate(new Map([["only", "O"]]), true)).toBe("O");
  expect(() =>
    chooseTemplate(
      new Map([
        ["a", "A"],
        ["b", "B"],
      ]),
      false,
    ),
  ).toThrow("none is called 'default'");
});

test("files that cannot be understood say which and why", async () => {
  for (const [file, content, message] of [
    ["tokenizer_config.json", "{", "tokenizer_config.json is not JSON"],
    ["tokenizer_config.json", "[]", "does not hold a JSON object"],
    ["tokenizer_config.json", '{"chat_template":5}', "neither a string nor a list"],
    ["chat_template.json", '{"chat_template":[{"name":"x"}]}', "lacks a name or a template"],
    ["chat_template.jinja", "{% if %}", "expected an expression"],
  ] as const) {
    const loading = ChatTemplate.load(folder({ [file]: content }));
    await expect(loading).rejects.toBeInstanceOf(TemplateError);
    await expect(loading).rejects.toThrow(message);
  }
});

test("loading: special tokens come from the config, else from the map", async () => {
  const template = await ChatTemplate.load(
    folder({
      "chat_template.jinja": "{{ bos_token }}{{ eos_token }}[{{ pad_token }}]{{ unk_token }}\n",
      "tokenizer_config.json": { bos_token: { content: "<b>" }, eos_token: "<e>" },
      "special_tokens_map.json": { eos_token: "<no>", unk_token: { content: "<u>" } },
    }),
  );
  expect(template?.render({ messages: [] })).toBe("<b><e>[]<u>");
  expect(await ChatTemplate.load(folder({}))).toBeNull();
});
