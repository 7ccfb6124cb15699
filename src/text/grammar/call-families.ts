/**
 * The call syntaxes of tool-calls.md §1 as grammars (structured-output.md §6), one entry a family. What is written here is
 * read back by the parsers of `text/reply/`: the tests hold them to each other.
 */
import type { CallFamily } from "../chat/call-syntax.ts";
import { until } from "./automaton.ts";
import { argumentRule, bracketsOf, type CallContext, objectShapes, type ReadTool } from "./call-parts.ts";
import { ANYTHING, charsOf, difference, union } from "./charset.ts";
import {
  bareText,
  gemmaDialect,
  JSON_DIALECT,
  type MemberForm,
  NAME_CHARACTERS,
  PYTHON_DIALECT,
  RESERVED,
} from "./dialect.ts";
import { GrammarError } from "./errors.ts";
import { RawValues } from "./raw-values.ts";
import { type LiteralEntry, literal, literalsRule } from "./rules.ts";
import { writeText } from "./text-form.ts";

export interface FamilyGrammar {
  /** Texts of the syntax that are one token in some vocabularies. */
  readonly markers: readonly string[];
  /** What a block of calls begins with. */
  readonly opener: string;
  /** Between two blocks; null: one block holds all calls. */
  readonly between: string | null;
  /** The rule of a block behind its opener. */
  block(context: CallContext, tools: readonly ReadTool[]): string;
}

const RAW_ALPHABET = difference(ANYTHING, RESERVED);

const hermes: FamilyGrammar = {
  markers: ["<tool_call>", "</tool_call>"],
  opener: "<tool_call>",
  between: "\n",
  block: (context, tools) => {
    const writer = context.writer(JSON_DIALECT);
    const end = `"}\\n" ${context.syntax.fragment("</tool_call>")}`;
    return oneTool(context, tools, (tool) => {
      const given = tool.strict ? writer.value(checked(tool).node) : writer.anyObject();
      return { text: hermesHead(tool.name), rest: `${given} ${end}` };
    });
  },
};

/** What stands between the opener of a Hermes call and its arguments. */
export function hermesHead(tool: string): string {
  return `\n{"name": ${JSON.stringify(tool)}, "arguments": `;
}

const xml: FamilyGrammar = {
  markers: ["<tool_call>", "</tool_call>"],
  opener: "<tool_call>",
  between: "\n",
  block: (context, tools) => {
    const values = new RawValues(context, {
      tag: "</parameter>",
      close: literal("\n</parameter>"),
      alphabet: RAW_ALPHABET,
      otherTexts: () => [],
    });
    const form: MemberForm = {
      object: bracketsOf("", `"</function>\\n" ${context.syntax.fragment("</tool_call>")}`),
      comma: "",
      colon: literal(">\n"),
      key: (name) => (/[<>\n]/.test(name) ? null : literal(`<parameter=${name}>\n`)),
      keyText: bareText(literal("<parameter="), NAME_CHARACTERS),
      sorted: false,
    };
    return oneTool(context, tools, (tool) => {
      const given = argumentRule(context, context.writer(JSON_DIALECT), tool, form, (node) =>
        behind(context, values.value(node)),
      );
      return { text: `\n<function=${tool.name}>\n`, rest: given };
    });
  },
};

const gemma4: FamilyGrammar = {
  markers: ["<|tool_call>", "<tool_call|>", '<|"|>'],
  opener: "<|tool_call>",
  between: "",
  block: (context, tools) => {
    const writer = context.writer(gemmaDialect(context.syntax.fragment('<|"|>')));
    return oneTool(context, tools, (tool) => {
      const given = tool.strict ? writer.value(checked(tool).node) : writer.anyObject();
      return { text: `call:${tool.name}`, rest: `${given} ${context.syntax.fragment("<tool_call|>")}` };
    });
  },
};

const lfm2: FamilyGrammar = {
  markers: ["<|tool_call_start|>", "<|tool_call_end|>"],
  opener: "<|tool_call_start|>",
  between: null,
  block: (context, tools) => {
    const { rules } = context;
    const writer = context.writer(PYTHON_DIALECT);
    const call = oneTool(context, tools, (tool) => {
      if (!/^[A-Za-z_][\w.-]*$/.test(tool.name)) throw unwritable(tool);
      const form: MemberForm = {
        ...PYTHON_DIALECT,
        object: bracketsOf("", literal(")")),
        colon: literal("="),
        key: (name) => (/^[A-Za-z_]\w*$/.test(name) ? literal(`${name}=`) : null),
        keyText: bareText("", LETTERS),
      };
      return { text: `${tool.name}(`, rest: argumentRule(context, writer, tool, form, (node) => writer.value(node)) };
    });
    const end = `"]" ${context.syntax.fragment("<|tool_call_end|>")}`;
    const more = rules.name("calls_rest");
    rules.define(more, context.parallel ? [end, `", " ${call} ${more}`] : [end]);
    return rules.define(rules.name("calls"), [`"[" ${call} ${more}`]);
  },
};

