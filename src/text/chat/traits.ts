/**
 * What a chat template is and does, found by rendering tiny conversations with it once at load: no list of model
 * names. A probe that throws answers no.
 */
import type { CallFamily } from "./call-syntax.ts";
import { callFamilyOf } from "./call-syntax.ts";
import { EFFORTS, type Effort } from "./effort.ts";
import type { Message, ToolCall, ToolDefinition } from "./messages.ts";

export interface TemplateTraits {
  /** System text appears in the prompt. */
  readonly supportsSystem: boolean;
  /** Tools that are passed appear in the prompt. */
  readonly supportsTools: boolean;
  readonly rendersToolCalls: boolean;
  readonly rendersToolResults: boolean;
  /** Turns of one role may follow each other: the template renders them without a second header. */
  readonly acceptsNeighbours: boolean;
  /** Arguments of a call must be an object: as text they fail or vanish. */
  readonly needsArgumentObject: boolean;
  /**
   * Where thoughts begin: `prefilled` by the generation prompt, `switch`ed by `enable_thinking`, opened by the model
   * it`self`, or `none` at all.
   */
  readonly thinking: "none" | "prefilled" | "self" | "switch";
  /** Whether the model thinks when nobody says anything. */
  readonly thinkingDefault: boolean;
  /** `enable_thinking` changes the prompt. */
  readonly thinkingSwitch: boolean;
  readonly thinkingTags: ThinkingTags | null;
  /** The variable that takes an effort, with the values that do not throw; null if the template reads none. */
  readonly effort: {
    readonly variable: "reasoning_effort" | "reasoning_strength";
    readonly values: readonly Effort[];
  } | null;
  /** Which earlier thoughts are rendered: all, those since the last user turn, or none. */
  readonly keepsReasoning: "always" | "since_user" | "never";
  /** The prompt changes at midnight. */
  readonly usesDate: boolean;
  /** The prompt changes within a day: worth a warning, since no prefix is ever reused. */
  readonly usesTimeOfDay: boolean;
  /** Text that `add_generation_prompt` adds, "" if it cannot be told apart. */
  readonly generationPrompt: string;
  /** Strings in the template's text that look like tokens of markup; the tokenizer knows which of them are. */
  readonly controlStrings: readonly string[];
  readonly callFamily: CallFamily | null;
}

export interface ThinkingTags {
  readonly open: string;
  readonly close: string;
}

/** Tags of the families, and of any template that names them. */
const TAGS: readonly ThinkingTags[] = [
  { open: "<|channel>thought", close: "<channel|>" },
  { open: "<think>", close: "</think>" },
];

export interface ProbeOptions {
  readonly tools?: readonly ToolDefinition[];
  readonly addGenerationPrompt?: boolean;
  readonly variables?: Readonly<Record<string, unknown>>;
  readonly now?: Date;
}

/** Renders without adapting anything; null if the template throws. */
export type Probe = (messages: readonly Message[], options?: ProbeOptions) => string | null;

const user = (content = "zquser"): Message => ({ role: "user", content });
const CALL: ToolCall = { id: "zqcall001", name: "zqcall", arguments: { zqkey: "zqvalue" } };
const CALLING: Message = { role: "assistant", content: "", toolCalls: [CALL] };
const RESULT: Message = { role: "tool", content: "zqresult", toolCallId: "zqcall001", name: "zqname" };
const TOOL: ToolDefinition = {
  name: "zqtool",
  description: "zqdescription",
  parameters: { type: "object", properties: { zqkey: { type: "string", description: "zqwhat" } }, required: ["zqkey"] },
};

