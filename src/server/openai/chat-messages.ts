/** Chat messages: the schema of one, and the checks that only this dialect knows (http-openai.md §2). */
import { type Static, Type as t } from "@sinclair/typebox";
import type { Message, ToolCall } from "../../text/index.ts";
import { stringifyJson } from "../../text/json-numbers.ts";
import { deeperThan, NESTING_MAX } from "../dialect/depth.ts";
import { clip } from "../dialect/words.ts";
import { invalidRequest } from "../errors.ts";
import { nullable } from "./nullable.ts";
import { contentText, partSchema } from "./parts.ts";

const toolCallSchema = t.Object({
  id: nullable(t.String()),
  type: nullable(t.String()),
  function: t.Object({ name: t.String(), arguments: t.Optional(t.Unknown()) }),
});

export const messageSchema = t.Object({
  role: t.String({ description: "system, developer, user, assistant or tool" }),
  content: t.Optional(
    t.Union([t.String(), t.Null(), t.Array(partSchema)], { "x-must-be": "a string, null or a list of content parts" }),
  ),
  name: nullable(t.String()),
  reasoning_content: nullable(t.String()),
  reasoning: nullable(t.String()),
  tool_call_id: nullable(t.String()),
  tool_calls: t.Optional(t.Union([t.Array(toolCallSchema), t.Null()], { "x-must-be": "a list of tool calls" })),
});

export type MessageBody = Static<typeof messageSchema>;

/** Messages for the template; throws 400 naming an unknown role or a part that a text model cannot read. */
export function chatMessages(bodies: readonly MessageBody[]): Message[] {
  return bodies.map((body, index) => chatMessage(body, `messages[${index}]`));
}

function chatMessage(body: MessageBody, at: string): Message {
  const content = contentText(body.content ?? "", `${at}.content`);
  const name = body.name != null && { name: body.name };
  switch (body.role) {
    case "system":
    case "developer":
      return { role: "system", content };
    case "user":
      return { role: "user", content, ...name };
    case "assistant": {
      const reasoning = body.reasoning_content ?? body.reasoning;
      const toolCalls = (body.tool_calls ?? []).map((call, i) => toolCall(call, i, `${at}.tool_calls[${i}]`));
      return {
        role: "assistant",
        content,
        ...(reasoning != null && { reasoning }),
        ...(toolCalls.length > 0 && { toolCalls }),
        ...name,
      };
    }
    case "tool":
      return { role: "tool", content, ...(body.tool_call_id != null && { toolCallId: body.tool_call_id }), ...name };
    default:
      throw invalidRequest(
        `${at}.role`,
        `unknown role '${clip(body.role)}'; expected system, developer, user, assistant or tool`,
      );
  }
}

function toolCall(body: Static<typeof toolCallSchema>, index: number, at: string): ToolCall {
  const { name, arguments: given } = body.function;
  if (deeperThan(given, NESTING_MAX)) {
    throw invalidRequest(`${at}.function.arguments`, `'arguments' is nested deeper than ${NESTING_MAX} levels`);
  }
  // Some clients send the value itself instead of its JSON text.
  const text = typeof given === "string" ? given : stringifyJson(given ?? {});
  return { id: body.id ?? `call_${index}`, name, arguments: text };
}
