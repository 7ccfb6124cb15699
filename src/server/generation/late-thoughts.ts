/**
 * Thoughts that nothing announced: a whole answer with a closing tag and no opening one before it was thoughts up to
 * there (tool-calls.md §3). A stream cannot know this; there the prompt's end has to tell.
 */
import type { ReplyForm } from "../../text/index.ts";
import type { ChoiceResult } from "./events.ts";

/** The result as it is read once all of its text is there. */
export function withLateThoughts(result: ChoiceResult, { reasoning, start }: ReplyForm): ChoiceResult {
  if (reasoning?.kind !== "tags" || start !== "outside" || result.reasoning !== "") return result;
  const { open, close } = reasoning.tags;
  const end = result.text.indexOf(close);
  const thoughts = result.text.slice(0, Math.max(0, end));
  if (end < 0 || thoughts.includes(open)) return result;
  const length = [...thoughts].length;
  return {
    ...result,
    reasoning: thoughts.trim(),
    text: result.text.slice(end + close.length).trimStart(),
    reasoningTokens: result.tokens.filter(({ visible, offset }) => visible && offset < length).length,
  };
}
