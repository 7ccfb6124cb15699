/** Tools and their choice, from this dialect's form to the shared one (http-anthropic.md §1, §4). */
import type { ToolChoice, ToolWish } from "../dialect/tools.ts";
import { invalidRequest } from "../errors.ts";
import type { CallableTool } from "../generation/request.ts";
import type { MessagesBody, Tool } from "./schema.ts";

/** Throws 400 naming `tool_choice` when it names no tool. */
export function toolWish({ tools, tool_choice: choice }: Pick<MessagesBody, "tools" | "tool_choice">): ToolWish {
  return {
    tools: (tools ?? []).flatMap(callable),
    choice: toolChoice(choice),
    parallel: choice?.disable_parallel_tool_use !== true,
  };
}

/** Tools of the service's own side (`web_search_…`) cannot be run here; deferred ones are not to be shown yet. */
function callable(tool: Tool): CallableTool[] {
  const { name, type, description, input_schema: schema } = tool;
  if (typeof name !== "string" || name === "" || tool.defer_loading === true) return [];
  const hasSchema = typeof schema === "object" && schema !== null;
  const isServerTool = type !== undefined && type !== null && type !== "custom" && !hasSchema;
  if (isServerTool) return [];
  return [
    {
      name,
      ...(typeof description === "string" && { description }),
      ...(hasSchema && { parameters: schema }),
      strict: tool.strict === true,
    },
  ];
}

/** Unknown kinds are `auto`, as every field that a newer client may know. */
function toolChoice(choice: MessagesBody["tool_choice"]): ToolChoice {
  switch (choice?.type) {
    case "none":
      return { kind: "none" };
    case "any":
      return { kind: "required" };
    case "tool":
      if (typeof choice.name !== "string") throw invalidRequest("tool_choice.name", "'tool_choice.name' is required");
      return { kind: "named", name: choice.name };
    default:
      return { kind: "auto" };
  }
}
