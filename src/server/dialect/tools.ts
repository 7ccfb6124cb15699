/**
 * From the tools of a request and what it says of their choice to what is rendered and what may be called
 * (tool-calls.md §2, §7). All tools are rendered whichever may be called, so that the prompt stays the same.
 */
import type { ToolDefinition } from "../../text/index.ts";
import { invalidRequest } from "../errors.ts";
import { type CallableTool, NO_TOOLS, type ToolPolicy } from "../generation/request.ts";
import { deeperThan, NESTING_MAX } from "./depth.ts";
import { checkSchemaLimits, limit, SCHEMA_LIMITS } from "./schema-limits.ts";
import { clip } from "./words.ts";

/** A `tool_choice` of any dialect. */
export type ToolChoice =
  | { readonly kind: "none" }
  | { readonly kind: "auto" }
  | { readonly kind: "required" }
  | { readonly kind: "named"; readonly name: string }
  /** Only these may be called. */
  | { readonly kind: "allowed"; readonly names: readonly string[]; readonly required: boolean };

export interface ToolWish {
  readonly tools: readonly CallableTool[];
  readonly choice: ToolChoice;
  /** False: at most one call. */
  readonly parallel: boolean;
}

export interface ToolSetup {
  /** For the conversation. */
  readonly rendered: readonly ToolDefinition[];
  readonly policy: ToolPolicy;
}

/** Throws 400 naming `tools` or `tool_choice`. */
export function toolSetup(wish: ToolWish): ToolSetup {
  const { tools, choice, parallel } = wish;
  for (const tool of tools) {
    if (deeperThan(tool.parameters, NESTING_MAX)) {
      throw invalidRequest("tools", `the schema of '${clip(tool.name)}' is nested deeper than ${NESTING_MAX} levels`);
    }
  }
  if (choice.kind === "none") return { rendered: [], policy: NO_TOOLS };
  if (tools.length === 0) {
    if (choice.kind !== "auto") throw invalidRequest("tool_choice", "'tool_choice' needs 'tools' to choose from");
    return { rendered: [], policy: NO_TOOLS };
  }
  const policy: ToolPolicy = { ...callable(tools, choice), parallel };
  if (policy.choice.kind !== "auto" || policy.tools.some(({ strict }) => strict)) checkGrammarLimits(policy.tools);
  return { rendered: tools.map(({ strict: _strict, ...definition }) => definition), policy };
}

function callable(
  tools: readonly CallableTool[],
  choice: Exclude<ToolChoice, { kind: "none" }>,
): Pick<ToolPolicy, "tools" | "choice"> {
  switch (choice.kind) {
    case "auto":
    case "required":
      return { tools, choice };
    case "named":
      return { tools: byName(tools, [choice.name]), choice };
    case "allowed":
      if (choice.required && choice.names.length === 0) {
        throw invalidRequest("tool_choice", "'tool_choice' requires a call but allows no function");
      }
      return { tools: byName(tools, choice.names), choice: { kind: choice.required ? "required" : "auto" } };
  }
}

function byName(tools: readonly CallableTool[], names: readonly string[]): CallableTool[] {
  const unknown = names.find((name) => tools.every((tool) => tool.name !== name));
  if (unknown !== undefined) {
    throw invalidRequest("tool_choice", `'tool_choice' names '${clip(unknown)}', which is not in 'tools'`);
  }
  return tools.filter(({ name }) => names.includes(name));
}

/** What is held by a grammar has the grammar's limits. */
function checkGrammarLimits(tools: readonly CallableTool[]): void {
  limit("tools", tools.length, SCHEMA_LIMITS.tools, "tools");
  for (const tool of tools) checkSchemaLimits(tool.parameters, "tools");
}
