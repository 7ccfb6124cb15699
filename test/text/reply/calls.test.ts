/** Calls of each family: what is read, what is mended, what is cut, and what stays text (tool-calls.md §4). */
import { describe, expect, test } from "bun:test";
import type { CallFamily } from "../../../src/text/chat/call-syntax.ts";
import type { TextEnd } from "../../../src/text/reply/events.ts";
import type { ReplyForm } from "../../../src/text/reply/reply-parser.ts";
import { characters, outcome, read } from "./reading.ts";

const TOOLS = [
  { name: "f", parameters: { type: "object", properties: { a: { type: "integer" }, b: { type: "string" } } } },
  { name: "g.h-i" },
];

function formOf(family: CallFamily): ReplyForm {
  return { reasoning: null, start: "answer", family, tools: TOOLS, begun: "" };
}

/** `[content, calls, whether the text ended inside a call]`, the same for every cut. */
function parse(
  family: CallFamily,
  text: string,
  end: TextEnd = "ended",
): readonly [string, readonly string[], boolean] {
  const whole = outcome(read([text], formOf(family), end));
  expect(outcome(read(characters(text), formOf(family), end))).toEqual(whole);
  return [whole.content, whole.calls.map((call) => `${call.name}${call.arguments}`), whole.endedInCall];
}

const F = '{"name": "f", "arguments": {"a": 1}}';

/** A call of each family and the literal that it begins with. */
const BEGINNINGS: readonly (readonly [CallFamily, string, string])[] = [
  ["hermes", "<tool_call>", `<tool_call>${F}</tool_call>`],
  ["xml", "<tool_call>", "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>"],
  ["gemma4", "<|tool_call>", "<|tool_call>call:f{a:1}<tool_call|>"],
  ["muse", "<atem:function_calls>", '<atem:function_calls><atem:invoke name="f"></atem:invoke></atem:function_calls>'],
  ["minicpm5", "<function", '<function name="f"><param name="a">1</param></function>'],
  ["lfm2", "<|tool_call_start|>", "<|tool_call_start|>[f(a=1)]<|tool_call_end|>"],
];

describe.each(BEGINNINGS)("%s: half an opener where the text was cut", (family, opener, call) => {
  const beginnings = Array.from({ length: opener.length - 1 }, (_, i) => opener.slice(0, i + 1));

  test("is a call's beginning behind a call and where only calls may be, else text", () => {
    for (const half of beginnings) {
      const behind = parse(family, `a${call}\n${half}`, "cut");
      expect([behind[0], behind[1].length, behind[2]]).toEqual(["a", 1, true]);
      expect(parse(family, half, "cut")).toEqual([half, [], false]);
      const only = outcome(read(characters(half), { ...formOf(family), onlyCalls: true }, "cut"));
      expect([only.content, only.endedInCall]).toEqual(["", true]);
    }
  });

  test("is text in a turn that ended by itself, and behind other text", () => {
    for (const half of beginnings) {
      expect(parse(family, `${call}\n${half}`)).toMatchObject({ 0: `\n${half}`.trimStart(), 2: false });
      expect(parse(family, `${call} b ${half}`, "cut")).toMatchObject({ 0: `b ${half}`, 2: false });
    }
  });
});

