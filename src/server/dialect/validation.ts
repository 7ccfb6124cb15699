/**
 * Checks a body against its schema, with words in OpenAI's manner: which field, what it must be, what came (short
 * scalars only, so that a picture's data or a long text is never echoed). It runs before Elysia's own check of the
 * same schema, whose error spells out the whole body: seconds, or the end of the stack, for a deeply nested one.
 */
import type { Static, TSchema } from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import { invalidRequest, type RequestError } from "../errors.ts";
import { clip } from "./words.ts";

/** The part of a TypeBox value error that is used here. */
interface ValueErrorLike {
  readonly path: string;
  readonly message: string;
  readonly value: unknown;
  readonly schema: SchemaLike & Readonly<Record<string, unknown>>;
  /** Of a union, the errors of each variant. */
  readonly errors: readonly { First(): ValueErrorLike | undefined }[];
}

interface SchemaLike {
  readonly type?: unknown;
  readonly anyOf?: readonly SchemaLike[];
  readonly const?: unknown;
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
  readonly minLength?: number;
  /** What a value of this schema must be, in words. */
  readonly "x-must-be"?: string;
  /** The whole message, where clients know its words. */
  readonly "x-message"?: string;
}

/** A function that returns a body which keeps to the schema and throws 400, naming the field, for any other. */
export function bodyChecker(schema: TSchema): (body: Record<string, unknown>) => Record<string, unknown> {
  const compiled = TypeCompiler.Compile(schema);
  return (body) => {
    if (compiled.Check(body)) return body;
    throw violation(compiled.Errors(body).First());
  };
}

/** The same for a value inside a body, where only its own kind says which schema it has. `at` is its path. */
export function valueChecker<T extends TSchema>(schema: T): (value: unknown, at: string) => Static<T> {
  const compiled = TypeCompiler.Compile(schema);
  return (value, at) => {
    if (compiled.Check(value)) return value;
    throw violation(compiled.Errors(value).First(), at);
  };
}

function violation(outermost: ValueErrorLike | undefined, at = ""): RequestError {
  const first = outermost === undefined ? undefined : inNullable(outermost);
  const param = paramOf(first?.path ?? "", at);
  if (first === undefined || param === "") return invalidRequest(null, "the request body must be a JSON object");
  const message = first.schema["x-message"];
  if (message !== undefined) return invalidRequest(param, message);
  const missing = first.value === undefined && !("x-must-be" in first.schema);
  if (missing) return invalidRequest(param, `'${param}' is required`);
  return invalidRequest(param, `'${param}' must be ${requirement(first.schema)}${got(first.value)}`);
}

/** What is wrong inside a value that may also be null, if it is not. */
function inNullable(error: ValueErrorLike): ValueErrorLike {
  const { schema, value, errors } = error;
  const index = (schema.anyOf ?? []).findIndex(({ type }) => type !== "null");
  const isNullable = schema.anyOf?.length === 2 && schema.anyOf[1 - index]?.type === "null";
  if (!isNullable || value === null || value === undefined || "x-must-be" in schema) return error;
  const inner = errors[index]?.First();
  return inner === undefined || inner.path === error.path ? error : inNullable(inner);
}

/** `/messages/0/content` → `messages[0].content`, behind `at`. */
function paramOf(pointer: string, at: string): string {
  const parts = pointer.split("/").slice(1);
  return parts
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))
    .reduce((path, part) => {
      if (/^\d+$/.test(part)) return `${path}[${part}]`;
      return path === "" ? clip(part) : `${path}.${clip(part)}`;
    }, at);
}

function requirement(schema: SchemaLike): string {
  const stated = schema["x-must-be"];
  if (stated !== undefined) return stated;
  if (schema.anyOf !== undefined) return [...new Set(schema.anyOf.map(requirement))].join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  switch (schema.type) {
    case "number":
      return `a number${range(schema)}`;
    case "integer":
      return `an integer${range(schema)}`;
    case "string":
      return schema.minLength === undefined ? "a string" : "a non-empty string";
    case "boolean":
      return "true or false";
    case "array":
      return schema.minItems === undefined ? "a list" : "a non-empty list";
    case "null":
      return "null";
    default:
      return "an object";
  }
}

function range(schema: SchemaLike): string {
  const { minimum, exclusiveMinimum, maximum } = schema;
  const low = exclusiveMinimum !== undefined ? `above ${exclusiveMinimum}` : undefined;
  if (minimum !== undefined && maximum !== undefined) return ` between ${minimum} and ${maximum}`;
  if (low !== undefined && maximum !== undefined) return ` ${low} and at most ${maximum}`;
  if (low !== undefined) return ` ${low}`;
  if (minimum !== undefined) return ` not below ${minimum}`;
  if (maximum !== undefined) return ` not above ${maximum}`;
  return "";
}

function got(value: unknown): string {
  if (typeof value === "string") return `, got '${clip(value)}'`;
  if (typeof value === "number" || typeof value === "boolean") return `, got ${value}`;
  if (value === null) return ", got null";
  return "";
}
