"""Chat templates of the published formats, written for these tests: each exercises the constructs
that the format's own template uses, and renders the same layout."""

CHATML = """\
{% for message in messages %}
{% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\\nYou are a careful assistant.<|im_end|>\\n' }}
{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

# A default system message and tools as JSON lines.
QWEN2_5 = """\
{%- set intro = 'You were made for tests.' %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- intro }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nCall one or more functions.\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>\\nReply with <tool_call>\\n{"name": <name>, "arguments": <object>}\\n</tool_call>' }}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\n' + intro + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Reasoning is kept only after the last question, which a backwards loop finds.
QWEN3 = """\
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last_question=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last_question = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_question and (loop.last or (not loop.last and reasoning)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# The system message is folded into the first question; turns must alternate.
LLAMA_2 = """\
{% if messages[0]['role'] == 'system' %}
{% set turns = messages[1:] %}{% set system = messages[0]['content'] %}
{% else %}
{% set turns = messages %}{% set system = false %}
{% endif %}
{% for message in turns %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate user/assistant/user/...') }}
{% endif %}
{% if loop.index0 == 0 and system != false %}
{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}
{% else %}
{% set content = message['content'] %}
{% endif %}
{% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}
{{ ' ' + content.strip() + ' ' + eos_token }}
{% endif %}
{% endfor %}
"""

LLAMA_3 = """\
{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

# Dates, tools in the system or user message, indented JSON.
LLAMA_3_2 = """\
{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}

{#- The system message is taken out of the conversation. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Tools need a first user message to stand in!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {{- 'Answer with {"name": function name, "parameters": {...}}.\\n\\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("Only one tool call at a time!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL_1 = """\
{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant/user/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('Only user and assistant roles!') }}{% endif %}{% endfor %}"""

# Tool definitions before the last question, nine-character call ids.
MISTRAL_3 = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("Roles must alternate after the system message") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call ids have 9 characters!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Unknown role: " ~ message.role) }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant/user/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

PHI_3 = """\
{% for message in messages %}
{% if message['role'] == 'system' and message['content'] %}
{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}
{% elif message['role'] == 'user' %}
{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}
{% elif message['role'] == 'assistant' %}
{% generation %}
{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}
{% endgeneration %}
{% endif %}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|assistant|>\\n' }}
{% else %}
{{ eos_token }}
{% endif %}
"""

ZEPHYR = """\
{% for message in messages %}
  {% if message['role'] in ['user', 'system', 'assistant'] %}
{{ '<|' ~ message.role ~ '|>\\n' + message['content'] + eos_token }}
  {% endif %}
  {% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
  {% endif %}
{% endfor %}
"""

VICUNA = """\
{%- macro speaker(role, names={'user': 'USER', 'assistant': 'ASSISTANT'}) -%}
  {{ names.get(role, role | upper) }}: {% endmacro -%}
{% set ns = namespace(text='A chat between a user and an assistant.') %}
{% for message in messages %}
  {% if message.role == 'system' %}{% set ns.text = message.content %}{% continue %}{% endif %}
  {% set ns.text = ns.text ~ ' ' ~ speaker(role=message.role) ~ message.content %}
  {% if message.role == 'assistant' %}{% set ns.text = ns.text ~ eos_token %}{% endif %}
{% endfor %}
{{- ns.text }}
{%- if add_generation_prompt %} ASSISTANT:{% endif %}
"""

# System messages are gathered first; tool state lives in a namespace.
DEEPSEEK = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system = ns.system + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system = ns.system + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<User>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{{'<Assistant><calls>' + tool['type'] + '<sep>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments']|tojson + '\\n' + '```'}}{%- set ns.is_first = true -%}{%- else %}{{'\\n' + tool['type'] + '<sep>' + tool['function']['name']}}{%- endif %}{%- endfor %}{{'</calls>'}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{%- if ns.is_tool %}{{'</outputs>' + message['content'] + eos_token}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<Assistant>' + content + eos_token}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<outputs><output>' + message['content'] + '</output>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\\n<output>' + message['content'] + '</output>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'</outputs>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<Assistant>'}}{% endif %}"""

# Type names of a JSON schema by a recursive macro, documents, content in parts.
COMMAND = """\
{%- macro type_name(spec) -%}
  {%- set names = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} -%}
  {%- if spec.type in names -%}
    {{- names[spec.type] -}}
  {%- elif spec.type == "array" -%}
    {{- "List[" + type_name(spec["items"]) + "]" -}}
  {%- elif spec.type == "object" -%}
    {{- "Dict[str, " + (type_name(spec.additionalProperties) if spec.additionalProperties is mapping else "Any") + "]" -}}
  {%- elif spec.type is iterable and spec.type is not string -%}
    {{- "Union[" + (spec.type | map("upper") | join(", ")) + "]" -}}
  {%- else -%}
    {{- "Any" -}}
  {%- endif -%}
{%- endmacro -%}
{{ bos_token -}}
{%- for tool in (tools or []) | sort(attribute="function.name") %}
def {{ tool.function.name }}(
{%- for name, spec in (tool.function.parameters.properties | default({})).items() -%}
  {{ ", " if not loop.first }}{{ name }}: {{ type_name(spec) }}
  {%- if name not in tool.function.parameters.required | default([], true) %} = None{% endif %}
{%- endfor -%}
) -> {{ (tool.function["return"] | default({"type": "any"})) | tojson }}:
    {{ tool.function.description | indent(4) }}
{% else %}
No tools.
{% endfor %}
{%- for message in messages %}
<{{ message.role | title }}>
{%- if message.content is string -%}
  {{ message.content | replace("\\n\\n", "\\n") | trim }}
{%- elif message.content is sequence and message.content is not mapping -%}
  {%- for part in message.content if part.type == "text" -%}
    {{ part.text }}{{ "|" if not loop.last }}
  {%- else -%}
    (no text)
  {%- endfor -%}
{%- endif -%}
</{{ loop.index }}/{{ loop.revindex }}/{{ loop.length }}>
{%- endfor %}
{% for message in messages | rejectattr("content", "string") | selectattr("tool_calls", "defined") %}
{{ "%s has %d call(s)" | format(message.role, message.tool_calls | count) }}
{% endfor %}
{% set last = messages | map(attribute="role") | list | last -%}
{{ last | capitalize }}{{ "." * 3 if add_generation_prompt else "" }}
"""

FAMILIES = {
    "chatml": CHATML,
    "qwen2.5": QWEN2_5,
    "qwen3": QWEN3,
    "llama-2": LLAMA_2,
    "llama-3": LLAMA_3,
    "llama-3.2": LLAMA_3_2,
    "mistral-v1": MISTRAL_1,
    "mistral-v3": MISTRAL_3,
    "gemma": GEMMA,
    "phi-3": PHI_3,
    "zephyr": ZEPHYR,
    "vicuna": VICUNA,
    "deepseek": DEEPSEEK,
    "command": COMMAND,
}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place.\nNow, not later.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A city, such as \"Zürich\" <CH>"},
                "days": {"type": "array", "items": {"type": "integer"}},
                "unit": {"type": ["string", "null"], "enum": ["°C", "°F"]},
                "extra": {"type": "object", "additionalProperties": {"type": "number"}},
            },
            "required": ["place"],
        },
        "return": {"type": "string"},
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add", "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {}}},
    },
}

