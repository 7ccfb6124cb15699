/** Values read again where their spelling counts: the same values, as they were written, and nothing else changed. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { stringifyJson } from "../../src/text/json-numbers.ts";
import { eachItem, type JsonPlaces, keepSpelling, SPELLED_HERE } from "../../src/text/json-places.ts";

const PLACES: JsonPlaces = {
  tools: eachItem({ schema: SPELLED_HERE, inner: eachItem({ schema: SPELLED_HERE }) }),
  one: { schema: SPELLED_HERE },
};

function kept(text: string): unknown {
  const value: object = JSON.parse(text);
  keepSpelling(text, value, PLACES);
  return value;
}

test("numbers and the order of members stay, at the places and nowhere else", () => {
  const schema = '{"10":1.0,"2":[1e3,12345678901234567890,-0],"a":{"z":0.10}}';
  const text = `{"other":{"10":1.0,"2":1},"tools":[{"schema":${schema}},7,{"inner":[null,{"schema":${schema}}]}],"one":{"schema":${schema}}}`;
  const expected = text.replace('{"10":1.0,"2":1}', '{"2":1,"10":1}');
  expect(stringifyJson(kept(text))).toBe(expected);
});

test("JSON.stringify loses no member of them and no digit", () => {
  const text = '{"one":{"schema":{"10":1.50,"2":{"1":90071992547409931}}}}';
  expect(JSON.stringify(kept(text))).toBe('{"one":{"schema":{"2":{"1":90071992547409931},"10":1.50}}}');
});

test.each([
  [
    "of two members with one name the last counts",
    '{"one":{"schema":{"a":1.0}},"one":{"schema":{"b":2.0}}}',
    '{"b":2.0}',
  ],
  ["also when it is no object", '{"one":{"schema":{"a":1.0},"schema":5}}', "5"],
  ["a name that is written with escapes", '{"\\u006fne":{"schema":{"a":1.0}}}', '{"a":1.0}'],
  [
    "blanks, and marks inside strings",
    '{ "x" : "\\\\\\"}{[" , "one" : { "schema" : { "a\\"}" : 1.0 } } }',
    '{"a\\"}":1.0}',
  ],
])("%s", (_name, text, expected) => {
  expect(stringifyJson(Reflect.get(Object(Reflect.get(Object(kept(text)), "one")), "schema"))).toBe(expected);
});

test("any body means what it meant", () => {
  const key = fc.oneof(fc.constantFrom("tools", "one", "schema", "inner", "a\\", '"', "0", "__proto__"), fc.string());
  const leaf = [fc.double({ noNaN: true, noDefaultInfinity: true }), fc.integer(), fc.string(), fc.constant(null)];
  const body = fc.object({ key, maxDepth: 4, maxKeys: 4, values: leaf });
  const indent = fc.constantFrom(undefined, 1, "\t\r\n ");
  fc.assert(
    fc.property(body, indent, (given, space) => {
      const text = JSON.stringify(given, null, space);
      expect(JSON.parse(stringifyJson(kept(text)))).toEqual(JSON.parse(text));
    }),
    { numRuns: 500 },
  );
});
