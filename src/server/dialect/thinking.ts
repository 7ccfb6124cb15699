/**
 * How a request asks the model to think, from the fields that the dialects have for it (tool-calls.md §6). Fields of
 * the body win over the same names in `chat_template_kwargs`; whatever else is in there goes to the template as it is.
 */
import { type Effort, effortOf } from "../../text/chat/effort.ts";
import { invalidRequest } from "../errors.ts";
import type { ReasoningWish } from "../generation/request.ts";
import { deeperThan, NESTING_MAX } from "./depth.ts";
import { clip } from "./words.ts";

export interface ThinkingFields {
  readonly enableThinking?: boolean | undefined;
  /** A name of the scale; undefined and null: not given. */
  readonly effort?: unknown;
  /** Body field of the effort, for error messages. */
  readonly effortParam: string;
  readonly kwargs?: Readonly<Record<string, unknown>> | undefined;
}

export interface Thinking {
  readonly reasoning: ReasoningWish;
  /** What is left of the kwargs, for the template. */
  readonly kwargs: Readonly<Record<string, unknown>>;
}

/** Names that a template gets from the request itself. */
const RESERVED = ["messages", "tools", "add_generation_prompt"];

/** The wish; throws 400 naming the field. */
export function thinkingOf(fields: ThinkingFields): Thinking {
  const { enable_thinking: thinkingKwarg, reasoning_effort: effortKwarg, ...others } = checkedKwargs(fields.kwargs);
  const asked = namedEffort(fields.effort, fields.effortParam);
  const fromKwargs = typeof effortKwarg === "string" ? effortOf(effortKwarg) : null;
  // A word of the template's own, which the scale does not have.
  const ownEffort = effortKwarg !== undefined && effortKwarg !== null && fromKwargs === null;
  const thinking =
    fields.enableThinking ??
    (asked === "none" ? false : undefined) ??
    (typeof thinkingKwarg === "boolean" ? thinkingKwarg : undefined) ??
    (asked === null && fromKwargs === "none" ? false : undefined);
  return {
    reasoning: { thinking, effort: degree(asked ?? fromKwargs), split: true },
    kwargs: { ...others, ...(ownEffort && asked === null && { reasoning_effort: effortKwarg }) },
  };
}

function degree(effort: Effort | "none" | null): Effort | undefined {
  return effort === null || effort === "none" ? undefined : effort;
}

function namedEffort(given: unknown, param: string): Effort | "none" | null {
  if (given === undefined || given === null) return null;
  const effort = typeof given === "string" ? effortOf(given) : null;
  if (effort !== null) return effort;
  const shown = typeof given === "string" ? clip(given) : typeof given;
  throw invalidRequest(param, `${param} must be one of low, medium, high, xhigh, got '${shown}'`);
}

function checkedKwargs(kwargs: ThinkingFields["kwargs"]): Record<string, unknown> {
  const param = "chat_template_kwargs";
  for (const reserved of RESERVED) {
    if (kwargs !== undefined && Object.hasOwn(kwargs, reserved)) {
      throw invalidRequest(param, `'${param}' must not set '${reserved}'`);
    }
  }
  if (deeperThan(kwargs, NESTING_MAX)) throw invalidRequest(param, `'${param}' is nested deeper than ${NESTING_MAX}`);
  return { ...kwargs };
}
