/** The query of a URL by its schema, in the words that bodies are refused in. */
import type { Static, TObject } from "@sinclair/typebox";
import { valueChecker } from "../dialect/validation.ts";

/** What a URL's query says of the schema's properties, all of them optional; throws 400 naming the one that is wrong. */
export function queryReader<T extends TObject>(schema: T): (url: string) => Static<T> {
  const check = valueChecker(schema);
  const properties = Object.entries(schema.properties);
  return (url) => {
    const given = new URL(url).searchParams;
    const values = properties.flatMap(([name, { type }]) => {
      const text = given.get(name);
      if (text === null) return [];
      return [[name, type === "integer" && /^\d{1,15}$/.test(text) ? Number(text) : text]];
    });
    return check(Object.fromEntries(values), "");
  };
}
