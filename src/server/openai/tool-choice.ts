/**
 * `tools` and `tool_choice` as chat completions and responses write them. The two routes nest the same facts
 * differently (`{type, function: {name}}` and `{type, name}`); both forms are read on both.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import type { ToolChoice } from "../dialect/tools.ts";
import { invalidRequest } from "../errors.ts";
import type { CallableTool } from "../generation/request.ts";
import { nullable } from "./nullable.ts";

export const functionFields = {
  name: t.String({ minLength: 1 }),
  description: nullable(t.String()),
  parameters: nullable(t.Object({}, { additionalProperties: true, description: "A JSON schema of an object." })),
  strict: nullable(t.Boolean({ description: "Arguments must follow the schema." })),
};

const functionSchema = t.Object(functionFields);

/** A tool of chat completions. */
export const chatToolSchema = t.Object({
  type: t.Optional(t.Literal("function", { "x-must-be": "'function', the only kind of tool here" })),
  function: functionSchema,
});

export function callableTool(body: Static<typeof functionSchema>): CallableTool {
  const { name, description, parameters, strict } = body;
  return {
    name,
    ...(description != null && { description }),
    ...(parameters != null && { parameters }),
    strict: strict === true,
  };
}

const modeSchema = t.Union([t.Literal("auto"), t.Literal("required")]);
const namedSchema = t.Object({ type: t.Literal("function"), function: t.Object({ name: t.String() }) });
const flatNamedSchema = t.Object({ type: t.Literal("function"), name: t.String() });
const allowedToolSchema = t.Object({
  type: t.Optional(t.String()),
  name: t.Optional(t.String()),
  function: t.Optional(t.Object({ name: t.String() })),
});
const allowedFields = { mode: modeSchema, tools: t.Array(allowedToolSchema) };

export const toolChoiceSchema = t.Union(
  [
    t.Literal("none"),
    t.Literal("auto"),
    t.Literal("required"),
    namedSchema,
    flatNamedSchema,
    t.Object({ type: t.Literal("allowed_tools"), allowed_tools: t.Object(allowedFields) }),
    t.Object({ type: t.Literal("allowed_tools"), ...allowedFields }),
  ],
  { "x-must-be": "'none', 'auto', 'required', a function by its name, or a list of allowed functions" },
);

export type ToolChoiceBody = Static<typeof toolChoiceSchema>;

export function toolChoice(body: ToolChoiceBody | undefined): ToolChoice {
  if (body === undefined) return { kind: "auto" };
  if (typeof body === "string") return { kind: body };
  if (body.type === "function") return { kind: "named", name: "function" in body ? body.function.name : body.name };
  const { mode, tools } = "allowed_tools" in body ? body.allowed_tools : body;
  return { kind: "allowed", names: tools.flatMap(allowedName), required: mode === "required" };
}

/** Tools that are not functions are none of ours. */
function allowedName(tool: Static<typeof allowedToolSchema>): string[] {
  if (tool.type !== undefined && tool.type !== "function") return [];
  const name = tool.function?.name ?? tool.name;
  if (name === undefined) throw invalidRequest("tool_choice", "a tool in 'tool_choice' has no name");
  return [name];
}
