/** Random schemas of the supported kind, and the independent judge of their instances: ajv. */
import { isIP } from "node:net";
import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";

export type Schema = Record<string, unknown>;

/** ajv with the formats that grammars keep, checked in other ways than there. */
export function judge(): Ajv2020 {
  const ajv = new Ajv2020({ strict: false });
  const isDate = (text: string) => !Number.isNaN(Date.parse(text)) && new Date(text).toISOString().startsWith(text);
  ajv.addFormat("date", isDate);
  ajv.addFormat("date-time", (text: string) => isDate(text.slice(0, 10)) && !Number.isNaN(Date.parse(text)));
  ajv.addFormat("time", (text: string) => !Number.isNaN(Date.parse(`2020-01-01T${text}`)));
  ajv.addFormat("ipv4", (text: string) => isIP(text) === 4);
  ajv.addFormat("ipv6", (text: string) => isIP(text) === 6);
  ajv.addFormat("uuid", /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i);
  ajv.addFormat("email", (text: string) => text.split("@").length === 2 && !/\s/.test(text));
  ajv.addFormat("uri", (text: string) => URL.canParse(text));
  return ajv;
}

export const PATTERNS = [
  "^[a-z]{2,4}$",
  "^(foo|bar)+$",
  "[0-9]",
  "^\\d{3}-\\d{4}$",
  '^"\\\\?x$',
  "^[^abc]*$",
  "é|ü",
  "^[а-я]+$",
  "^\\s?\\w+$",
  "x$",
  "^y",
  "",
  "^(a|b){2}c?$",
];
const FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "uri"];
const WORDS = ["a", "b", "name", "na", "größe", 'q"uote', "back\\slash", "0", "new\nline", "emoji 😀", ""];

const word = fc.constantFrom(...WORDS);

function range(max: number): fc.Arbitrary<readonly [number, number]> {
  return fc.tuple(fc.nat(max), fc.nat(max)).map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const);
}

const text: fc.Arbitrary<Schema> = fc.oneof(
  fc.constant({ type: "string" }),
  range(5).map(([minLength, maxLength]) => ({ type: "string", minLength, maxLength })),
  fc.constantFrom({ type: "string", maxLength: 70 }, { type: "string", maxLength: 40, minLength: 3 }),
  fc.constantFrom(...PATTERNS).map((pattern) => ({ type: "string", pattern })),
  fc.constantFrom(...FORMATS).map((format) => ({ type: "string", format })),
);

const bound = fc.oneof(fc.integer({ min: -1200, max: 1200 }), fc.constantFrom(0, 1e6, -1e9, 9007199254740991));
const decimal = fc.oneof(
  bound,
  fc.integer({ min: -500, max: 500 }).map((n) => n / 16),
  fc.constantFrom(1e-7, -2.5e-3, 0.1),
);

function bounded(type: string, value: fc.Arbitrary<number>): fc.Arbitrary<Schema> {
  const keys = fc.constantFrom("minimum", "exclusiveMinimum");
  const tops = fc.constantFrom("maximum", "exclusiveMaximum");
  return fc.oneof(
    fc.constant({ type }),
    fc.tuple(keys, value).map(([key, min]) => ({ type, [key]: min })),
    fc.tuple(tops, value).map(([key, max]) => ({ type, [key]: max })),
    fc
      .tuple(keys, tops, value, value)
      .filter(([, , a, b]) => Math.abs(a - b) > 1)
      .map(([low, high, a, b]) => ({ type, [low]: Math.min(a, b), [high]: Math.max(a, b) })),
  );
}

const values = fc.uniqueArray(fc.oneof(word, fc.integer(), fc.constantFrom(true, null, 1.5, [1, "a"], { a: null })), {
  minLength: 1,
  maxLength: 4,
  selector: (value) => JSON.stringify(value),
});

const leaf: fc.Arbitrary<Schema> = fc.oneof(
  text,
  bounded("integer", bound),
  bounded("number", decimal),
  fc.constantFrom<Schema>({ type: "boolean" }, { type: "null" }, { type: ["string", "null"] }, { type: "object" }, {}),
  values.map((list) => ({ enum: list })),
  word.map((value) => ({ const: value })),
  fc.constantFrom<Schema>({ $ref: "#/$defs/tree" }, { $ref: "#/$defs/pair", description: "beside it" }),
);

function array(inner: fc.Arbitrary<Schema>): fc.Arbitrary<Schema> {
  return fc.oneof(
    inner.map((items) => ({ type: "array", items })),
    fc.tuple(inner, range(4)).map(([items, [minItems, maxItems]]) => ({ type: "array", items, minItems, maxItems })),
    fc.tuple(inner, inner, fc.boolean()).map(([a, b, open]) => ({
      type: "array",
      prefixItems: [a, b],
      items: open ? { type: "null" } : false,
      minItems: 1,
    })),
    inner.map((items) => ({ type: "array", items, maxItems: 66 })),
  );
}

function object(inner: fc.Arbitrary<Schema>): fc.Arbitrary<Schema> {
  const properties = fc.dictionary(word, inner, { maxKeys: 4, noNullPrototype: true });
  const extra = fc.oneof(fc.constantFrom<unknown>(false, true, undefined, { type: "integer" }), inner);
  return fc.tuple(properties, extra, fc.infiniteStream(fc.boolean()), fc.nat(3)).map(([own, others, coins, kind]) => {
    const names = Object.keys(own);
    const required = names.filter(() => coins.next().value === true);
    const counts: Schema[] = [
      {},
      { minProperties: Math.min(1, names.length) },
      { maxProperties: Math.max(required.length, names.length - 1) },
      others === false || others === undefined ? {} : { propertyNames: { pattern: "^[a-z]*" } },
    ];
    const members = others === undefined ? {} : { additionalProperties: others };
    return { type: "object", properties: own, required, ...members, ...counts[kind] };
  });
}

function combined(inner: fc.Arbitrary<Schema>): fc.Arbitrary<Schema> {
  return fc.oneof(
    fc.array(inner, { minLength: 1, maxLength: 3 }).map((anyOf) => ({ anyOf })),
    fc.tuple(inner, inner).map(([a, b]) => ({
      allOf: [
        { type: "object", properties: { a }, required: ["a"] },
        { type: "object", properties: { b } },
      ],
    })),
  );
}

function nested(depth: number): fc.Arbitrary<Schema> {
  if (depth === 0) return leaf;
  const inner = nested(depth - 1);
  return fc.oneof(
    { weight: 2, arbitrary: leaf },
    array(inner),
    { weight: 3, arbitrary: object(inner) },
    combined(inner),
  );
}

const DEFS = {
  tree: {
    type: "object",
    properties: { value: { type: "integer" }, kids: { type: "array", items: { $ref: "#/$defs/tree" }, maxItems: 2 } },
    required: ["value"],
  },
  pair: { type: "array", prefixItems: [{ type: "string" }, { type: "boolean" }], items: false, minItems: 2 },
};

/** Schemas that every part of is supported. */
export const schemas: fc.Arbitrary<Schema> = nested(3).map((schema) => ({ ...schema, $defs: DEFS }));
