/**
 * The time of one mask in every form of rule that our grammars are made of, over SmolLM2's vocabulary, along texts of a
 * random model: a new form belongs here (a wrong one costs a hundred times as much, structured-output.md §3.5).
 *
 * Usage: bun bench/engine/mask-time.ts [--rounds N]   (texts per form)
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type GrammarFormat, TextTokenizer, textConstraint } from "../../src/text/index.ts";
import { GrammarWalker } from "../../test/support/grammar-walk.ts";
import { smollm2Folder } from "../../test/support/smollm2.ts";
import { type Line, report } from "../support/report.ts";
import { roundsFlag } from "../support/rounds-flag.ts";
import { spread } from "../support/statistics.ts";

/** Median of a mask, at 49,152 tokens. */
const LIMIT_US = 100;
const TOKENS_MAX = 120;
/** Texts until everything is compiled. */
const WARMUP = 8;

const object = (properties: Readonly<Record<string, unknown>>, more = {}) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  ...more,
});
const many = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`name${i}`, { type: "string" }]));
const text = (more = {}) => object({ a: { type: "string", ...more } });

const SCHEMAS: Readonly<Record<string, unknown>> = {
  string: text(),
  "string, length in the grammar": text({ minLength: 2, maxLength: 32 }),
  "string, length counted": text({ maxLength: 80 }),
  "pattern, anchored": text({ pattern: "^[a-z]+@[a-z]+$" }),
  "pattern, open": text({ pattern: "[0-9]" }),
  "pattern beyond ASCII": text({ pattern: "^[а-яё]+$" }),
  "format email": text({ format: "email" }),
  "format uri": text({ format: "uri" }),
  "format date-time": text({ format: "date-time" }),
  integer: object({ a: { type: "integer" } }),
  "integer, bounded": object({ a: { type: "integer", minimum: -17, maximum: 123456 } }),
  "number, bounded": object({ a: { type: "number", exclusiveMinimum: 0.5, maximum: 1e6 } }),
  constants: object({ a: { enum: Array.from({ length: 1000 }, (_, i) => `value-${i}`) } }),
  "list, counted in the grammar": object({
    a: { type: "array", items: { type: "integer" }, minItems: 2, maxItems: 9 },
  }),
  "list, counted beside it": object({ a: { type: "array", items: { type: "string" }, maxItems: 100 } }),
  "names of any kind": object({ name: { type: "string" } }, { additionalProperties: { type: "string" } }),
  "40 optional properties": object(many(40), { required: [] }),
  branches: object({ a: { anyOf: [{ type: "string" }, { type: "integer" }, object({ b: {} }), object({ c: {} })] } }),
  recursion: object({ v: { type: "integer" }, kids: { type: "array", items: { $ref: "#" } } }),
  "any value": object({ a: {} }),
};

const TOOL = {
  name: "lookup",
  parameters: object({
    query: { type: "string" },
    count: { type: "integer" },
    tags: { type: "array", items: { type: "string" } },
  }),
  strict: true,
};

const count = roundsFlag(12);
const folder = mkdtempSync(join(tmpdir(), "mask-time-"));
const walker = new GrammarWalker(await TextTokenizer.load(await smollm2Folder(folder)));
const eosId = walker.tokenizer.eosIds[0] ?? 2;

function constraintOf(
  format: GrammarFormat | null,
  family: "hermes" | "xml" | "gemma4" | null = null,
  required = true,
) {
  const constraint = textConstraint({
    format,
    calls: family === null ? null : { family, tools: [TOOL], required, parallel: true },
    thoughts: { kind: "none" },
    controlId: () => undefined,
  });
  if (constraint === null) throw new Error("no constraint");
  return constraint;
}

const forms = new Map(
  Object.entries(SCHEMAS).map(([name, schema]) => [name, constraintOf({ kind: "json_schema", schema, strict: true })]),
);
forms.set("any object, spaced", constraintOf({ kind: "json_object" }));
forms.set(
  "grammar of a request",
  constraintOf({ kind: "grammar", ebnf: 'root ::= item+\nitem ::= [a-z]{2,9} ("," | ";")?' }),
);
for (const family of ["hermes", "xml", "gemma4"] as const) {
  forms.set(`call, ${family}`, constraintOf(null, family));
  forms.set(`text with calls, ${family}`, constraintOf(null, family, false));
}

const lines: Line[] = [];
const [first] = forms.values();
for (let seed = 0; first !== undefined && seed < WARMUP; seed++) await walker.walk(first, { seed, eosId });
for (const [name, constraint] of forms) {
  const times: number[] = [];
  for (let seed = 0; seed < count; seed++) {
    const { maskMs } = await walker.walk(constraint, { seed, eosId, tokensMax: TOKENS_MAX });
    // The first text of a form warms it up.
    if (seed > 0) times.push(...maskMs.map((ms) => ms * 1000));
  }
  lines.push({ name, unit: "µs", value: spread(times), limit: LIMIT_US });
}
rmSync(folder, { recursive: true });
if (!report("mask-time", lines, [])) process.exitCode = 1;