describe("hermes", () => {
  test.each([
    [
      "white space around calls is dropped",
      `a \n<tool_call>\n${F}\n</tool_call>\n <tool_call>${F}</tool_call> \n b \n`,
      "ab \n",
      2,
    ],
    ["a closer may be missing at the end", `<tool_call>${F}\n`, "", 1],
    ["a closer may be half there", `<tool_call>${F}\n</tool_c`, "", 1],
    ["parameters in place of arguments", '<tool_call>{"name":"f","parameters":{"a":1}}</tool_call>', "", 1],
    ["one missing brace", '<tool_call>{"name":"f","arguments":{"a":1}\n</tool_call>', "", 1],
    ["one missing brace at the end", '<tool_call>{"name":"f","arguments":{"a":1}', "", 1],
    ["an opener after one that was none", `<tool_call> <tool_call>${F}</tool_call>`, "<tool_call>", 1],
    ["an opener in a code span", "`<tool_call>` tags", "`<tool_call>` tags", 0],
    ["an opener in braces", "<tool_call>{x} and <b>", "<tool_call>{x} and <b>", 0],
    ["a call quoted in prose", `\`<tool_call>${F}\` is how`, `\`<tool_call>${F}\` is how`, 0],
    ["a name that is none", '<tool_call>{"name":3}</tool_call>', '<tool_call>{"name":3}</tool_call>', 0],
    [
      "arguments that are no object",
      '<tool_call>{"name":"f","arguments":[1]}</tool_call>',
      '<tool_call>{"name":"f","arguments":[1]}</tool_call>',
      0,
    ],
    [
      "two braces missing",
      '<tool_call>{"name":"f","arguments":{"a":{"b":1}',
      '<tool_call>{"name":"f","arguments":{"a":{"b":1}',
      0,
    ],
    [
      "a string without end",
      '<tool_call>{"name":"f","arguments":{"b":"x',
      '<tool_call>{"name":"f","arguments":{"b":"x',
      0,
    ],
    ["another family's markup", "<|tool_call>call:f{}<tool_call|>", "<|tool_call>call:f{}<tool_call|>", 0],
    ["white space that is no call's", "a \n\n b <tool_call> \n", "a \n\n b <tool_call> \n", 0],
    ["an opener half there", "a <tool_ca", "a <tool_ca", 0],
  ])("%s", (_what, text, content, count) => {
    const [shown, calls] = parse("hermes", text);
    expect(shown).toBe(content);
    expect(calls).toHaveLength(count);
    for (const call of calls) expect(call).toBe('f{"a":1}');
  });

  test("arguments keep digits, order and characters; breaks and commas are mended", () => {
    const [, calls] = parse(
      "hermes",
      '<tool_call>{"name":"f","arguments":{"b":"é\n\t\\"<","10":[1.0,9007199254740993,],"9":{},},}</tool_call>',
    );
    expect(calls).toEqual(['f{"b":"é\\n\\t\\"<","10":[1.0,9007199254740993],"9":{}}']);
  });

  test("arguments absent, null, empty or in a string", () => {
    for (const given of ['{"name":"f"}', '{"name":"f","arguments":null}', '{"name":"f","arguments":""}']) {
      expect(parse("hermes", `<tool_call>${given}</tool_call>`)[1]).toEqual(["f{}"]);
    }
    expect(parse("hermes", '<tool_call>{"name":"f","arguments":"{\\"a\\": 1}"}</tool_call>')[1]).toEqual(['f{"a":1}']);
    // Once, not twice.
    expect(parse("hermes", '<tool_call>{"name":"f","arguments":"\\"{}\\""}</tool_call>')[1]).toEqual([]);
  });

  test("cut by a limit: whole calls stay, half ones go", () => {
    expect(parse("hermes", `a\n<tool_call>${F}\n`, "cut")).toEqual(["a", ['f{"a":1}'], false]);
    expect(parse("hermes", `<tool_call>${F}</tool_call>\n<tool_call>{"na`, "cut")).toEqual(["", ['f{"a":1}'], true]);
    expect(parse("hermes", 'a\n<tool_call>{"name":"f","arguments":{"a":1}', "cut")).toEqual(["a", [], true]);
    expect(parse("hermes", "a <tool_call>\n", "cut")).toEqual(["a", [], true]);
    expect(parse("hermes", "a <tool_ca", "cut")).toEqual(["a <tool_ca", [], false]);
  });

  test("either body in either family", () => {
    const xml = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
    expect(parse("hermes", xml)).toEqual(["", ['f{"a":1}'], false]);
    expect(parse("xml", `<tool_call>${F}</tool_call>`)).toEqual(["", ['f{"a":1}'], false]);
  });
});

