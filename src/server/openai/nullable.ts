/** `null` means "absent" in every field (http-openai.md §1); this is it for fields inside objects. */
import { type TSchema, Type as t } from "@sinclair/typebox";

/** An optional field that may also be null. */
export function nullable<T extends TSchema>(schema: T) {
  return t.Optional(t.Union([schema, t.Null()]));
}
