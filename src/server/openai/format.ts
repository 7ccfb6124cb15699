/**
 * `response_format` of chat and text completions, and the extensions `grammar`, `regex` and `choice` beside it. At most
 * one of the four says anything (structured-output.md §1).
 */
import { type Static, Type as t } from "@sinclair/typebox";
import { jsonSchemaWish } from "../dialect/format.ts";
import { limit, SCHEMA_LIMITS } from "../dialect/schema-limits.ts";
import { invalidRequest } from "../errors.ts";
import type { FormatWish } from "../generation/request.ts";
import { nullable } from "./nullable.ts";

export const formatType = t.Union([t.Literal("text"), t.Literal("json_object"), t.Literal("json_schema")], {
  "x-must-be": "'text', 'json_object' or 'json_schema'",
});

export const jsonSchemaFields = {
  name: t.String({ description: "1 to 64 of A-Z a-z 0-9 _ -" }),
  schema: t.Object({}, { additionalProperties: true, description: "A JSON schema." }),
  strict: nullable(t.Boolean({ description: "Refuse what the grammar cannot hold instead of relaxing it." })),
  description: nullable(t.String()),
};

export const formatFields = {
  response_format: t.Optional(
    t.Object({ type: formatType, json_schema: nullable(t.Object(jsonSchemaFields)) }, { description: "Of the text." }),
  ),
  grammar: t.Optional(t.String({ minLength: 1, description: "EBNF that the text follows; the rule `root` begins." })),
  regex: t.Optional(t.String({ minLength: 1, description: "Expression that the whole text matches." })),
  choice: t.Optional(t.Array(t.String({ minLength: 1 }), { minItems: 1, description: "The text is one of these." })),
};

const formatSchema = t.Object(formatFields);

export interface Format {
  readonly format: FormatWish | null;
  readonly formatParam: string;
}

/** Throws 400 naming the field. */
export function formatOf(body: Static<typeof formatSchema>): Format {
  const given = [
    responseFormat(body.response_format),
    body.grammar !== undefined && wish("grammar", { kind: "grammar", ebnf: body.grammar }),
    body.regex !== undefined && wish("regex", { kind: "regex", pattern: body.regex }),
    body.choice !== undefined && wish("choice", { kind: "choice", choices: body.choice }),
  ].filter((one) => one !== null && one !== false);
  const [first, second] = given;
  if (second !== undefined && first !== undefined) {
    const message = `'${second.formatParam}' cannot be combined with '${first.formatParam}'`;
    throw invalidRequest(second.formatParam, message);
  }
  return first ?? { format: null, formatParam: "response_format" };
}

function wish(formatParam: string, format: FormatWish): Format {
  if (format.kind === "choice") limit("choices", format.choices.length, SCHEMA_LIMITS.enumValues, formatParam);
  limit("bytes", Buffer.byteLength(JSON.stringify(format)), SCHEMA_LIMITS.bytes, formatParam);
  return { format, formatParam };
}

function responseFormat(body: Static<typeof formatSchema>["response_format"]): Format | null {
  const formatParam = "response_format";
  if (body === undefined || body.type === "text") return null;
  if (body.type === "json_object") return { format: { kind: "json_object" }, formatParam };
  const at = `${formatParam}.json_schema`;
  if (body.json_schema == null) throw invalidRequest(at, `'${at}' is required`);
  return { format: jsonSchemaWish(body.json_schema, formatParam, at), formatParam };
}
