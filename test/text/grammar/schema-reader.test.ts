/** Every keyword of structured-output.md §4: taken, refused with its pointer, or noted as not enforced. */
import { describe, expect, test } from "bun:test";
import { GrammarError, textConstraint } from "../../../src/text/index.ts";

function read(schema: unknown, strict = true) {
  const constraint = textConstraint({
    format: { kind: "json_schema", schema, strict },
    calls: null,
    thoughts: { kind: "none" },
    controlId: () => undefined,
  });
  if (constraint === null) throw new Error("no constraint");
  return constraint;
}

function refusal(schema: unknown, strict = true): string {
  try {
    read(schema, strict);
  } catch (error) {
    if (error instanceof GrammarError) return error.message;
    throw error;
  }
  return "";
}

/** An object with one property of that schema. */
const within = (schema: unknown) => ({ type: "object", properties: { a: schema }, required: ["a"] });
const deep = (levels: number): unknown => (levels === 0 ? { type: "null" } : within(deep(levels - 1)));

describe("refusals", () => {
  const faults: readonly (readonly [string, unknown, string])[] = [
    ["unknown type", within({ type: "strin" }), '/properties/a/type: unknown type "strin"'],
    ["false", within(false), "/properties/a: no value can match false"],
    ["false in a branch", { anyOf: [{ type: "null" }, false] }, "/anyOf/1: no value can match false"],
    ["empty enum", within({ enum: [] }), "/properties/a/enum: must be a list of at least one value"],
    ["enum beside a type", within({ enum: ["x"], type: "integer" }), "/properties/a: no value can match"],
    ["lengths", within({ minLength: 3, maxLength: 2 }), "/properties/a/minLength: is above maxLength"],
    ["counts", within({ type: "array", minItems: 2, maxItems: 1 }), "/properties/a/minItems: is above maxItems"],
    ["bounds", within({ minimum: 3, maximum: 2 }), "/properties/a/minimum: is above the maximum"],
    [
      "exclusive bounds",
      within({ exclusiveMinimum: 2, maximum: 2 }),
      "/properties/a/exclusiveMinimum: is above the maximum",
    ],
    ["a number for a bound", within({ minimum: "3" }), "/properties/a/minimum: must be a number"],
    ["missing reference", within({ $ref: "#/$defs/x" }), "/properties/a/$ref: nothing stands at #/$defs/x"],
    ["anchor", within({ $ref: "#x" }), "/properties/a/$ref: nothing stands at #x"],
    [
      "remote reference",
      within({ $ref: "https://example.org/s.json" }),
      "/properties/a/$ref: a reference out of the schema is not supported: https://example.org/s.json",
    ],
    ["loop", { $defs: { a: { $ref: "#/$defs/a" } }, $ref: "#/$defs/a" }, "refers to itself"],
    ["endless", { $defs: { a: within({ $ref: "#/$defs/a" }) }, $ref: "#/$defs/a" }, "no finite value can match"],
    ["broken pattern", within({ pattern: "(" }), "/properties/a/pattern: not a regular expression"],
    ["a schema that is none", within(3), "/properties/a: a schema must be an object or a boolean"],
    ["properties", { properties: [] }, "/properties: must be an object"],
    ["allOf of two types", { allOf: [{ type: "string" }, { type: "null" }] }, "(root): no value can match"],
    ["a pointer with a slash", { properties: { "a/b~c": { type: "x" } } }, "/properties/a~1b~0c/type"],
    ["61 levels", deep(61), "nested deeper than 24 levels"],
    ["too many required", { ...within({}), maxProperties: 0 }, "(root): no value can match"],
  ];
  for (const [what, schema, message] of faults) {
    test(what, () => {
      expect(refusal(schema)).toContain(message);
      expect(refusal(schema, false)).toContain(message);
    });
  }

  test("24 levels are taken", () => {
    expect(refusal(deep(24))).toBe("");
    expect(refusal(deep(25))).toContain("nested deeper than 24 levels");
  });
});

describe("what no grammar holds", () => {
  const unsupported: Readonly<Record<string, unknown>> = {
    uniqueItems: true,
    contains: { type: "null" },
    multipleOf: 3,
    not: { type: "null" },
    if: { type: "null" },
    dependentRequired: { a: ["b"] },
    patternProperties: { "^a": {} },
    pattern: "(?=a)",
  };
  for (const [keyword, value] of Object.entries(unsupported)) {
    test(keyword, () => {
      const schema = within({ type: ["string", "array", "object", "integer"], [keyword]: value });
      const message = refusal(schema);
      expect(message).toStartWith(`/properties/a/${keyword}: `);
      expect(message).toEndWith("not supported (in a strict schema)");
      expect(read(schema, false).relaxed).toEqual([`/properties/a/${keyword}`]);
    });
  }

  test("unknown formats and large lower limits are noted, strict or not", () => {
    const schema = within({ type: "string", format: "hostname", minLength: 65 });
    for (const strict of [true, false]) {
      expect([...read(schema, strict).relaxed].sort()).toEqual(["/properties/a/format", "/properties/a/minLength"]);
    }
  });

  test("branches of oneOf that overlap are noted; those told apart by a constant are not", () => {
    const tagged = (tag: string) => ({ type: "object", properties: { kind: { const: tag } }, required: ["kind"] });
    expect(read({ oneOf: [{ type: "string" }, { type: "string", maxLength: 3 }] }).relaxed).toEqual(["/oneOf"]);
    expect(read({ oneOf: [tagged("a"), tagged("b")] }).relaxed).toEqual([]);
    expect(read({ oneOf: [{ type: "string" }, { type: "integer" }] }).relaxed).toEqual([]);
    expect(read({ oneOf: [{ type: "number" }, { type: "integer" }] }).relaxed).toEqual(["/oneOf"]);
  });
});

describe("limits of the whole", () => {
  test("bytes", () => {
    expect(refusal({ description: "x".repeat(262_144) })).toMatch(/^schema too large: bytes \d+ > 262144$/);
  });

  test("enum values", () => {
    expect(refusal({ enum: Array.from({ length: 5001 }, (_, i) => i) })).toBe(
      "schema too large: enum values 5001 > 5000",
    );
  });

  test("properties", () => {
    const properties = Object.fromEntries(Array.from({ length: 2001 }, (_, i) => [`p${i}`, { type: "null" }]));
    expect(refusal({ type: "object", properties })).toBe("schema too large: properties 2001 > 2000");
  });

  test("alternatives that multiply", () => {
    const many = { anyOf: Array.from({ length: 30 }, (_, i) => ({ properties: { [`p${i}`]: {} } })) };
    expect(refusal({ allOf: [many, many] })).toContain("multiplies out to too many alternatives");
  });
});

describe("what is counted beside the grammar", () => {
  test("large limits, and only those", () => {
    expect(read(within({ type: "string", maxLength: 32 })).counters).toBeNull();
    expect(read(within({ type: "array", maxItems: 64 })).counters).toBeNull();
    for (const schema of [
      { type: "string", maxLength: 33 },
      { type: "array", maxItems: 65 },
    ]) {
      const { counters, relaxed } = read(within(schema));
      expect(counters?.starts).toEqual([{ after: "", root: [0] }]);
      expect(relaxed).toEqual([]);
    }
  });
});
