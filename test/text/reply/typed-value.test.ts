/** Raw values of calls by their schema (tool-calls.md §5). */
import { expect, test } from "bun:test";
import { parseJsonKeepingNumbers } from "../../../src/text/json-numbers.ts";
import { typedOrJson, typedValue } from "../../../src/text/reply/typed-value.ts";

const DEFINITIONS = { count: { type: "integer" }, loop: { $ref: "#/$defs/loop" }, name: { type: "string" } };

function typed(raw: string, schema: unknown, read = typedValue): string {
  return read(raw, "p", { type: "object", properties: { p: schema }, $defs: DEFINITIONS });
}

test.each([
  // A string is the text as it is, also where other types are allowed.
  ["123", { type: "string" }, '"123"'],
  ["null", { type: ["string", "null"] }, '"null"'],
  ["00123", { type: ["integer", "string"] }, '"00123"'],
  [' {"a": 1}\n', { type: "string" }, '" {\\"a\\": 1}\\n"'],
  ["é\u2028", { type: "string" }, '"é\u2028"'],
  ["x", { enum: ["x", 1] }, '"x"'],
  // Booleans in any case.
  ["TRUE", { type: "boolean" }, "true"],
  [" False ", { type: "boolean" }, "false"],
  ["yes", { type: "boolean" }, '"yes"'],
  ["1", { type: ["boolean", "integer"] }, "1"],
  // Integers keep their digits.
  ["9007199254740993", { type: "integer" }, "9007199254740993"],
  ["-0012", { type: "integer" }, "-12"],
  ["3.0", { type: "integer" }, "3"],
  ["1e3", { type: "integer" }, "1000"],
  ["3.5", { type: "integer" }, '"3.5"'],
  ["0x10", { type: "integer" }, '"0x10"'],
  // Numbers are finite.
  ["2.50", { type: "number" }, "2.5"],
  ["1e-7", { type: "number" }, "1e-7"],
  ["123456789012345678901", { type: "number" }, "123456789012345678901"],
  ["1e999", { type: "number" }, '"1e999"'],
  ["NaN", { type: "number" }, '"NaN"'],
  ["", { type: "number" }, '""'],
  // Objects and lists, compact, each only where allowed.
  ['{"b": 1.0, "a": [null]}', { type: "object" }, '{"b":1.0,"a":[null]}'],
  ["[1]", { type: "object" }, '"[1]"'],
  ["[1, 2]", { type: "array" }, "[1,2]"],
  ["{'a': 1}", { type: "object" }, "\"{'a': 1}\""],
  // null where it is allowed and text is not.
  ["None", { type: ["integer", "null"] }, "null"],
  ["null", { type: "integer", nullable: true }, "null"],
  ["null", { type: "integer" }, '"null"'],
  // Without `type`.
  ["2", { enum: [1, 2, 3] }, "2"],
  ["true", { const: true }, "true"],
  ["5", { anyOf: [{ type: "integer" }, { type: "null" }] }, "5"],
  ["null", { oneOf: [{ type: "integer" }, { type: "null" }] }, "null"],
  ["7", { $ref: "#/$defs/count" }, "7"],
  ["7", { allOf: [{ $ref: "#/$defs/name" }] }, '"7"'],
  // Schemas that say nothing: by form, if short and on one line.
  ["true", {}, "true"],
  ["none", { description: "x" }, "null"],
  ["-4", {}, "-4"],
  ["1.5", {}, "1.5"],
  ["00123", {}, '"00123"'],
  ["word", {}, '"word"'],
  ["[1]", {}, '"[1]"'],
  ["1\n", {}, "1"],
  ["1\n2", {}, '"1\\n2"'],
  [`${" ".repeat(32)}1`, {}, `"${" ".repeat(32)}1"`],
  ["1", { $ref: "#/$defs/loop" }, "1"],
  ["1", { $ref: "http://elsewhere/x" }, "1"],
  ["1", { anyOf: [{ type: "string" }, {}] }, "1"],
  ["1", { type: "unheard of" }, "1"],
])("%j as %j is %s", (raw, schema, expected) => {
  expect(typed(raw, schema)).toBe(expected);
  // Schemas whose numbers were kept come as they were read, and may be maps.
  expect(typed(raw, parseJsonKeepingNumbers(JSON.stringify(schema)))).toBe(expected);
});

test("a parameter that the schema does not name", () => {
  expect(typedValue("5", "q", { properties: { p: { type: "string" } } })).toBe("5");
  expect(typedValue("5", "q", { additionalProperties: { type: "string" } })).toBe('"5"');
  expect(typedValue("5", "q", undefined)).toBe("5");
  expect(typedValue("5", "toString", { properties: {} })).toBe("5");
  expect(typedValue("5", "0", new Map([["properties", new Map([["0", { type: "string" }]])]]))).toBe('"5"');
});

test("where no schema says more, any JSON or else text", () => {
  expect(typed('{"a": 1}', {}, typedOrJson)).toBe('{"a":1}');
  expect(typed('"quoted"', {}, typedOrJson)).toBe('"quoted"');
  expect(typed("ls -a", {}, typedOrJson)).toBe('"ls -a"');
  expect(typed('"quoted"', { type: "string" }, typedOrJson)).toBe('"\\"quoted\\""');
  expect(typed("true", { type: "string" }, typedOrJson)).toBe('"true"');
});
