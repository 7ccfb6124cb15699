/**
 * The one pass from a request to prompt ids: guard the caller's strings → render → cut at control strings → encode.
 * Invariant: a control token in the ids was written by the template (or, for completions, by a raw prompt), and a
 * conversation without control strings gives the ids of its whole rendered text.
 */
import { ControlGuard } from "./guard.ts";
import { renderGuarded } from "./guarded-render.ts";
import { PromptError } from "./prompt-error.ts";
import type { Part, TextTokenizer } from "./tokenizer.ts";

/** What rendering a conversation of the form `C` takes. */
export interface PromptTemplate<C> {
  /** The template's own text. */
  readonly source: string;
  render(conversation: C): string;
  /** The conversation with `f` applied to every string that the caller supplied. */
  mapStrings(conversation: C, f: (text: string) => string): C;
}

export interface EncodedPrompt {
  readonly ids: number[];
  /** The text that the ids stand for. */
  readonly text: string;
  /** How many of the ids are control tokens. */
  readonly controlCount: number;
  /** Things worth a line in the log. */
  readonly warnings: readonly string[];
}

interface PreparedPrompt {
  readonly parts: readonly Part[];
  readonly text: string;
  readonly warnings: readonly string[];
}

/** How long encoding may hold the thread before others get a turn; a frame of a stream is expected every few ms. */
const SLICE_MS = 8;

export class PromptEncoder {
  readonly #tokenizer: TextTokenizer;
  readonly #guard: ControlGuard;

  constructor(tokenizer: TextTokenizer) {
    this.#tokenizer = tokenizer;
    this.#guard = new ControlGuard(tokenizer.control.map((token) => token.content));
  }

  /**
   * Ids of a conversation. The template writes BOS itself if the model wants one.
   * @throws PromptError when a message cannot be carried safely; and what the template throws.
   */
  encodeChat<C>(template: PromptTemplate<C>, conversation: C): EncodedPrompt {
    const prepared = this.#prepare(template, conversation);
    return this.#finish(prepared, this.#tokenizer.encodeParts(prepared.parts));
  }

  /** The same, giving the thread away between words: for prompts that take longer than a few ms. */
  async encodeChatInSlices<C>(
    template: PromptTemplate<C>,
    conversation: C,
    signal?: AbortSignal,
  ): Promise<EncodedPrompt> {
    const prepared = this.#prepare(template, conversation);
    const ids: number[] = [];
    let sliceStart = performance.now();
    for (const [index, part] of prepared.parts.entries()) {
      const steps = this.#tokenizer.encodeInSteps(part, index === 0);
      let step = steps.next();
      while (true) {
        if (performance.now() - sliceStart >= SLICE_MS) {
          await new Promise((resolve) => setImmediate(resolve));
          signal?.throwIfAborted();
          sliceStart = performance.now();
        }
        if (step.done) break;
        step = steps.next();
      }
      for (const id of step.value) ids.push(id);
    }
    return this.#finish(prepared, ids);
  }

  /**
   * Ids of a raw prompt. Control strings in a string are control tokens, and the tokenizer's own additions (BOS) are
   * made; ids are taken as they are.
   * @throws PromptError for an id outside the vocabulary.
   */
  encodeCompletion(prompt: string | readonly number[]): EncodedPrompt {
    const tokenizer = this.#tokenizer;
    if (typeof prompt === "string") {
      const text = prompt.toWellFormed();
      const ids = tokenizer.encode(text, { addSpecialTokens: true });
      return { ids, text, controlCount: countControls(tokenizer, ids), warnings: [] };
    }
    const wrong = prompt.find((id) => !tokenizer.hasId(id));
    if (wrong !== undefined) {
      throw new PromptError(`token id ${wrong} is outside the vocabulary (0 to ${tokenizer.vocabSize - 1})`);
    }
    const detokenizer = tokenizer.detokenizer({ atTextStart: true });
    const text = prompt.map((id) => detokenizer.push(id)).join("") + detokenizer.flush();
    return { ids: [...prompt], text, controlCount: countControls(tokenizer, prompt), warnings: [] };
  }

  #prepare<C>(template: PromptTemplate<C>, given: C): PreparedPrompt {
    const strings: string[] = [];
    const conversation = template.mapStrings(given, (text) => {
      const whole = text.toWellFormed();
      strings.push(whole);
      return whole;
    });
    const rendered = renderGuarded(this.#guard, {
      strings,
      templateText: template.source,
      render: (map) => template.render(template.mapStrings(conversation, map)).toWellFormed(),
      controlsIn: (text) => controlsOf(this.#tokenizer.split(text)),
    });
    const { text, mark, warnings } = rendered;
    const parts = this.#tokenizer.split(text);
    if (mark === "") return { parts, text, warnings };
    return { parts: parts.flatMap((part) => withoutMark(part, mark)), text: text.replaceAll(mark, ""), warnings };
  }

  #finish({ parts, text, warnings }: PreparedPrompt, ids: number[]): EncodedPrompt {
    return { ids, text, controlCount: controlsOf(parts).length, warnings };
  }
}

function controlsOf(parts: readonly Part[]): string[] {
  return parts.filter((part) => part.token !== null).map((part) => part.text);
}

function withoutMark(part: Part, mark: string): Part[] {
  if (part.token !== null) return [part];
  const text = part.text.replaceAll(mark, "");
  return text.length === 0 ? [] : [{ token: null, text }];
}

function countControls(tokenizer: TextTokenizer, ids: readonly number[]): number {
  const controls = new Set(tokenizer.control.map((token) => token.id));
  return ids.filter((id) => controls.has(id)).length;
}