SYSTEM = {"role": "system", "content": "Answer in one word. "}
QUESTION = {"role": "user", "content": "  Where's the Eiffel tower?\n\n"}
ANSWER = {"role": "assistant", "content": "\nParis 🗼 \n"}
THOUGHT = {"role": "assistant", "content": "<think>\nhm, \"France\"\n</think>\n\nParis"}
REASONED = {"role": "assistant", "content": "4", "reasoning_content": "2 and 2"}
CALL = {
    "role": "assistant",
    "tool_calls": [{
        "id": "abc123def", "type": "function",
        "function": {"name": "get_weather",
                     "arguments": {"place": "Ås & \"Oslo\"", "days": [1, 2.5], "x": None}},
    }],
}
CALL_WITH_TEXT = {**CALL, "content": "Let me look."}
RESULT = {"role": "tool", "content": "{\"temperature\": -3}", "tool_call_id": "abc123def"}
FOLLOW_UP = {"role": "user", "content": "日本語でもう一度。\u00a0"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image"},
                                     {"type": "text", "text": "this"}]}

CONVERSATIONS = [
    [QUESTION],
    [SYSTEM, QUESTION],
    [QUESTION, ANSWER, FOLLOW_UP],
    [SYSTEM, QUESTION, ANSWER, FOLLOW_UP, THOUGHT],
    [QUESTION, THOUGHT, FOLLOW_UP, REASONED],
    [QUESTION, CALL, RESULT, ANSWER],
    [SYSTEM, QUESTION, CALL_WITH_TEXT, RESULT, RESULT, ANSWER, FOLLOW_UP],
    [SYSTEM, QUESTION, CALL, RESULT],
    [QUESTION, QUESTION],
    [ANSWER],
    [SYSTEM],
    [SYSTEM, SYSTEM, QUESTION],
    [{"role": "critic", "content": "no"}],
    [{"role": "user", "content": ""}],
    [PARTS, ANSWER],
    [{"role": "user", "content": None}],
    [{"role": "user"}],
    [],
]

OPTIONS = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False},
    {"add_generation_prompt": True, "tools": [WEATHER]},
    {"add_generation_prompt": True, "tools": [WEATHER, ADD], "tools_in_user_message": False},
    {"add_generation_prompt": True, "tools": [], "enable_thinking": False,
     "date_string": "1 Jan 2025"},
]

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def cases():
    """(name, template, variables) of every family with every conversation and option."""
    for family, template in FAMILIES.items():
        for number, messages in enumerate(CONVERSATIONS):
            for options in OPTIONS:
                variables = {**TOKENS, "messages": messages, **options}
                yield f"{family}/{number}", template, variables