describe("xml", () => {
  const call = (inner: string) => `<tool_call>\n<function=f>\n${inner}</function>\n</tool_call>`;

  test.each([
    [
      "markup inside a value is text",
      call("<parameter=b>\n<function=g>\n<parameter=a>\n</tool_call>\n</parameter>\n"),
      'f{"b":"<function=g>\\n<parameter=a>\\n</tool_call>"}',
    ],
    ["one line break at each end", call("<parameter=b>\n\n x \n\n</parameter>\n"), 'f{"b":"\\n x \\n"}'],
    ["values on one line", call("<parameter=b>x</parameter><parameter=a> 2 </parameter>"), 'f{"b":"x","a":2}'],
    ["a parameter twice: the last", call("<parameter=a>1</parameter><parameter=a>2</parameter>"), 'f{"a":2}'],
    ["an empty value", call("<parameter=b>\n</parameter>"), 'f{"b":""}'],
    ["a dotted name", "<tool_call><function=g.h-i></function></tool_call>", "g.h-i{}"],
  ])("%s", (_what, text, expected) => {
    expect(parse("xml", text)).toEqual(["", [expected], false]);
  });

  test("what is no call is text", () => {
    for (const text of [
      "<tool_call><function=>",
      "<tool_call><function=a\nb>",
      call("text\n"),
      "<tool_call><function=f></function>text",
      "<tool_call><function=f><parameter=a>1</parameter>",
      "<tool_call><functional",
    ]) {
      expect(parse("xml", text)).toEqual([text, [], false]);
    }
  });

  test("cut by a limit", () => {
    expect(parse("xml", "<tool_call><function=f><parameter=a>1</parameter>", "cut")).toEqual(["", [], true]);
    expect(parse("xml", "<tool_call><function=f></function>\n", "cut")).toEqual(["", ["f{}"], false]);
  });
});

describe("gemma4", () => {
  test.each([
    ["values of their own types", 'call:f{a:01,b:x y,c:null,d:-1.5e3,e:9007199254740993,"f":1}', null],
    [
      "values of their own types",
      "call:f{a:01,b:x y,c:null,d:-1.5e3,e:9007199254740993,f:None}",
      'f{"a":"01","b":"x y","c":null,"d":-1500,"e":9007199254740993,"f":null}',
    ],
    [
      "brackets inside strings",
      'call:f{b:<|"|>}<tool_call|>{<|"|>,l:[[],[{k:true}]]}',
      'f{"b":"}<tool_call|>{","l":[[],[{"k":true}]]}',
    ],
    ["white space and a last comma", "call:f{ a : 1 , l : [ 1 , ] , }\n", 'f{"a":1,"l":[1]}'],
    ["one missing brace", "call:f{a:{k:1}", 'f{"a":{"k":1}}'],
    ["two missing braces", "call:f{a:{k:{", null],
    ["a key without value", "call:f{a}", null],
    ["a dotted name", "call:g.h-i{}", "g.h-i{}"],
  ])("%s: %s", (_what, body, expected) => {
    const text = `<|tool_call>${body}<tool_call|>`;
    expect(parse("gemma4", text)).toEqual(expected === null ? [text, [], false] : ["", [expected], false]);
  });

  test("what does not begin a call is text at once", () => {
    for (const text of ["<|tool_call> is", "<|tool_call>called", "<|tool_call>call:a b", "<|tool_call>call:{"]) {
      expect(parse("gemma4", text)).toEqual([text, [], false]);
    }
    const { events } = read(["<|tool_call>cax"], formOf("gemma4"));
    expect(events).toMatchObject([{ type: "text", text: "<|tool_call>cax" }]);
  });

  test("the end", () => {
    expect(parse("gemma4", "<|tool_call>call:f{a:1}", "cut")).toEqual(["", ['f{"a":1}'], false]);
    expect(parse("gemma4", "<|tool_call>call:f{a:1", "cut")).toEqual(["", [], true]);
    expect(parse("gemma4", '<|tool_call>call:f{b:<|"|>x', "ended")[0]).toBe('<|tool_call>call:f{b:<|"|>x');
  });
});

