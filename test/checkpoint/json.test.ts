/** The strict JSON reader against JSON.parse, and where the two must differ. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { JsonSyntaxError, parseJson } from "../../src/checkpoint/json.ts";

const strict = { uniqueKeys: true, nonFinite: false };
const lenient = { uniqueKeys: false, nonFinite: true };
const plain = (value: unknown) => JSON.parse(JSON.stringify(value));

test("equals JSON.parse on whatever JSON.stringify writes", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(undefined, 1, 2), (value, indent) => {
      const text = JSON.stringify(value, null, indent);
      expect(plain(parseJson(text, strict))).toEqual(JSON.parse(text));
    }),
  );
});

test("accepts and refuses the same strings as JSON.parse, but for duplicate keys", () => {
  const piece = fc.constantFrom(
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"a"',
    '"',
    "1",
    "-",
    "0",
    ".",
    "e1",
    "true",
    "null",
    " ",
    "\\u00e9",
    "\t",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
      const text = pieces.join("");
      const outcome = (parse: () => unknown) => {
        try {
          return { value: plain(parse()) };
        } catch (error) {
          return error instanceof SyntaxError || error instanceof JsonSyntaxError ? "refused" : error;
        }
      };
      const ours = outcome(() => parseJson(text, { uniqueKeys: false, nonFinite: false }));
      expect(ours).toEqual(outcome(() => JSON.parse(text)));
    }),
    { numRuns: 3000 },
  );
});

describe("differences", () => {
  test("duplicate keys, with their position", () => {
    expect(() => parseJson('{"a":1,"a":2}', strict)).toThrow(/"a" appears twice.*position 7/);
    expect(plain(parseJson('{"a":1,"a":2}', lenient))).toEqual({ a: 2 });
  });

  test("bare non-finite numbers", () => {
    expect(parseJson("[NaN, Infinity, -Infinity]", lenient)).toEqual([Number.NaN, Infinity, -Infinity]);
    expect(() => parseJson("[NaN]", strict)).toThrow(JsonSyntaxError);
  });

  test("a key __proto__ is data, and depth is limited", () => {
    const value = parseJson('{"__proto__":{"x":1}}', strict);
    expect(Object.keys(value as object)).toEqual(["__proto__"]);
    expect(({} as { x?: number }).x).toBeUndefined();
    expect(() => parseJson("[".repeat(100_000), strict)).toThrow(/nested deeper/);
  });
});
