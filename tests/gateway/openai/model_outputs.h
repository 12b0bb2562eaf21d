// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_OPENAI_MODEL_OUTPUTS_H_
#define QUIRE_TESTS_GATEWAY_OPENAI_MODEL_OUTPUTS_H_

namespace quire {

// A chat template that shows all parts of a history.
inline constexpr char kHistoryTemplate[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}{{ '' + m.content }}{% for c in m.tool_calls or [] "
    "%}"
    "{{ '(' + c.function.name }}{% for k, v in c.function.arguments | items %} {{ k }}={{ v }}{% endfor %})"
    "{% endfor %}{% endfor %}{# 'tool' #}";

// What models write, and what is left when a limit cuts it.
inline constexpr const char* kModelOutputs[] = {
    "Hello.",
    "",
    "<think>cut in the mid",
    "<think>only thoughts</think>",
    "<think>first</think>then",
    R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)",
    R"(<think>so</think>Look: <tool_call>{"name": "f", "arguments": {"a": 1234567890123456789}}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)"
    R"(<tool_call>{"name": "f", "arguments": {"b": []}}</tool_call>)",
    R"(one <tool_call>{"name": "f", "arguments": {}}</tool_call> two)"
    R"(<tool_call>{"name": "f", "arguments": {"b": []}}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": {"a": "cut)",
    R"(<tool_call>{"name": "f", "arguments": {"a": tru}}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": "text"}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": null}</tool_call>)",
    R"(<tool_call>{"name": "", "arguments": {}}</tool_call>)",
    R"(<tool_call>{"name": "f"}</tool_call>)",
    R"(<tool_call>{"nam)",
};

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_OPENAI_MODEL_OUTPUTS_H_
