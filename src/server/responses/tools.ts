/**
 * Tools of `POST /v1/responses` (http-openai.md §6): functions, flat or nested, and functions inside a namespace. Tools
 * that a service would run by itself (web search, shells, …) are dropped: this server runs none.
 */
import { Type as t } from "@sinclair/typebox";
import { valueChecker } from "../dialect/validation.ts";
import type { CallableTool } from "../generation/request.ts";
import { callableTool, chatToolSchema, functionFields } from "../openai/tool-choice.ts";

/** Namespaces hold functions, not namespaces. */
const functionTool = t.Object({ type: t.Literal("function"), ...functionFields });
const namespaceTool = t.Object({
  type: t.Literal("namespace"),
  name: t.String(),
  tools: t.Array(t.Unknown({ anyOf: [functionTool] })),
});

/** Any tool; the kinds that are read are checked one by one, so that others may look as they like. */
export const responseToolSchema = t.Unknown({ anyOf: [functionTool, chatToolSchema, namespaceTool] });

const readFlat = valueChecker(functionTool);
const readNested = valueChecker(chatToolSchema);
const readNamespace = valueChecker(namespaceTool);

export interface ResponseTool {
  readonly tool: CallableTool;
  /** A call of the tool names it again, so that the client finds the function. */
  readonly namespace: string | null;
}

/** The functions among the tools, by name: of two with one name the first. Throws 400 naming what is wrong. */
export function responseTools(tools: readonly unknown[]): ReadonlyMap<string, ResponseTool> {
  const found = new Map<string, ResponseTool>();
  const add = (tool: CallableTool, namespace: string | null) => {
    if (!found.has(tool.name)) found.set(tool.name, { tool, namespace });
  };
  tools.forEach((tool, index) => {
    const at = `tools[${index}]`;
    if (kindOf(tool) === "function") add(readFunction(tool, at), null);
    if (kindOf(tool) !== "namespace") return;
    const { name, tools: inner } = readNamespace(tool, at);
    inner.forEach((one, i) => {
      if (kindOf(one) === "function") add(readFunction(one, `${at}.tools[${i}]`), name);
    });
  });
  return found;
}

function readFunction(tool: unknown, at: string): CallableTool {
  const isNested = typeof tool === "object" && tool !== null && "function" in tool;
  return callableTool(isNested ? readNested(tool, at).function : readFlat(tool, at));
}

function kindOf(tool: unknown): unknown {
  return typeof tool === "object" && tool !== null && "type" in tool ? tool.type : undefined;
}
