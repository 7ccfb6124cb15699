/** What the reference set cannot show: the interface, messages, numbers, dates, and speed. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { TemplateError } from "../../../src/text/jinja/errors.ts";
import { formatsTimeOfDay, formatTime } from "../../../src/text/jinja/strftime.ts";
import { compileTemplate } from "../../../src/text/jinja/template.ts";
import { JsonNumber, parseJsonKeepingNumbers, stringifyJson } from "../../../src/text/json-numbers.ts";

function render(template: string, variables: Readonly<Record<string, unknown>> = {}): string {
  return compileTemplate(template).render(variables);
}

function errorOf(template: string): TemplateError {
  try {
    render(template);
  } catch (error) {
    if (error instanceof TemplateError) return error;
  }
  throw new Error("no TemplateError");
}

test("a template's own message comes word for word, others with their line", () => {
  expect(errorOf("\n{{ raise_exception('Conversation roles must alternate') }}").message).toBe(
    "Conversation roles must alternate",
  );
  expect(errorOf("a\nb{% if x.y %}{% endif %}").message).toBe("'x' is undefined (line 2 of the template)");
  expect(errorOf("{# c\n#}\n{{ {'a': 1}.b.c }}").message).toBe(
    "'dict object' has no attribute 'b' (line 3 of the template)",
  );
  expect(errorOf("{% if x %}\n\n").message).toBe(
    "the template ends inside '{% if %}' of line 1 (line 2 of the template)",
  );
  expect(errorOf("{% set a %}{% elif %}").line).toBe(1);
});

test("one compiled template renders many times without memory of the last", () => {
  const template = compileTemplate(
    "{% set ns = namespace(n=0) %}{% for a in l %}{% set ns.n = ns.n + a %}{% endfor %}{{ ns.n }}",
  );
  expect(template.render({ l: [1, 2] })).toBe("3");
  expect(template.render({ l: [5] })).toBe("5");
  expect(template.render({})).toBe("0");
});

test("undefined variables and members are absent, null is None", () => {
  expect(
    render("{{ a is defined }}{{ b is none }}{{ d }}", { a: undefined, b: null, d: { x: undefined, y: null } }),
  ).toBe("FalseTrue{'y': None}");
});

test("numbers keep the spelling that JSON gave them", () => {
  const text = '{"a":1.0,"b":1,"c":1e5,"d":12345678901234567890,"e":-0.0,"f":1.50,"g":[1E400,0]}';
  expect(render("{{ x|tojson }} {{ x.a }} {{ x.b }}", { x: parseJsonKeepingNumbers(text) })).toBe(
    '{"a": 1.0, "b": 1, "c": 100000.0, "d": 12345678901234567890, "e": -0.0, "f": 1.5, "g": [Infinity, 0]} 1.0 1',
  );
  expect(render("{{ x }} {{ y }} {{ z }}", { x: 1, y: 1.5, z: new JsonNumber("1e0") })).toBe("1 1.5 1.0");
});

test("keys that look like indices keep their place", () => {
  const value = parseJsonKeepingNumbers('{"b":1,"1":{"x":2,"0":3},"__proto__":4}');
  expect(render("{{ x|tojson }}", { x: value })).toBe('{"b": 1, "1": {"x": 2, "0": 3}, "__proto__": 4}');
  expect(stringifyJson(value)).toBe('{"b":1,"1":{"x":2,"0":3},"__proto__":4}');
});

test("JSON is read as JSON.parse reads it, and refused where it refuses", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 4 }), (text) => {
      expect(JSON.parse(stringifyJson(parseJsonKeepingNumbers(text)))).toEqual(JSON.parse(text));
    }),
  );
  const pieces = fc.constantFrom(
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"a"',
    "1",
    "-",
    "01",
    "1.",
    "true",
    "nul",
    " ",
    '"\\x"',
    '"\n"',
  );
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 8 }), (parts) => {
      const text = parts.join("");
      const accepts = (parse: (text: string) => unknown) => {
        try {
          parse(text);
          return true;
        } catch (error) {
          expect(error).toBeInstanceOf(SyntaxError);
          return false;
        }
      };
      expect(accepts(parseJsonKeepingNumbers)).toBe(accepts(JSON.parse));
    }),
    { numRuns: 2_000 },
  );
  expect(() => parseJsonKeepingNumbers("[".repeat(100_000))).toThrow(SyntaxError);
  expect(() => parseJsonKeepingNumbers('{"a":1,"a":2}', { duplicateKeys: "error" })).toThrow("occurs twice");
  expect(JSON.stringify({ n: new JsonNumber("1.0") })).toBe('{"n":1.0}');
});

test("strftime_now", () => {
  const date = new Date(2024, 1, 5, 15, 4, 9);
  expect(formatTime(date, "%d %m %Y %y %b %B %a %A %H %I %M %S %p %j %%")).toBe(
    "05 02 2024 24 Feb February Mon Monday 15 03 04 09 PM 036 %",
  );
  expect(formatTime(date, "%-d/%-m")).toBe("5/2");
  expect(() => formatTime(date, "%Q")).toThrow(TemplateError);
  expect(formatsTimeOfDay("%H:%M")).toBe(true);
  expect(formatsTimeOfDay("%d %%H %B")).toBe(false);
  expect(compileTemplate("{{ strftime_now('%d %b %Y') }}").render({}, { now: () => date })).toBe("05 Feb 2024");
});

test("a conversation of 50 kB renders in a few milliseconds", () => {
  const template = compileTemplate(
    "{% for m in messages %}{% set c = m.content|trim %}{% if m.role == 'assistant' and '</think>' in c %}" +
      "{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}" +
      "{% for t in m.tool_calls or [] %}{{ t.function.arguments|tojson }}{% endfor %}{% endfor %}",
  );
  const messages = Array.from({ length: 250 }, (_unused, index) => ({
    role: index % 2 === 0 ? "user" : "assistant",
    content: `${"some words of text ".repeat(10)} 🙂`,
    tool_calls: [{ function: { arguments: { path: "a/b", lines: [1, 2, 3] } } }],
  }));
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 30; round += 1) {
    const start = performance.now();
    expect(template.render({ messages }).length).toBeGreaterThan(50_000);
    best = Math.min(best, performance.now() - start);
  }
  // 1.5 ms on two cores shared with other work; the best of the rounds shows what the machine's load hides.
  expect(best).toBeLessThan(15);
});
