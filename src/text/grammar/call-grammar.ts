/**
 * Grammars of turns with tool calls: calls only, text with calls in it, or an answer of a format or calls
 * (structured-output.md §1, §6). Free text is watched for the opener by automaton rules, each holding all that follows.
 */
import type { CallFamily } from "../chat/call-syntax.ts";
import { kmpSteps } from "./automaton.ts";
import { FAMILY_GRAMMARS, hermesHead } from "./call-families.ts";
import {
  type CallContext,
  CallSyntaxText,
  callContext,
  type GrammarTool,
  type ReadTool,
  readTool,
} from "./call-parts.ts";
import { ANYTHING, difference } from "./charset.ts";
import { type CountedTable, counterTable } from "./counter-table.ts";
import { RESERVED } from "./dialect.ts";
import { SchemaTooLarge } from "./errors.ts";
import { jsonTree } from "./json-tree.ts";
import { literal, oneOf, type Rules } from "./rules.ts";
import { checkSize, TOOLS_MAX } from "./schema-limits.ts";

export interface CallsWanted {
  readonly family: CallFamily;
  /** Those that may be called; at least one. */
  readonly tools: readonly GrammarTool[];
  /** Nothing but calls. */
  readonly required: boolean;
  /** More than one call. */
  readonly parallel: boolean;
  /** The turn is written in Muse's channels. */
  readonly inChannels: boolean;
}

export interface TurnGrammar {
  /** The rule of the whole turn. */
  readonly start: string;
  readonly markers: readonly string[];
  readonly counters: CountedTable | null;
  readonly relaxed: readonly string[];
}

/**
 * @param format the rule of an answer's text; null: free text
 * @param isToken whether a text is one control token of the model
 * @throws GrammarError
 */
export function callGrammar(
  rules: Rules,
  { family, tools: given, required, parallel, inChannels }: CallsWanted,
  format: string | null,
  isToken: (text: string) => boolean,
): TurnGrammar {
  if (given.length > TOOLS_MAX) throw new SchemaTooLarge("tools", given.length, TOOLS_MAX);
  checkSize(
    given.flatMap(({ parameters, strict }) => (strict && parameters !== undefined ? [jsonTree(parameters)] : [])),
  );
  const relaxed = new Set<string>();
  const relax = (pointer: string) => relaxed.add(pointer);
  const tools = given.map((tool) => readTool(tool, relax));
  const { markers } = FAMILY_GRAMMARS[family];
  const syntax = new CallSyntaxText(markers, isToken);
  // Only Hermes' arguments are JSON text from end to end, which the counts beside the grammar follow.
  const context = callContext(rules, syntax, parallel, family === "hermes", relax);
  const turn = new Turn(context, family, tools, required, format);
  const start = inChannels ? turn.channels() : turn.plain();
  const counted = tools.filter(({ strict }) => strict);
  const counters =
    family === "hermes"
      ? counterTable(counted.map(({ name, node }) => ({ after: hermesHead(name), root: node })))
      : null;
  return { start, markers: syntax.tokens, counters, relaxed: [...relaxed] };
}

/** A turn in Muse's channels whose answer has a format. @param format the rule of the answer's text */
export function channelGrammar(rules: Rules, format: string, isToken: (text: string) => boolean): TurnGrammar {
  const syntax = new CallSyntaxText(FAMILY_GRAMMARS.muse.markers, isToken);
  const context = callContext(rules, syntax, false, false, () => undefined);
  const start = new Turn(context, "muse", [], false, format).channels();
  return { start, markers: syntax.tokens, counters: null, relaxed: [] };
}

/** The rules of a whole turn around a family's blocks of calls. */
class Turn {
  private readonly block: string;
  private readonly opener: string;
  private readonly between: string | null;

  constructor(
    private readonly context: CallContext,
    family: CallFamily,
    private readonly tools: readonly ReadTool[],
    private readonly required: boolean,
    private readonly format: string | null,
  ) {
    const { opener, between, block } = FAMILY_GRAMMARS[family];
    this.opener = opener;
    this.between = between;
    this.block = tools.length === 0 ? "" : block(context, tools);
  }

  plain(): string {
    if (this.required) return this.calls();
    if (this.format === null) return this.textWithCalls();
    const { rules } = this.context;
    return rules.define(rules.name("turn"), [this.calls(), this.format]);
  }

  /** Muse: a turn is channels, each with its recipient; thoughts (to itself) come before the answer or the calls. */
  channels(): string {
    const { rules, syntax } = this.context;
    const message = syntax.fragment("<|message|>");
    const turn = rules.name("turn");
    const thoughts = this.text(
      "thoughts",
      `${syntax.fragment("<|eom|>")} ${syntax.fragment("<|start|>")} "assistant" ${turn}`,
      false,
    );
    const opened = `${syntax.fragment(this.opener)} ${this.block}`;
    const calls = this.tools.map(({ name }) => `${literal(` to=${name}`)} ${message} ${opened}`);
    const answer = this.format ?? (this.required ? null : this.text("answer", "", true));
    const answers = this.required || answer === null ? [] : [`" to=user" ${message} ${answer}`];
    return rules.define(turn, [`" to=self" ${message} ${thoughts}`, ...calls, ...answers]);
  }

  /** Calls and nothing else. */
  private calls(): string {
    const { rules, syntax, parallel } = this.context;
    const calls = rules.name("turn_calls");
    const opened = `${syntax.fragment(this.opener)} ${this.block}`;
    if (!parallel || this.between === null) return rules.define(calls, [opened]);
    const between = this.between === "" ? "" : `${literal(this.between)} `;
    const more = rules.define(rules.name("turn_more"), ['""', `${between}${calls}`]);
    return rules.define(calls, [`${opened} ${more}`]);
  }

  /** Text in which blocks of calls may stand; behind the last call it may end or, with parallel calls, go on. */
  private textWithCalls(): string {
    const { rules, syntax, parallel } = this.context;
    const characters = Array.from(this.opener);
    const names = characters.map((_, i) => rules.name(i === 0 ? "text" : `text_${i}`));
    const first = names[0] ?? "";
    const called = parallel ? `${this.block} ${first}` : this.block;
    for (const [matched, name] of names.entries()) {
      const alternatives = ['""'];
      for (const { on, to } of kmpSteps(characters, matched, ALL_TEXT)) {
        const next = to === characters.length ? called : (names[to] ?? "");
        alternatives.push(...oneOf(on).alternatives.map((one) => `${one} ${next}`));
      }
      if (syntax.hasToken(this.opener)) alternatives.push(`${syntax.fragment(this.opener)} ${called}`);
      rules.define(name, alternatives);
    }
    return first;
  }

  /** Any text, then `end`. */
  private text(hint: string, end: string, mayEnd: boolean): string {
    const { rules } = this.context;
    const name = rules.name(hint);
    const letters = oneOf(ALL_TEXT).alternatives.map((one) => `${one} ${name}`);
    return rules.define(name, [...(mayEnd ? ['""'] : [end]), ...letters]);
  }
}

const ALL_TEXT = difference(ANYTHING, RESERVED);
