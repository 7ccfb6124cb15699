/**
 * What an answer's text has to be an instance of, from the fields that dialects have for it (structured-output.md
 * §1): shape and limits are checked here, what a schema or a grammar means is the grammar engine's to say.
 */
import { invalidRequest } from "../errors.ts";
import type { FormatWish } from "../generation/request.ts";
import { checkSchemaLimits } from "./schema-limits.ts";
import { clip } from "./words.ts";

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

export interface JsonSchemaFormat {
  readonly name: string;
  readonly schema: unknown;
  readonly strict?: boolean | null | undefined;
}

/** @param param body field of the format; throws 400 naming it or the part of it that is wrong. */
export function jsonSchemaWish({ name, schema, strict }: JsonSchemaFormat, param: string, at = param): FormatWish {
  if (!NAME.test(name)) {
    throw invalidRequest(`${at}.name`, `'${at}.name' must be 1 to 64 of A-Z a-z 0-9 _ -, got '${clip(name)}'`);
  }
  checkSchemaLimits(schema, param);
  return { kind: "json_schema", name, schema, strict: strict === true };
}
