/**
 * Words for the schemas of what the server writes. The types of the code come from them by `Static`, and `/openapi`
 * publishes them: a schema with a `$id` under that name. Nothing is checked against them at run time; tests do that.
 */
import { type TSchema, Type as t } from "@sinclair/typebox";

/** One of these values. */
export function oneOf<const T extends readonly (string | number | boolean)[]>(...values: T) {
  return t.Union(values.map((value: T[number]) => t.Literal(value)));
}

/** Always there; null: nothing to tell. */
export function orNull<T extends TSchema>(schema: T) {
  return t.Union([schema, t.Null()]);
}

/** By a number written as a text, as JSON has it. */
export function byNumber<T extends TSchema>(schema: T) {
  return t.Record(t.String(), schema);
}

export const count = t.Integer({ minimum: 0 });
export const strings = t.Array(t.String());
export const modeSchema = oneOf("baseline", "lookup", "dspark", "dflash");
/** What proposed a round's tokens. */
export const roundSource = oneOf("drafter", "lookup", "forced", "plain");
