/** What large requests cost the thread that serves HTTP: the size of their grammars, and that names are found at once. */
import { expect, test } from "bun:test";
import { Rules } from "../../../src/text/grammar/rules.ts";
import { type CallFamily, textConstraint } from "../../../src/text/index.ts";

const base = { thoughts: { kind: "none" }, controlId: () => undefined } as const;

/** Rules of a grammar. */
function rules(ebnf: string | undefined): number {
  return ebnf?.split("\n").length ?? 0;
}

const FAMILIES: readonly CallFamily[] = ["hermes", "xml", "gemma4", "muse", "minicpm5", "lfm2"];

test.each(FAMILIES)("%s: a format that many tools have is written once", (family) => {
  const written = (count: number) =>
    rules(
      textConstraint({
        ...base,
        // gemma4 and lfm2 know their markers as control tokens.
        controlId: () => 7,
        format: null,
        calls: {
          family,
          required: true,
          parallel: true,
          tools: Array.from({ length: count }, (_, i) => ({
            name: `f${i}`,
            strict: true,
            parameters: { type: "object", properties: { to: { type: "string", format: "email" } }, required: ["to"] },
          })),
        },
      })?.ebnf,
    );
  const [few, many] = [written(2), written(32)];
  const perTool = (many - few) / 30;
  const email = rules(
    textConstraint({
      ...base,
      calls: null,
      format: { kind: "json_schema", schema: { type: "string", format: "email" }, strict: true },
    })?.ebnf,
  );
  expect(email).toBeGreaterThan(10);
  expect(perTool).toBeLessThan(10);
});

test("texts that differ in length or pattern are not taken for each other; what is not exact is told of each", () => {
  const text = { type: "string", pattern: "^[a-\uffff]+$" };
  const constraint = textConstraint({
    ...base,
    calls: null,
    format: {
      kind: "json_schema",
      strict: false,
      schema: {
        type: "object",
        properties: { a: text, b: text, c: { type: "string", maxLength: 2 }, d: { type: "string", maxLength: 3 } },
        required: ["a", "b", "c", "d"],
      },
    },
  });
  expect(constraint?.relaxed).toEqual(["/properties/a/pattern", "/properties/b/pattern"]);
  const ruleOf = (name: string) => new RegExp(`^${name} ::= "\\\\"" (\\w+)`, "m").exec(constraint?.ebnf ?? "")?.[1];
  const [a, b, c, d] = ["va", "vb", "vc", "vd"].map(ruleOf);
  expect(a).toBeDefined();
  expect(b).toBe(a);
  expect(new Set([a, c, d]).size).toBe(3);
});

test("the thousandth rule of a name is named as fast as the first", () => {
  const all = new Rules();
  const names = Array.from({ length: 50_000 }, () => all.name("v"));
  expect(new Set(names).size).toBe(names.length);
  expect(all.name("v_2_")).toBe("v_2_");
  // Looking for a free number from the start each time would take minutes.
}, 2000);
