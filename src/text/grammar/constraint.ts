/**
 * What a request wants of its text → one grammar for the engine (structured-output.md §1): the answer's format, the calls
 * that may or must be made, and where both begin behind the model's thoughts. Pure.
 */
import type { CallFamily } from "../chat/call-syntax.ts";
import type { ThinkingTags } from "../chat/traits.ts";
import { until } from "./automaton.ts";
import { callGrammar, channelGrammar } from "./call-grammar.ts";
import type { GrammarTool } from "./call-parts.ts";
import { ANYTHING, difference } from "./charset.ts";
import type { CountedTable } from "./counter-table.ts";
import { bareText, RESERVED } from "./dialect.ts";
import { objectGrammar, schemaGrammar } from "./json-grammar.ts";
import { choiceRule, regexRule } from "./plain-texts.ts";
import { literal, Rules } from "./rules.ts";
import { writeText } from "./text-form.ts";
import { userGrammar } from "./user-ebnf.ts";

export type GrammarFormat =
  | { readonly kind: "json_object" }
  | { readonly kind: "json_schema"; readonly schema: unknown; readonly strict: boolean }
  | { readonly kind: "grammar"; readonly ebnf: string }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "choice"; readonly choices: readonly string[] };

export interface GrammarWish {
  /** null: free text. */
  readonly format: GrammarFormat | null;
  /** null: no calls, or nobody knows how the model writes them. */
  readonly calls: {
    readonly family: CallFamily;
    readonly tools: readonly GrammarTool[];
    readonly required: boolean;
    readonly parallel: boolean;
  } | null;
  readonly thoughts: ThoughtsPlace;
  /** Id of a text that is one control token of the model. */
  readonly controlId: (text: string) => number | undefined;
}

/** `channels`: Muse's, from the turn's beginning on. `may`: the model opens them itself, or does not. */
export type ThoughtsPlace =
  | { readonly kind: "none" }
  | { readonly kind: "channels" }
  | { readonly kind: "inside" | "may"; readonly tags: ThinkingTags };

/** As `ConstraintSpec` of the engine, where each field is explained. */
export interface TextConstraint {
  readonly kind: "json_object" | "json_schema" | "tools" | "ebnf" | "regex" | "choice";
  readonly ebnf: string;
  readonly markers: readonly string[];
  readonly counters: CountedTable | null;
  readonly start:
    | { readonly kind: "at_once" }
    | {
        readonly kind: "after_reasoning";
        readonly inside: boolean;
        readonly openerId: number | null;
        readonly closerId: number;
      };
  readonly relaxed: readonly string[];
}

/** The constraint; null: any text will do. @throws GrammarError for what cannot be kept */
export function textConstraint({ format, calls, thoughts, controlId }: GrammarWish): TextConstraint | null {
  const needsCalls = calls !== null && calls.tools.length > 0 && (format !== null || demands(calls));
  if (format === null && !needsCalls) return null;
  const answer = format === null ? null : answerOf(format);
  const rules = answer?.rules ?? new Rules();
  const isToken = (text: string) => controlId(text) !== undefined;
  const inChannels = thoughts.kind === "channels";
  const turn =
    needsCalls && calls !== null
      ? callGrammar(rules, { ...calls, inChannels }, answer?.start ?? null, isToken)
      : inChannels && answer !== null
        ? channelGrammar(rules, answer.start, isToken)
        : null;
  const start = turn?.start ?? answer?.start ?? "";
  const behind = behindThoughts(rules, start, thoughts, controlId);
  const counters = bothTables(answer?.counters ?? null, turn?.counters ?? null);
  // Thoughts within the grammar would be counted as the answer's text.
  const uncounted = counters !== null && behind.kind === "at_once" && thoughts.kind !== "none";
  const relaxed = [...(answer?.relaxed ?? []), ...(turn?.relaxed ?? []), ...(uncounted ? [""] : [])];
  return {
    kind: needsCalls ? "tools" : kindOf(format),
    ebnf: rules.text,
    markers: turn?.markers ?? [],
    counters: uncounted ? null : counters,
    start: behind,
    relaxed: [...new Set(relaxed)],
  };
}

/** Whether the calls need a grammar where no format does. */
function demands({ required, parallel, tools }: NonNullable<GrammarWish["calls"]>): boolean {
  return required || !parallel || tools.some(({ strict }) => strict);
}

function kindOf(format: GrammarFormat | null): TextConstraint["kind"] {
  return format === null || format.kind === "grammar" ? "ebnf" : format.kind;
}

interface Answer {
  readonly rules: Rules;
  readonly start: string;
  readonly counters: CountedTable | null;
  readonly relaxed: readonly string[];
}

function answerOf(format: GrammarFormat): Answer {
  const rules = new Rules();
  const plain = (start: string): Answer => ({ rules, start, counters: null, relaxed: [] });
  switch (format.kind) {
    case "json_object":
      return objectGrammar();
    case "json_schema":
      return schemaGrammar(format.schema, format.strict);
    case "grammar":
      return plain(userGrammar(rules, format.ebnf));
    case "regex":
      return plain(regexRule(rules, format.pattern));
    case "choice":
      return plain(choiceRule(rules, format.choices));
  }
}

/** Models write up to two line breaks between thoughts and answer. */
const LINE_BREAKS = ['""', literal("\n"), literal("\n\n")];

/** Defines `root`. Thoughts whose closer is no token of its own are part of the grammar. */
function behindThoughts(
  rules: Rules,
  start: string,
  thoughts: ThoughtsPlace,
  controlId: GrammarWish["controlId"],
): TextConstraint["start"] {
  if (thoughts.kind === "none" || thoughts.kind === "channels") {
    rules.define("root", [start]);
    return { kind: "at_once" };
  }
  const { open, close } = thoughts.tags;
  const gap = rules.define(rules.name("gap_behind_thoughts"), LINE_BREAKS);
  const inside = thoughts.kind === "inside";
  const closerId = controlId(close);
  // Of an opener of several tokens the first one decides.
  const openerId = controlId(open) ?? controlId(/^<[^<>]*>/.exec(open)?.[0] ?? "") ?? null;
  if (closerId !== undefined && (inside || openerId !== null)) {
    rules.define("root", [`${gap} ${start}`]);
    return { kind: "after_reasoning", inside, openerId, closerId };
  }
  const alphabet = difference(ANYTHING, RESERVED);
  const form = { ...bareText("", alphabet), close: `${gap} ${start}` };
  const thought = writeText(rules, "thoughts", until(close, alphabet), form) ?? start;
  rules.define("root", inside ? [thought] : [start, `${literal(open)} ${thought}`]);
  return { kind: "at_once" };
}

function bothTables(a: CountedTable | null, b: CountedTable | null): CountedTable | null {
  if (a === null || b === null) return a ?? b;
  const shift = (indices: readonly number[]) => indices.map((index) => index + a.nodes.length);
  return {
    starts: [...a.starts, ...b.starts.map(({ after, root }) => ({ after, root: shift(root) }))],
    nodes: [
      ...a.nodes,
      ...b.nodes.map((node) => ({
        ...node,
        properties: Object.fromEntries(Object.entries(node.properties).map(([name, nodes]) => [name, shift(nodes)])),
        others: shift(node.others),
        prefix: node.prefix.map(shift),
        items: shift(node.items),
      })),
    ],
  };
}
