/** Our Jinja against answers of Jinja2 itself: the specification's cases and a larger set, part of it from fuzzing. */
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { TemplateError } from "../../../src/text/jinja/errors.ts";
import { compileTemplate } from "../../../src/text/jinja/template.ts";
import { parseJsonKeepingNumbers } from "../../../src/text/json-numbers.ts";

const DATA = join(import.meta.dir, "../../data/text");
const SHARED_CASES = join(import.meta.dir, "../../../../shared/fixtures/text/jinja-cases.json");

type Variables = Readonly<Record<string, unknown>>;

interface SpecCase {
  readonly name: string;
  readonly template: string;
  readonly context: Variables;
  readonly out?: string;
  readonly throws?: boolean;
}

function variablesOf(value: unknown): Variables {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

/** The output, or the error as a value: anything but a `TemplateError` fails the test. */
function outcome(template: string, variables: Variables): string | TemplateError {
  try {
    return compileTemplate(template).render(variables);
  } catch (error) {
    if (error instanceof TemplateError) return error;
    throw error;
  }
}

function runSpecCases(path: string): void {
  const text = readFileSync(path, "utf8");
  const { cases } = JSON.parse(text) as { cases: readonly SpecCase[] };
  const exact = variablesOf(parseJsonKeepingNumbers(text)).cases;
  expect(cases.length).toBeGreaterThan(100);
  for (const [index, { name, template, out }] of cases.entries()) {
    const kept = Array.isArray(exact) ? variablesOf(variablesOf(exact[index]).context) : {};
    const got = outcome(template, kept);
    expect([name, got instanceof TemplateError ? "throws" : got]).toEqual([name, out ?? "throws"]);
  }
}

test("the specification's cases", () => runSpecCases(join(DATA, "jinja-cases.json")));

test.skipIf(!existsSync(SHARED_CASES))("the specification's cases, newest (skipped without ../shared)", () =>
  runSpecCases(SHARED_CASES),
);

test("Jinja2's answers to handwritten and random templates", () => {
  const text = readFileSync(join(DATA, "jinja-reference.json"), "utf8");
  const { cases } = JSON.parse(text) as { cases: readonly { t: string; o?: string; e?: 1 | string }[] };
  const variables = variablesOf(variablesOf(parseJsonKeepingNumbers(text)).ctx);
  expect(cases.length).toBeGreaterThan(700);
  for (const { t, o, e } of cases) {
    const got = outcome(t, variables);
    if (got instanceof TemplateError) {
      expect([t, typeof e === "string" ? got.message : 1]).toEqual([t, e ?? "no error"]);
    } else {
      expect([t, got]).toEqual([t, o ?? "an error"]);
    }
  }
});
