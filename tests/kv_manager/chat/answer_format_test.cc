// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/chat/answer_format.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kv_manager/chat/chat_template.h"

namespace quire {
namespace {

TEST(AnswerFormatTest, TheTagsOfATemplateTellHowCallsAreWritten) {
  EXPECT_EQ(GuessAnswerFormat(R"({{- '<tool_call>\n{"name": "' }}{{ '", "arguments": ' }}{{- '}\n</tool_call>' }})")
                .tool_calls,
            "hermes");
  EXPECT_EQ(GuessAnswerFormat("{{- '[TOOL_CALLS]' + call.function.name }}").tool_calls, "mistral");
  EXPECT_EQ(GuessAnswerFormat("{{- '<|start_header_id|>user' }}{{- 'Respond in the format {\"name\": function name, "
                              "\"parameters\": dictionary of argument name and its value}.' }}")
                .tool_calls,
            "llama3");
  EXPECT_EQ(GuessAnswerFormat("{{ messages[0].content }}").tool_calls, "");
}

TEST(AnswerFormatTest, CallsWithTagsAroundArgumentsAreToldFromObjects) {
  EXPECT_EQ(GuessAnswerFormat("<tool_call>\n<function=' + name + '>\n<parameter=' + k + '>\n' }}").tool_calls,
            "qwen3_xml");
  EXPECT_EQ(GuessAnswerFormat("<tool_call>name<arg_key>k</arg_key>\n<arg_value>v</arg_value></tool_call>").tool_calls,
            "glm45");
  EXPECT_EQ(GuessAnswerFormat("<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>").tool_calls,
            "glm47");
  EXPECT_EQ(GuessAnswerFormat("<tool_call>\n<function=name>{}</function>\n</tool_call> arguments").tool_calls, "")
      << "a format that nobody knows";
}

TEST(AnswerFormatTest, OtherFormatsHaveTagsOfTheirOwn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{ '<|start|>assistant to=' }}<|channel|>commentary json<|message|>", "openai"},
      {"{%- set begin = '<minimax:tool_call>' -%}", "minimax_m2"},
      {"{%- set begin = '<seed:tool_call>' -%} <function= <parameter=", "seed_oss"},
      {"{%- set dsml = '｜DSML｜' -%} '<' + dsml + 'function_calls>'", "deepseek_v32"},
      {"{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool.type + '<｜tool▁sep｜>' + '\n' + '```json' }}",
       "deepseek_v3"},
      {"{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>'}}", "deepseek_v31"},
      {"<|tool_calls_section_begin|>", "kimi_k2"},
      {"List of tools: <|tool_list_start|>[", "lfm2"},
      {"{%- set tool_calls_token = '<|tools_prefix|>' -%}", "apertus"},
      {"<|start_of_role|>assistant respond with <|tool_call|> followed by a JSON list", "granite"},
      {"namespace(role_sep='<|role_sep|>', function_call='<|function_call|>')", "gigachat3"},
      {"{{- '\n<tool_calls>[' -}}", "apriel"},
      {"{{- '<|tool_call>call:' + function['name'] + '{' -}}", "gemma4"},
      {"{{- '<start_function_call>call:' + function['name'] + '{' -}}", "functiongemma"},
      {"<tool_calls>\n{\"name\": , \"arguments\": }\n</tool_calls>", "minimax"},
  };
  for (const auto& [source, format] : cases) EXPECT_EQ(GuessAnswerFormat(source).tool_calls, format) << source;
}

TEST(AnswerFormatTest, OtherTagsOfThoughtsAreKnown) {
  EXPECT_EQ(GuessAnswerFormat("[THINK]{{ thinking }}[/THINK]").reasoning, "mistral");
  EXPECT_EQ(GuessAnswerFormat("'<seed:think>' '</seed:think>'").reasoning, "seed_oss");
  EXPECT_EQ(GuessAnswerFormat("'<|inner_prefix|>' '<|inner_suffix|>'").reasoning, "apertus");
  EXPECT_EQ(GuessAnswerFormat("<|start|>assistant<|channel|>analysis<|message|>").reasoning, "openai");
  EXPECT_EQ(GuessAnswerFormat("text.split('<channel|>') '<|channel>'").reasoning, "gemma4");
}