describe("muse", () => {
  const invoke = (inner: string) => `<atem:invoke name="f">\n${inner}</atem:invoke>\n`;
  const parameter = (key: string, value: string) => `<atem:parameter name="${key}">${value}</atem:parameter>\n`;

  test("calls come one by one, white space of values is theirs", () => {
    const text = `a\n<atem:function_calls>\n${invoke(parameter("b", " x\n"))}${invoke(parameter("a", "2"))}</atem:function_calls>\n`;
    expect(parse("muse", text)).toEqual(["a", ['f{"b":" x\\n"}', 'f{"a":2}'], false]);
    const { events } = read([text.slice(0, text.indexOf("</atem:invoke>") + 14)], formOf("muse"), "cut");
    expect(events.map(({ type }) => type)).toEqual(["text", "call"]);
  });

  test("a block that breaks off keeps its whole calls", () => {
    const open = `<atem:function_calls>\n${invoke("")}`;
    expect(parse("muse", open, "cut")).toEqual(["", ["f{}"], false]);
    expect(parse("muse", `${open}</atem:function_ca`, "ended")).toEqual(["", ["f{}"], false]);
    expect(parse("muse", `${open}<atem:invoke na`, "cut")).toEqual(["", ["f{}"], true]);
    expect(parse("muse", `${open}<atem:invoke name="f">\n<atem:par`, "cut")).toEqual(["", ["f{}"], true]);
    expect(parse("muse", `${open}then text`)).toEqual(["then text", ["f{}"], false]);
  });
});

describe("minicpm5", () => {
  test("sections are verbatim, other values raw", () => {
    const text =
      '<function name="f"><param name="b"><![CDATA[</param>]] >]]></param>\n<param name="a">3</param></function>';
    expect(parse("minicpm5", text)).toEqual(["", ['f{"b":"</param>]] >","a":3}'], false]);
    const raw = '<function name="f"><param name="b">x <![CDATA[y]]></param></function>';
    expect(parse("minicpm5", raw)).toEqual(["", ['f{"b":"x <![CDATA[y]]>"}'], false]);
  });

  test("what is no call is text", () => {
    for (const text of ['<function name="f" x="1">', '<function name="f">text', "<function name=f>", "<function "]) {
      expect(parse("minicpm5", text)).toEqual([text, [], false]);
    }
  });
});

describe("lfm2", () => {
  const block = (list: string) => `<|tool_call_start|>${list}<|tool_call_end|>`;

  test.each([
    ["strings", String.raw`[f(b='it\'s "so"\n\x41\u00e9\U0001F600\101\q')]`, 'f{"b":"it\'s \\"so\\"\\nAé😀A\\\\q"}'],
    ["numbers", "[f(a=-1_000, x=.5, y=1e3, z=9007199254740993)]", 'f{"a":-1000,"x":0.5,"y":1000,"z":9007199254740993}'],
    ["words of both languages", "[f(x=[True, false, None, null])]", 'f{"x":[true,false,null,null]}'],
    ["lists, tuples, dicts", "[f(x=(1, 2), y=(3), z={'k': (4,), 5: []},)]", 'f{"x":[1,2],"y":3,"z":{"k":[4],"5":[]}}'],
    ["places of the schema", "[f(7, 'x')]", 'f{"a":7,"b":"x"}'],
    ["brackets inside strings", "[f(b=')]<|tool_call_end|>')]", 'f{"b":")]<|tool_call_end|>"}'],
    ["dotted names", "[ g.h-i() ]", "g.h-i{}"],
    ["no place for a value", "[g.h-i(1)]", null],
    ["an unknown word", "[f(a=x)]", null],
    ["a list that is not closed", "[f(a=1)", null],
    ["an empty list", "[]", null],
    ["no list", "f(a=1)", null],
  ])("%s", (_what, list, expected) => {
    expect(parse("lfm2", block(list))).toEqual(expected === null ? [block(list), [], false] : ["", [expected], false]);
  });

  test("cut by a limit: whole calls of the list stay", () => {
    expect(parse("lfm2", "a<|tool_call_start|>[f(a=1), f(a=2", "cut")).toEqual(["a", ['f{"a":1}'], true]);
    expect(parse("lfm2", "<|tool_call_start|>[f(a=1), f(a=2", "ended")[1]).toEqual([]);
    expect(parse("lfm2", "<|tool_call_start|>[f(a=1)]", "cut")).toEqual(["", ['f{"a":1}'], false]);
  });
});

test("a call that the prompt has begun", () => {
  const begun = '<tool_call>\n{"name": "f", "arguments": ';
  const { calls, events } = read(['{"a": 1}', "}\n</tool_call>"], { ...formOf("hermes"), begun });
  expect(calls).toEqual([{ name: "f", arguments: '{"a":1}' }]);
  expect(events).toMatchObject([{ type: "call", end: '{"a": 1}}\n</tool_call>'.length }]);
  expect(read(["no"], { ...formOf("hermes"), begun }).content).toBe(`${begun}no`);
});
