/**
 * Rendering a template so that callers' strings cannot forge control tokens: a mark of the private use area is put into
 * the strings that could, travels through the template, and is left in the result for the encoder to remove after it
 * has cut the text at the control strings that the template itself wrote. What a template does to marked strings is
 * checked against a render with harmless ones; one that damages the marks gets a visible character instead of them.
 */
import { ascending, type Breaks, type ControlGuard, insertMarks } from "./guard.ts";
import { PromptError } from "./prompt-error.ts";

export interface GuardedSource {
  /** Every string that callers supplied, well formed. */
  readonly strings: readonly string[];
  /** The template's text; a mark must not occur in it. */
  readonly templateText: string;
  /** Renders with `map` applied to each of `strings`. */
  readonly render: (map: (text: string) => string) => string;
  /** The control strings that stand in a rendered text, in order. */
  readonly controlsIn: (rendered: string) => readonly string[];
}

export interface GuardedText {
  readonly text: string;
  /** Stands in `text` wherever a control string was broken; "" if nowhere. */
  readonly mark: string;
  readonly warnings: readonly string[];
}

const WORD_JOINER = "\u2060";

/**
 * Renders `source`, guarded.
 * @throws PromptError when the template cannot carry the strings safely; and whatever the template throws.
 */
export function renderGuarded(guard: ControlGuard, source: GuardedSource): GuardedText {
  const plan = planBreaks(guard, source.strings);
  if (plan.size === 0) return { text: source.render((text) => text), mark: "", warnings: [] };
  const mark = chooseMark(source, guard.controls);
  const hidden = mark === null ? null : renderMarked(plan, source, mark);
  if (mark !== null && hidden !== null && !escapesOf(mark).some((form) => hidden.includes(form))) {
    return { text: hidden, mark, warnings: [] };
  }
  const visible = renderMarked(plan, source, WORD_JOINER);
  if (visible !== null) return { text: visible, mark: "", warnings: ["template changed guarded text"] };
  throw new PromptError("a message contains control tokens that the chat template cannot carry safely");
}

function planBreaks(guard: ControlGuard, strings: readonly string[]): Map<string, Breaks> {
  const plan = new Map<string, Breaks>();
  for (const text of new Set(strings)) {
    const breaks = guard.breaks(text);
    if (breaks !== null) plan.set(text, breaks);
  }
  return plan;
}

/** The rendered text with marks in it, or null when the template does not carry them safely. */
function renderMarked(plan: ReadonlyMap<string, Breaks>, source: GuardedSource, mark: string): string | null {
  let marked = places(plan, ({ certain }) => certain);
  try {
    let text = source.render(inserting(marked, mark));
    const controls = source.controlsIn(text);
    const inner = innerStrings(plan, controls);
    if (inner.size > 0) {
      // Words such as "tool" lie inside a control string that this text contains. Templates compare such words, so they
      // are marked only if it matters: if one of them is what completes a control string here.
      const all = places(plan, ({ certain, infix }, given) => (inner.has(given) ? [...certain, ...infix] : certain));
      const full = source.render(inserting(all, mark));
      if (joined(source.controlsIn(full)) !== joined(controls)) {
        marked = all;
        text = full;
      }
    }
    return marked.size === 0 || isHarmless(text, marked, source) ? text : null;
  } catch {
    // A template that refuses the conversation itself says so here, without marks in its message.
    source.render((text) => text);
    return null;
  }
}

/** Whether `text` has as many control strings as the same render with harmless words in place of the marked strings. */
function isHarmless(text: string, marked: ReadonlyMap<string, readonly number[]>, source: GuardedSource): boolean {
  const words = new Map([...marked.keys()].map((given, i) => [given, `x${i}`]));
  const harmless = source.render((given) => words.get(given) ?? given);
  return source.controlsIn(text).length === source.controlsIn(harmless).length;
}

/** Strings that are a part of one of the control strings in a rendered text. */
function innerStrings(plan: ReadonlyMap<string, Breaks>, controls: readonly string[]): ReadonlySet<string> {
  const present = joined([...new Set(controls)]);
  const inner = [...plan].filter(([text, { infix }]) => infix.length > 0 && present.includes(text.trim()));
  return new Set(inner.map(([text]) => text));
}

function joined(controls: readonly string[]): string {
  return controls.join("\ud800");
}

function places(
  plan: ReadonlyMap<string, Breaks>,
  choose: (breaks: Breaks, text: string) => readonly number[],
): ReadonlyMap<string, readonly number[]> {
  const chosen = new Map<string, readonly number[]>();
  for (const [text, breaks] of plan) {
    const list = ascending(choose(breaks, text));
    if (list.length > 0) chosen.set(text, list);
  }
  return chosen;
}

function inserting(marked: ReadonlyMap<string, readonly number[]>, mark: string): (text: string) => string {
  return (text) => insertMarks(text, marked.get(text) ?? [], mark);
}

/** The first private-use character that nobody used, neither as itself nor escaped; null if all are taken. */
function chooseMark(source: GuardedSource, controls: readonly string[]): string | null {
  const texts = [...source.strings, source.templateText, ...controls];
  const taken = new Set<string>();
  for (const text of texts) for (const found of text.match(/[\ue000-\uf8ff]/g) ?? []) taken.add(found);
  for (let code = 0xe000; code <= 0xf8ff; code++) {
    const mark = String.fromCharCode(code);
    if (taken.has(mark)) continue;
    const escapes = escapesOf(mark);
    if (!texts.some((text) => escapes.some((form) => text.includes(form)))) return mark;
  }
  return null;
}

/** Forms in which JSON, HTML and URL filters would write the mark, so that it could not be removed. */
function escapesOf(mark: string): readonly string[] {
  const hex = mark.charCodeAt(0).toString(16);
  return [`\\u${hex}`, `\\u${hex.toUpperCase()}`, `&#${mark.charCodeAt(0)};`, `&#x${hex};`, encodeURIComponent(mark)];
}
