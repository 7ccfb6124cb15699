/**
 * Bodies of the Messages routes (http-anthropic.md §1). What clients add to it is ignored and never refused: a 400
 * for an unknown field costs Claude Code six attempts. So only what is read here has a type, and only where no
 * other type could be meant.
 */
import { type Static, Type as t } from "@sinclair/typebox";

/** A content block of any type; what a type needs of these fields is checked where it is read. */
const blockSchema = t.Object({
  type: t.String(),
  text: t.Optional(t.Unknown()),
  thinking: t.Optional(t.Unknown()),
  id: t.Optional(t.Unknown()),
  name: t.Optional(t.Unknown()),
  input: t.Optional(t.Unknown()),
  tool_use_id: t.Optional(t.Unknown()),
  tool_name: t.Optional(t.Unknown()),
  content: t.Optional(t.Unknown()),
  is_error: t.Optional(t.Unknown()),
  source: t.Optional(t.Unknown()),
  title: t.Optional(t.Unknown()),
});

const contentSchema = t.Union([t.String(), t.Null(), t.Array(t.Union([t.String(), blockSchema]))], {
  "x-must-be": "a string or a list of content blocks",
});

const turnSchema = t.Object({
  role: t.String({ description: "user, assistant or system" }),
  content: t.Optional(contentSchema),
});

/** Server tools have a `type` of their own and no `input_schema`. */
const toolSchema = t.Object({
  name: t.Optional(t.Unknown()),
  type: t.Optional(t.Unknown()),
  description: t.Optional(t.Unknown()),
  input_schema: t.Optional(t.Unknown({ description: "JSON schema of the arguments" })),
  strict: t.Optional(t.Unknown()),
  defer_loading: t.Optional(t.Unknown({ description: "true: known by name only, not shown to the model" })),
});

/** Also of `count_tokens`, which needs no more than the messages. */
export const messagesBodySchema = t.Object(
  {
    model: t.Optional(t.String({ description: "Echoed; the loaded model answers whatever it says." })),
    messages: t.Array(turnSchema, { minItems: 1, "x-message": "'messages': must be a non-empty array" }),
    system: t.Optional(contentSchema),
    tools: t.Optional(t.Array(toolSchema)),
    tool_choice: t.Optional(
      t.Object({
        type: t.Optional(t.Unknown({ description: "auto, any, tool or none" })),
        name: t.Optional(t.Unknown()),
        disable_parallel_tool_use: t.Optional(t.Unknown()),
      }),
    ),
    thinking: t.Optional(
      t.Object({ type: t.Optional(t.Unknown({ description: "disabled, or the model's default" })) }),
    ),
    output_config: t.Optional(
      t.Object({
        effort: t.Optional(t.Unknown({ description: "low, medium, high, xhigh or max" })),
        format: t.Optional(
          t.Union([t.Object({ type: t.Optional(t.Unknown()), schema: t.Optional(t.Unknown()) }), t.Null()]),
        ),
      }),
    ),
    max_tokens: t.Optional(t.Integer({ minimum: 1, description: "Cut to what the server and the window allow." })),
    stream: t.Optional(t.Boolean()),
    temperature: t.Optional(t.Number({ minimum: 0, maximum: 2, description: "0 = greedy" })),
    top_p: t.Optional(t.Number({ exclusiveMinimum: 0, maximum: 1 })),
    top_k: t.Optional(t.Integer({ minimum: 0, description: "0 = off" })),
    stop_sequences: t.Optional(t.Array(t.String())),
  },
  { additionalProperties: true },
);

export type Block = Static<typeof blockSchema>;
export type Content = Static<typeof contentSchema>;
export type Turn = Static<typeof turnSchema>;
export type Tool = Static<typeof toolSchema>;
export type MessagesBody = Static<typeof messagesBodySchema>;
