/** The sandbox: every template ends soon, with text or a `TemplateError`, and reaches nothing outside. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { TemplateError } from "../../../src/text/jinja/errors.ts";
import { compileTemplate } from "../../../src/text/jinja/template.ts";

const LIMIT_MS = 1_000;

/** The error's message, within the time limit. */
function failure(template: string, variables: Readonly<Record<string, unknown>> = {}): string {
  const start = performance.now();
  try {
    compileTemplate(template).render(variables);
  } catch (error) {
    expect(performance.now() - start).toBeLessThan(LIMIT_MS);
    expect(error).toBeInstanceOf(TemplateError);
    return error instanceof TemplateError ? error.message : "";
  }
  throw new Error(`no error from ${template.slice(0, 80)}`);
}

test("a template of 1 MB", () => {
  expect(failure("x".repeat(2 ** 20))).toContain("characters");
  expect(failure("{{ a }}".repeat(150_000))).toContain("characters");
});

test("loops without end", () => {
  const nested = (inner: string, depth: number): string =>
    depth === 0 ? inner : `{% for a in range(1000) %}${nested(inner, depth - 1)}{% endfor %}`;
  expect(failure("{% for i in range(10000000) %}{% endfor %}")).toContain("range too big");
  expect(failure(nested("", 3))).toContain("steps");
  expect(failure(nested("{{ a|string|upper }}", 2))).toContain("steps");
});

test("recursion without end, and nesting in the source", () => {
  expect(failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")).toContain("deeper than 200");
  expect(failure(`{{ ${"(".repeat(5_000)}1${")".repeat(5_000)} }}`)).toContain("nested");
  expect(failure(`${"{% if 1 %}".repeat(5_000)}${"{% endif %}".repeat(5_000)}`)).toContain("nested");
  expect(failure(`{{ ${"not ".repeat(5_000)}1 }}`)).toContain("nested");
  expect(failure(`{{ ${"-".repeat(5_000)}1 }}`)).toContain("nested");
  expect(failure(`{{ a${".b".repeat(5_000)} }}`)).toContain("in a row");
  expect(failure(`{{ ${"1+".repeat(5_000)}1 }}`)).toContain("in a row");
  expect(failure("{% set n = namespace() %}{% set n.n = n %}{{ n }}")).toContain("nested too deeply");
});

test("memory", () => {
  expect(failure("{{ 'x' * 1000000000 }}")).toContain("longer than");
  expect(
    failure("{% set n = namespace(s='x') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}"),
  ).toContain("longer than");
  expect(failure("{{ [0] * 1000000000 }}")).toContain("items");
  expect(failure("{{ 2 ** 1000000000 }}")).toContain("bits");
  expect(failure("{{ '%1000000000d' % 1 }}")).toContain("longer than");
  expect(failure("{{ '{:1000000000}'.format(1) }}")).toContain("longer than");
  expect(failure("{{ 'x'.center(1000000000) }}")).toContain("longer than");
  expect(failure("{{ x|replace('', y) }}", { x: "a".repeat(10_000), y: "b".repeat(10_000) })).toContain("longer than");
  expect(failure("{% for i in range(1000) %}{{ x }}{% endfor %}", { x: "a".repeat(100_000) })).toContain("writes more");
});

test("work that grows with its operands is charged", () => {
  const text = "ab".repeat(500_000);
  expect(failure("{% for i in range(100000) %}{% set y = x|replace('a', 'b') %}{% endfor %}", { x: text })).toContain(
    "steps",
  );
  const list = Array.from({ length: 20_000 }, (_unused, index) => index);
  expect(failure("{% for i in x %}{% if -1 in x %}{% endif %}{% endfor %}", { x: list })).toContain("steps");
});

test("nothing outside is reachable", () => {
  for (const expression of ["''.__class__", "x.constructor", "x.__proto__", "x.toString", "[].map", "x.length"]) {
    expect(compileTemplate(`[{{ ${expression} }}]`).render({ x: {} })).toBe("[]");
  }
  expect(failure("{{ ''.__class__.__mro__ }}")).toContain("unsafe");
  expect(failure("{{ f() }}", { f: () => 1 })).toContain("function");
  expect(compileTemplate("{{ x.__proto__ }}{{ x['constructor'] }}").render({ x: JSON.parse('{"__proto__":1}') })).toBe(
    "1",
  );
});

const PIECES = [
  ..."{}%#-+ \n'\"()[]|.,:~=<>!*/\\0123456789aé🙂",
  ...["{%", "%}", "{{", "}}", "{#", "#}", " if ", " for ", " in ", " set ", " endfor ", " endif ", " else ", " is "],
  ...[
    " macro ",
    " endmacro ",
    " call ",
    " raw ",
    "{% endraw %}",
    " not ",
    " and ",
    " true ",
    "loop",
    "1.5e3",
    "namespace(",
  ],
  ...[
    "{% if a %}",
    "{% endif %}",
    "{% for a in b %}",
    "{% endfor %}",
    "{{ a }}",
    "{% set a = b %}",
    "|upper",
    ".split(",
  ],
];

test("random input gives text or a TemplateError, soon", () => {
  const source = fc.array(fc.constantFrom(...PIECES), { maxLength: 60 }).map((pieces) => pieces.join(""));
  fc.assert(
    fc.property(fc.oneof(source, fc.string({ unit: "binary", maxLength: 80 })), (template) => {
      const start = performance.now();
      try {
        expect(typeof compileTemplate(template).render({ a: 1, b: ["x", { c: null }] })).toBe("string");
      } catch (error) {
        expect(error).toBeInstanceOf(TemplateError);
      }
      expect(performance.now() - start).toBeLessThan(LIMIT_MS);
    }),
    { numRuns: 4_000 },
  );
});

test("hostile whitespace and quotes take linear time", () => {
  for (const unit of ["{%", "{% raw", "{#", "{{ '", " ", "\n  ", "{% raw %}{% endraw ", "1_", "((", "{{ 1 }}\n"]) {
    const start = performance.now();
    try {
      compileTemplate(unit.repeat(200_000 / unit.length));
    } catch (error) {
      expect(error).toBeInstanceOf(TemplateError);
    }
    expect(performance.now() - start).toBeLessThan(LIMIT_MS);
  }
});