/** @param source all texts of the template */
export function probeTraits(source: string, probe: Probe): TemplateTraits {
  const shows = (text: string, messages: readonly Message[], options: ProbeOptions = {}) =>
    probe(messages, options)?.includes(text) ?? false;
  const withTool = { tools: [TOOL] };
  const rendersToolCalls =
    shows("zqcall", [user(), CALLING], withTool) || shows("zqcall", [user(), CALLING, RESULT], withTool);
  return {
    supportsSystem: shows("zqsystem", [{ role: "system", content: "zqsystem" }, user()]),
    supportsTools: shows("zqtool", [user()], withTool),
    rendersToolCalls,
    // A template without calls that prints any role prints a tool's result too, but its model has never seen that role.
    rendersToolResults:
      (rendersToolCalls || /["']tool["']/.test(source)) && shows("zqresult", [user(), CALLING, RESULT], withTool),
    acceptsNeighbours: acceptsNeighbours(probe),
    needsArgumentObject: rendersToolCalls && needsArgumentObject(probe),
    ...thinkingTraits(source, probe),
    effort: effortTrait(source, probe),
    keepsReasoning: keepsReasoning(shows),
    ...dateTraits(probe),
    generationPrompt: generationPrompt(probe),
    controlStrings: controlStrings(source),
    callFamily: callFamilyOf(source),
  };
}

/** Nothing but blanks between two neighbours' texts: no second header, no end of turn. */
function acceptsNeighbours(probe: Probe): boolean {
  const between = (messages: readonly Message[], first: string, second: string) => {
    const text = probe(messages) ?? "";
    const start = text.indexOf(first);
    const end = text.indexOf(second);
    return start < 0 || end < start ? null : text.slice(start + first.length, end);
  };
  const users = between([user("zqone"), user("zqtwo")], "zqone", "zqtwo");
  const turns = ["zqone", "zqtwo"].map((content): Message => ({ role: "assistant", content }));
  const assistants = between([user(), ...turns, user("zqend")], "zqone", "zqtwo");
  return users?.trim() === "" && assistants?.trim() === "";
}

function needsArgumentObject(probe: Probe): boolean {
  const calling: Message = { role: "assistant", content: "", toolCalls: [{ ...CALL, arguments: "zqraw" }] };
  return !(probe([user(), calling], { tools: [TOOL] })?.includes("zqraw") ?? false);
}

function thinkingTraits(
  source: string,
  probe: Probe,
): Pick<TemplateTraits, "thinking" | "thinkingDefault" | "thinkingSwitch" | "thinkingTags"> {
  const prompt = (variables: Readonly<Record<string, unknown>>) =>
    probe([user()], { addGenerationPrompt: true, variables });
  const unset = prompt({});
  const on = prompt({ enable_thinking: true });
  const off = prompt({ enable_thinking: false });
  const tags = TAGS.find(({ open, close }) => source.includes(open) || source.includes(close)) ?? null;
  const thinkingSwitch = on !== off && on !== null && off !== null;
  const traits = { thinkingSwitch, thinkingTags: tags };
  if (tags !== null && endsOpen(unset ?? "", tags)) return { ...traits, thinking: "prefilled", thinkingDefault: true };
  if (thinkingSwitch) return { ...traits, thinking: "switch", thinkingDefault: off !== unset };
  const knowsThoughts = tags !== null || /reasoning_content|message\.thinking|to=self/.test(source);
  return { ...traits, thinking: knowsThoughts ? "self" : "none", thinkingDefault: knowsThoughts };
}

/** Whether the text ends inside a thinking block that has just been opened. */
export function endsOpen(text: string, tags: ThinkingTags): boolean {
  return text.trimEnd().endsWith(tags.open);
}

function effortTrait(source: string, probe: Probe): TemplateTraits["effort"] {
  const variables = ["reasoning_effort", "reasoning_strength"] as const;
  const variable = variables.find((name) => source.includes(name));
  if (variable === undefined) return null;
  const values = EFFORTS.filter(
    (effort) => probe([user()], { addGenerationPrompt: true, variables: { [variable]: effort } }) !== null,
  );
  return values.length === 0 ? null : { variable, values };
}

function keepsReasoning(
  shows: (text: string, messages: readonly Message[], options?: ProbeOptions) => boolean,
): TemplateTraits["keepsReasoning"] {
  const thinking = { role: "assistant", content: "zqanswer", reasoning: "zqthought" } as const;
  if (shows("zqthought", [user(), thinking, user()])) return "always";
  const inLoop = [user(), { ...thinking, toolCalls: [CALL] }, RESULT];
  return shows("zqthought", inLoop, { tools: [TOOL] }) || shows("zqthought", [user(), thinking])
    ? "since_user"
    : "never";
}

function dateTraits(probe: Probe): Pick<TemplateTraits, "usesDate" | "usesTimeOfDay"> {
  const at = (now: Date) =>
    [undefined, [TOOL]].map((tools) => probe([user()], { now, ...(tools !== undefined && { tools }) })).join("\0");
  const morning = at(new Date(2001, 1, 3, 4, 5, 6));
  return {
    usesDate: morning !== at(new Date(2012, 11, 25, 4, 5, 6)),
    usesTimeOfDay: morning !== at(new Date(2001, 1, 3, 17, 48, 59)),
  };
}

function generationPrompt(probe: Probe): string {
  const before = probe([user()], { addGenerationPrompt: false });
  const after = probe([user()], { addGenerationPrompt: true });
  return before !== null && after?.startsWith(before) === true ? after.slice(before.length) : "";
}

/** `<|x|>`, `<x>`, `</x>`, `<|x>`, `<x|>` and `[X]`. */
const MARKUP = /<[|/]?[A-Za-z_][\w:.-]*\|?>|\[\/?[A-Z][A-Z_]*\]/g;

function controlStrings(source: string): readonly string[] {
  return Array.from(new Set(source.match(MARKUP) ?? []));
}