/** Of names that must not begin with a digit. */
const LETTERS = difference(NAME_CHARACTERS, union(charsOf("0123456789"), charsOf("-")));

const minicpm5: FamilyGrammar = {
  markers: ["<function", "</function>", "<param", "</param>"],
  opener: '<function name="',
  between: "\n",
  block: (context, tools) => {
    const { rules, syntax } = context;
    const close = syntax.fragment("</param>");
    const values = new RawValues(context, {
      tag: "</param>",
      close,
      alphabet: difference(RAW_ALPHABET, charsOf("<&\n")),
      otherTexts: () => {
        const section = writeText(rules, "section", until("]]>", RAW_ALPHABET), bareText("", RAW_ALPHABET)) ?? "";
        return [`"<![CDATA[" ${section} ${close}`];
      },
    });
    const form: MemberForm = {
      object: bracketsOf("", syntax.fragment("</function>")),
      comma: "",
      colon: literal('">'),
      key: (name) => (/["<>\n]/.test(name) ? null : `${syntax.fragment('<param name="')} ${literal(`${name}">`)}`),
      keyText: bareText(syntax.fragment('<param name="'), NAME_CHARACTERS),
      sorted: false,
    };
    return oneTool(context, tools, (tool) => {
      const given = argumentRule(context, context.writer(JSON_DIALECT), tool, form, (node) => values.value(node));
      return { text: `${tool.name}">`, rest: given };
    });
  },
};

const muse: FamilyGrammar = {
  markers: ["<|message|>", "<|eom|>", "<|start|>", "<atem:function_calls>", "</atem:function_calls>"],
  opener: "<atem:function_calls>",
  between: null,
  block: (context, tools) => {
    const { rules, syntax } = context;
    const values = new RawValues(context, {
      tag: "</atem:parameter>",
      close: literal("</atem:parameter>"),
      alphabet: RAW_ALPHABET,
      otherTexts: () => [],
    });
    const form: MemberForm = {
      object: bracketsOf("", literal("</atem:invoke>\n")),
      comma: "",
      colon: literal('">'),
      key: (name) => (/["<>\n]/.test(name) ? null : literal(`<atem:parameter name="${name}">`)),
      keyText: bareText(literal('<atem:parameter name="'), NAME_CHARACTERS),
      sorted: false,
    };
    const invoke = oneTool(context, tools, (tool) => {
      const given = argumentRule(context, context.writer(JSON_DIALECT), tool, form, (node) =>
        behind(context, values.value(node)),
      );
      return { text: `<atem:invoke name="${tool.name}">\n`, rest: given };
    });
    const end = syntax.fragment("</atem:function_calls>");
    const more = rules.name("calls_rest");
    rules.define(more, context.parallel ? [end, `${invoke} ${more}`] : [end]);
    return rules.define(rules.name("calls"), [`"\\n" ${invoke} ${more}`]);
  },
};

export const FAMILY_GRAMMARS: Readonly<Record<CallFamily, FamilyGrammar>> = {
  hermes,
  xml,
  gemma4,
  lfm2,
  minicpm5,
  muse,
};

/** The rule of a call of any of the tools. */
function oneTool(context: CallContext, tools: readonly ReadTool[], write: (tool: ReadTool) => LiteralEntry): string {
  const calls = tools.map((tool) => {
    if (/["<>\n\\]/.test(tool.name)) throw unwritable(tool);
    return write(tool);
  });
  return literalsRule(context.rules, "call", calls);
}

/** A value's rule with the line break behind its closing tag. */
function behind({ rules }: CallContext, value: string): string {
  return rules.once(`${value}_line`, (name) => rules.define(name, [`${value} "\\n"`]));
}

function checked(tool: ReadTool): ReadTool {
  if (objectShapes(tool.node).length === 0)
    throw new GrammarError(null, `tool ${tool.name}: the arguments must be an object`);
  return tool;
}

function unwritable({ name }: ReadTool): GrammarError {
  return new GrammarError(null, `tool ${name}: this model's calls cannot write the name`);
}
