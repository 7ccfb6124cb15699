/**
 * Chat templates in the manner of the families in text.md §6, written for these tests. SMOLLM2 is the wording of the
 * one that SmolLM2-Instruct has.
 */

export const SMOLLM2 =
  "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}" +
  "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}" +
  "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/** ChatML with tools, hermes calls, shared result turns, thoughts kept since the last user turn, thinking by switch. */
export const HERMES = `{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last_user=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set ns.last_user = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last_user and message.reasoning_content %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and message.content) or not loop.first %}{{- '\\n' }}{%- endif %}
            {%- set call = call.function %}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
`;

/** Prefilled thinking, calls as function and parameter markup that iterates the arguments, an effort of three values. */
export const XML = `{%- if not messages %}{{- raise_exception('No messages provided.') }}{%- endif %}
{%- if reasoning_effort is defined and reasoning_effort not in ['low', 'medium', 'xhigh'] %}
    {{- raise_exception('bad effort ' ~ reasoning_effort) }}
{%- endif %}
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools>\\nAnswer in this form:\\n<tool_call>\\n<function=example>\\n</function>\\n</tool_call>' }}
    {%- if messages[0].role == 'system' %}{{- '\\n\\n' + messages[0].content | trim }}{%- endif %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content | trim + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content | trim + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' + message.content | trim }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
            {%- for key, value in call.function.arguments | items %}
                {{- '<parameter=' + key + '>\\n' }}
                {{- (value | tojson if value is mapping or (value is sequence and value is not string) else value | string) + '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}
    {%- else %}{{- '<think>\\n' }}{%- endif %}
{%- endif %}
`;

/** No system role, strict alternation. */
export const ALTERNATING = `{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}
{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}`;

/** Structured calls are not rendered, results are a role of their own, \`enable_thinking\` is not read. */
export const LFM = `{{- bos_token -}}
{%- set system = messages[0].content if messages[0].role == 'system' else '' -%}
{%- if tools -%}
    {%- set system = system + ('\\n' if system else '') + 'List of tools: <|tool_list_start|>[' -%}
    {%- for tool in tools -%}{%- set system = system + (tool | tojson) -%}{{- '' -}}{%- endfor -%}
    {%- set system = system + (tools | map(attribute='function') | map(attribute='name') | join(', ')) + ']<|tool_list_end|>' -%}
{%- endif -%}
{%- if system -%}{{- '<|im_start|>system\\n' + system + '<|im_end|>\\n' -}}{%- endif -%}
{%- for message in messages if message.role != 'system' -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {%- if message.role == "tool" -%}{{- '<|tool_response_start|>' + message.content + '<|tool_response_end|>' -}}
    {%- else -%}{{- message.content.split('</think>')[-1] if message.role == 'assistant' else message.content -}}{%- endif -%}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
`;

/** Prefills an opener whatever it is told. */
export const ALWAYS_OPEN = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
<think>
{% endif %}
`;

/** Strength instead of effort, today's date in a default system text, neighbours that share a turn. */
export const DATED = `{%- set today = current_date or strftime_now('%d %b %Y') -%}
<|start|>system<|message|>Today is {{ today }}. Strength {{ reasoning_strength or 'high' }}.
{%- if messages[0].role == 'system' %} {{ messages[0].content }}{% endif %}<|eot|>
{%- for m in messages if m.role in ('user', 'assistant') -%}
{%- if loop.first or loop.previtem.role != m.role %}<|start|>{{ m.role }}<|message|>{% endif %}
{{- ' ' ~ m.content }}
{%- if loop.last or loop.nextitem.role != m.role %}<|eot|>{% endif %}
{%- endfor -%}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}`;
