/**
 * Input items of `POST /v1/responses` as messages (http-openai.md §6). Clients replay whole turns as items: calls that
 * follow each other or the assistant's words become one turn with them, and thoughts belong to the turn behind them.
 * Items of kinds that have no place in a prompt are skipped.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import type { LooseMessage, LooseToolCall } from "../../text/chat/normalize.ts";
import { valueChecker } from "../dialect/validation.ts";
import { nullable } from "../openai/nullable.ts";
import { contentText, partSchema } from "../openai/parts.ts";

const contentSchema = t.Union([t.String(), t.Array(partSchema), t.Null()], {
  "x-must-be": "a string or a list of content parts",
});

const messageItem = t.Object({
  type: nullable(t.Literal("message")),
  role: t.Union([t.Literal("user"), t.Literal("assistant"), t.Literal("system"), t.Literal("developer")], {
    "x-must-be": "user, assistant, system or developer",
  }),
  content: t.Optional(contentSchema),
});

const callItem = t.Object({
  type: t.Literal("function_call"),
  call_id: t.String(),
  name: t.String(),
  arguments: t.String({ description: "JSON text of an object." }),
});

const outputItem = t.Object({
  type: t.Literal("function_call_output"),
  call_id: t.String(),
  output: t.Union([t.String(), t.Array(partSchema)], { "x-must-be": "a string or a list of content parts" }),
});

const thoughtSchema = t.Object({ text: nullable(t.String()) });

const reasoningItem = t.Object({
  type: t.Literal("reasoning"),
  summary: nullable(t.Array(thoughtSchema)),
  content: nullable(t.Array(thoughtSchema)),
});

/** Any item; the kinds that are read are checked one by one, so that others may look as they like. */
export const itemSchema = t.Unknown({ anyOf: [messageItem, callItem, outputItem, reasoningItem] });

const readMessage = valueChecker(messageItem);
const readCall = valueChecker(callItem);
const readOutput = valueChecker(outputItem);
const readReasoning = valueChecker(reasoningItem);

/** Messages of the items that are read, in their order; throws 400 naming the part of an item that is wrong. */
export function itemMessages(items: readonly unknown[]): LooseMessage[] {
  const turns = new Turns();
  items.forEach((item, index) => {
    take(item, `input[${index}]`, turns);
  });
  return turns.messages;
}

function take(item: unknown, at: string, turns: Turns): void {
  switch (kindOf(item)) {
    case "message": {
      const { role, content } = readMessage(item, at);
      turns.message(role, contentText(content ?? "", `${at}.content`));
      return;
    }
    case "function_call": {
      const { call_id, name, arguments: text } = readCall(item, at);
      turns.call({ id: call_id, name, arguments: text });
      return;
    }
    case "function_call_output": {
      const { call_id, output } = readOutput(item, at);
      turns.result(call_id, contentText(output, `${at}.output`));
      return;
    }
    case "reasoning": {
      const { content, summary } = readReasoning(item, at);
      turns.thoughts(thoughtsText(content) || thoughtsText(summary));
      return;
    }
  }
}

/** A role makes a message also of an item that does not say its kind. */
function kindOf(item: unknown): unknown {
  if (typeof item !== "object" || item === null) return undefined;
  if ("type" in item && item.type != null) return item.type;
  return "role" in item ? "message" : undefined;
}

function thoughtsText(parts: Static<typeof reasoningItem>["content"]): string {
  return (parts ?? []).map(({ text }) => text ?? "").join("\n");
}

/** The turns so far; the last one may still grow. */
class Turns {
  readonly messages: LooseMessage[] = [];
  private waiting = "";

  message(role: "user" | "assistant" | "system" | "developer", content: string): void {
    if (role === "assistant") this.messages.push({ role, content, ...this.takeThoughts() });
    else this.push({ role, content });
  }

  call(call: LooseToolCall): void {
    const last = this.messages.at(-1);
    if (last?.role !== "assistant") {
      this.messages.push({ role: "assistant", content: "", ...this.takeThoughts(), toolCalls: [call] });
      return;
    }
    const reasoning = [last.reasoning ?? "", this.takeThoughts().reasoning ?? ""].filter((text) => text !== "");
    this.messages[this.messages.length - 1] = {
      ...last,
      ...(reasoning.length > 0 && { reasoning: reasoning.join("\n\n") }),
      toolCalls: [...(last.toolCalls ?? []), call],
    };
  }

  result(toolCallId: string, content: string): void {
    this.push({ role: "tool", toolCallId, content });
  }

  thoughts(text: string): void {
    this.waiting = [this.waiting, text].filter((one) => one !== "").join("\n\n");
  }

  /** Thoughts that no assistant's turn follows are nobody's. */
  private push(message: LooseMessage): void {
    this.waiting = "";
    this.messages.push(message);
  }

  private takeThoughts(): { readonly reasoning?: string } {
    const reasoning = this.waiting;
    this.waiting = "";
    return reasoning === "" ? {} : { reasoning };
  }
}
