/** What a grammar must know of a model's text side: how it writes calls and thoughts, and which of that is one token. */
import { type CallFamily, callFamilyOf } from "../chat/call-syntax.ts";
import type { ThinkingTags } from "../chat/traits.ts";
import { endsOpen } from "../chat/traits.ts";
import type { TextModel } from "../text-model.ts";
import type { ThoughtsPlace } from "./constraint.ts";

export interface GrammarFacts {
  /** null: nobody knows how the model writes calls. */
  readonly callFamily: CallFamily | null;
  /** Where the thoughts of a turn stand, by its prompt. @param wanted false: the request asked for none */
  thoughts(promptIds: readonly number[], wanted: boolean): ThoughtsPlace;
  /** Id of a text that is one control token. */
  controlId(text: string): number | undefined;
}

/** Enough for a closing tag that is spelled in small tokens, with blanks behind it. */
const TAIL_IDS = 24;

export function grammarFacts(model: TextModel): GrammarFacts {
  const { template, tokenizer } = model;
  const control = new Map(tokenizer.control.map(({ content, id }) => [content, id]));
  const family = callFamilyOf(template?.source ?? "");
  return {
    callFamily: family,
    controlId: (text) => control.get(text),
    thoughts: (promptIds, wanted) => {
      if (family === "muse") return { kind: "channels" };
      const tags = template?.traits.thinkingTags ?? null;
      if (tags === null) return { kind: "none" };
      const detokenizer = model.detokenizer();
      const tail = promptIds.slice(-TAIL_IDS).map((id) => detokenizer.push(id));
      return thoughtsPlace(tail.join("") + detokenizer.flush(), tags, wanted);
    },
  };
}

/** @param tail the prompt's end */
export function thoughtsPlace(tail: string, tags: ThinkingTags, wanted: boolean): ThoughtsPlace {
  if (endsOpen(tail, tags)) return { kind: "inside", tags };
  const closed = tail.trimEnd().endsWith(tags.close);
  return wanted && !closed ? { kind: "may", tags } : { kind: "none" };
}