// Folders of templates of models that are not a part of the repository.
TEST(AnswerFormatTest, TemplatesOfModelsAreKnown) {
  const char* const folder = std::getenv("QUIRE_CHAT_TEMPLATES");
  if (folder == nullptr) GTEST_SKIP() << "QUIRE_CHAT_TEMPLATES is not set";
  const std::map<std::string, std::pair<std::string, std::string>> formats = {
      {"Apertus-8B-Instruct", {"apertus", "apertus"}},
      {"Bielik-11B-v3.0-Instruct", {"hermes", "think"}},
      {"ByteDance-Seed-OSS", {"seed_oss", "seed_oss"}},
      {"GLM-4.6", {"glm45", "think"}},
      {"GLM-4.7-Flash", {"glm47", "think"}},
      {"GigaChat3-10B-A1.8B", {"", ""}},
      {"GigaChat3.1-10B-A1.8B", {"gigachat3", ""}},
      {"HuggingFaceTB-SmolLM3-3B", {"", "think"}},
      {"MiMo-VL", {"hermes", ""}},
      {"MiniMax-M1", {"minimax", ""}},
      {"MiniMax-M2", {"minimax_m2", "think"}},
      {"Mistral-Small-3.2-24B-Instruct-2506", {"mistral", ""}},
      {"Qwen-QwQ-32B", {"hermes", "think"}},
      {"Qwen-Qwen2.5-7B-Instruct", {"hermes", ""}},
      {"Qwen-Qwen3-0.6B", {"hermes", "think"}},
      {"Qwen3-Coder", {"qwen3_xml", ""}},
      {"Qwen3.5-4B", {"qwen3_xml", "think"}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"deepseek_v3", "think"}},
      {"deepseek-ai-DeepSeek-V3.1", {"deepseek_v31", "think"}},
      {"deepseek-ai-DeepSeek-V3.2", {"deepseek_v32", "think"}},
      {"google-gemma-4-31B-it", {"gemma4", "gemma4"}},
      {"google-gemma-4-31B-it-interleaved", {"gemma4", "gemma4"}},
      {"ibm-granite-granite-3.3-2B-Instruct", {"granite", "think"}},
      {"ibm-granite-granite-4.0", {"hermes", ""}},
      {"ibm-granite-granite-4.1", {"hermes", ""}},
      {"inclusionai-ling-3.0-flash", {"glm45", "think"}},
      {"llama-cpp-deepseek-r1", {"deepseek_v3", "think"}},
      {"llama-cpp-rwkv-world", {"", "think"}},
      {"llm-jp-llm-jp-4.1-8b-thinking", {"openai", "openai"}},
      {"meetkai-functionary-medium-v3.1", {"", ""}},
      {"meetkai-functionary-medium-v3.2", {"", ""}},
      {"microsoft-Phi-3.5-mini-instruct", {"", ""}},
      {"mistralai-Ministral-3-14B-Reasoning-2512", {"mistral", "mistral"}},
      {"mistralai-Mistral-Nemo-Instruct-2407", {"mistral", ""}},
      {"openai-gpt-oss-120b", {"openai", "openai"}},
      {"openbmb-MiniCPM5-1B", {"", "think"}},
      {"unsloth-Apriel-1.5", {"apriel", ""}},
      {"unsloth-mistral-Devstral-Small-2507", {"mistral", ""}},
  };
  size_t num_known = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const auto format = formats.find(file.path().stem().string());
    if (format == formats.end()) continue;
    std::ifstream in(file.path());
    const std::string source((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const AnswerFormat guess = GuessAnswerFormat(source);
    EXPECT_EQ(std::pair(guess.tool_calls, guess.reasoning), format->second) << file.path();
    ++num_known;
  }
  EXPECT_GT(num_known, 0u);
}

TEST(AnswerFormatTest, TheEndTagOfThoughtsTellsThatTheModelThinks) {
  EXPECT_EQ(GuessAnswerFormat("{{ content.split('</think>')[-1] }}").reasoning, "think");
  EXPECT_EQ(GuessAnswerFormat("{{ content }}").reasoning, "");
}

TEST(AnswerFormatTest, ATemplateOfSeveralIsLookedThrough) {
  const auto chat = ChatTemplate::Load(
      {.tokenizer_config_json = R"({"chat_template": [{"name": "default", "template": "<think></think>"},
                                                      {"name": "tool_use", "template": "[TOOL_CALLS]"}]})"});
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ((*chat)->answer_format().tool_calls, "mistral");
  EXPECT_EQ((*chat)->answer_format().reasoning, "think");
}

}  // namespace
}  // namespace quire
