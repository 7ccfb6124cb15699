/**
 * How each family writes a tool call (tool-calls.md §1), for templates that do not render calls themselves.
 * The syntaxes are small templates of our own, so that values print as they do in the models' templates.
 */
import { compileTemplate, type Template } from "../jinja/template.ts";
import type { ToolCall } from "./messages.ts";

export type CallFamily = "gemma4" | "lfm2" | "xml" | "minicpm5" | "muse" | "hermes";

/** The family by the markers in a template's text, null if it has none; first match wins. */
export function callFamilyOf(templateText: string): CallFamily | null {
  const has = (marker: string) => templateText.includes(marker);
  if (has("<|tool_call>") && has("<tool_call|>")) return "gemma4";
  if (has("<|tool_list_start|>") || has("<|tool_call_start|>")) return "lfm2";
  if (/<tool_call>(?:\n|\\n)<function=/.test(templateText)) return "xml";
  if (has('<function name="') && has('<param name="')) return "minicpm5";
  if (has("<atem:function_calls>")) return "muse";
  return has("<tool_call>") ? "hermes" : null;
}

/** The family of a model whose template names no markers, by what its vocabulary holds. */
export function callFamilyOfVocabulary(has: (token: string) => boolean): CallFamily | null {
  return has("<|tool_call_start|>") ? "lfm2" : null;
}

/** How a call of this tool begins, up to where its arguments follow. */
export function callOpening(family: CallFamily, tool: string): string {
  switch (family) {
    case "hermes":
      return `<tool_call>\n{"name": ${JSON.stringify(tool)}, "arguments": `;
    case "xml":
      return `<tool_call>\n<function=${tool}>\n`;
    case "gemma4":
      return `<|tool_call>call:${tool}{`;
    case "muse":
      return ` to=${tool}<|message|><atem:function_calls>\n<atem:invoke name="${tool}">\n`;
    case "minicpm5":
      return `<function name="${tool}">`;
    case "lfm2":
      return `<|tool_call_start|>[${tool}(`;
  }
}

/** Mappings and lists as JSON, anything else as Python's `str`. */
const PLAIN =
  "{% macro plain(v) %}{{ v|tojson if v is mapping or (v is iterable and v is not string) else v }}{% endmacro %}";

const SOURCES: Readonly<Record<CallFamily, string>> = {
  hermes: `{% for c in calls %}<tool_call>
{"name": {{ c.name|tojson }}, "arguments": {{ c.arguments|tojson }}}
</tool_call>{{ '' if loop.last else '\\n' }}{% endfor %}`,

  xml: `${PLAIN}{% for c in calls %}<tool_call>
<function={{ c.name }}>
{% for k, v in c.arguments|items %}
<parameter={{ k }}>
{{ plain(v) }}
</parameter>
{% endfor %}
</function>
</tool_call>{{ '' if loop.last else '\\n' }}{% endfor %}`,

  minicpm5: `${PLAIN}{% for c in calls %}<function name="{{ c.name }}">{% for k, v in c.arguments|items -%}
<param name="{{ k }}">{{ plain(v) }}</param>{% endfor %}</function>{{ '' if loop.last else '\\n' }}{% endfor %}`,

  muse: `${PLAIN}<atem:function_calls>
{% for c in calls %}
<atem:invoke name="{{ c.name }}">
{% for k, v in c.arguments|items %}
<atem:parameter name="{{ k }}">{{ plain(v) }}</atem:parameter>
{% endfor %}
</atem:invoke>
{% endfor %}
</atem:function_calls>`,

  // Not Python's repr: it would escape characters that the guard against forged control tokens relies on.
  lfm2: `{% macro value(v) %}{% if v is string -%}
'{{ v|replace('\\\\', '\\\\\\\\')|replace("'", "\\\\'")|replace('\\n', '\\\\n') }}'
{%- else %}{{ v|tojson if v is mapping or v is iterable else v }}{% endif %}{% endmacro -%}
<|tool_call_start|>[{% for c in calls %}{{ ', ' if not loop.first }}{{ c.name }}({% for k, v in c.arguments|items -%}
{{ ', ' if not loop.first }}{{ k }}={{ value(v) }}{% endfor %}){% endfor %}]<|tool_call_end|>`,

  gemma4: `{% macro value(v) %}{% if v is string %}<|"|>{{ v }}<|"|>
{%- elif v is mapping %}{{ '{' }}{{ members(v) }}{{ '}' }}
{%- elif v is iterable %}[{% for i in v %}{{ ',' if not loop.first }}{{ value(i) }}{% endfor %}]
{%- else %}{{ v|tojson }}{% endif %}{% endmacro -%}
{% macro members(m) %}{% for k, v in m|dictsort %}{{ ',' if not loop.first }}{{ k }}:{{ value(v) }}{% endfor %}{% endmacro -%}
{% for c in calls %}<|tool_call>call:{{ c.name }}{{ '{' }}{{ members(c.arguments) }}{{ '}' }}<tool_call|>{% endfor %}`,
};

const compiled = new Map<CallFamily, Template>();

/** The calls of one assistant turn in the family's syntax. Arguments that are text become one argument of that name. */
export function writeCalls(family: CallFamily, calls: readonly ToolCall[]): string {
  const template = compiled.get(family) ?? compileTemplate(SOURCES[family]);
  compiled.set(family, template);
  return template.render({
    calls: calls.map(({ name, arguments: given }) => ({
      name,
      arguments: typeof given === "string" ? { arguments: given } : given,
    })),
  });
}
