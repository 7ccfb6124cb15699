/**
 * What a template cannot render is said in words that it can: system text before the first user turn, calls in the
 * family's syntax as the assistant's text, results as a user turn. This happens after callers' strings were guarded,
 * so the markup written here is the program's own and counts as such.
 */
import { type CallFamily, writeCalls } from "./call-syntax.ts";
import type { Message, ToolMessage } from "./messages.ts";
import { joinNeighbours, joinTexts } from "./neighbours.ts";
import type { TemplateTraits } from "./traits.ts";

/**
 * The messages as this template can render them; the same array if there is nothing to change.
 * @param family whose syntax calls are written in
 */
export function adaptMessages(
  messages: readonly Message[],
  traits: TemplateTraits,
  family: CallFamily | null = traits.callFamily,
): readonly Message[] {
  let adapted = messages;
  if (!traits.supportsSystem && adapted.some(({ role }) => role === "system")) adapted = systemIntoUser(adapted);
  if (!traits.rendersToolCalls) adapted = callsIntoText(adapted, family ?? "hermes");
  if (!traits.rendersToolResults && adapted.some(({ role }) => role === "tool")) adapted = resultsIntoUser(adapted);
  return adapted === messages || traits.acceptsNeighbours ? adapted : joinNeighbours(adapted);
}

function systemIntoUser(messages: readonly Message[]): Message[] {
  const systemText = joinTexts(...messages.filter(({ role }) => role === "system").map(({ content }) => content));
  const others = messages.filter(({ role }) => role !== "system");
  const first = others.findIndex(({ role }) => role === "user");
  if (first < 0) return [{ role: "user", content: systemText }, ...others];
  return others.map((message, index) =>
    index === first ? { ...message, content: joinTexts(systemText, message.content) } : message,
  );
}

function callsIntoText(messages: readonly Message[], family: CallFamily): readonly Message[] {
  if (!messages.some((message) => message.role === "assistant" && message.toolCalls !== undefined)) return messages;
  return messages.map((message) => {
    if (message.role !== "assistant" || message.toolCalls === undefined) return message;
    const { toolCalls, ...rest } = message;
    const calls = writeCalls(family, toolCalls);
    return { ...rest, content: message.content === "" ? calls : `${message.content}\n${calls}` };
  });
}

/** Results that follow each other share one turn. */
function resultsIntoUser(messages: readonly Message[]): Message[] {
  const adapted: Message[] = [];
  let previous: Message | undefined;
  for (const message of messages) {
    const open = adapted.at(-1);
    if (message.role !== "tool") adapted.push(message);
    else if (previous?.role === "tool" && open !== undefined) {
      adapted[adapted.length - 1] = { role: "user", content: `${open.content}\n${resultText(message)}` };
    } else adapted.push({ role: "user", content: resultText(message) });
    previous = message;
  }
  return adapted;
}

function resultText(message: ToolMessage): string {
  return `<tool_response>\n${message.content}\n</tool_response>`;
}
