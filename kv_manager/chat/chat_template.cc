// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/chat/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "kv_manager/tokenizer/json_value.h"

namespace quire {
namespace {

using jinja::Value;
using nlohmann::json;

constexpr size_t kMaxTemplates = 64;
constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

// The content of a token, which is a text or an object with one. Returns null when it is neither.
const std::string* TokenContent(const json& token) {
  if (token.is_string()) return token.get_ptr<const std::string*>();
  if (!token.is_object()) return nullptr;
  const auto content = token.find("content");
  return content != token.end() && content->is_string() ? content->get_ptr<const std::string*>() : nullptr;
}

// Transformers passes the tokens that the checkpoint has, and no others.
std::vector<std::pair<std::string, Value>> SpecialTokens(const json& config) {
  std::vector<std::pair<std::string, Value>> variables;
  for (const char* name : kSpecialTokens) {
    const auto token = config.find(name);
    const std::string* const content = token == config.end() ? nullptr : TokenContent(*token);
    if (content != nullptr) variables.emplace_back(name, Value(std::string_view(*content)));
  }
  const auto additional = config.find("additional_special_tokens");
  if (additional == config.end() || !additional->is_array() || additional->empty()) return variables;
  std::vector<Value> tokens;
  for (const json& token : *additional) {
    if (const std::string* const content = TokenContent(token)) tokens.emplace_back(std::string_view(*content));
  }
  variables.emplace_back("additional_special_tokens", Value::MakeList(std::move(tokens)));
  return variables;
}

using Sources = std::vector<std::pair<std::string, std::string>>;  // Names and templates.

// The value of "chat_template": null, a template, or a list of templates with names.
absl::StatusOr<Sources> ReadSources(const JsonValue& value) {
  Sources sources;
  if (value.is_null()) return sources;
  if (value.raw().is_string()) {
    sources.emplace_back("default", value.raw().get<std::string>());
    return sources;
  }
  if (!value.raw().is_array()) return value.Error("expected a text or a list of named templates");
  QUIRE_ASSIGN_OR_RETURN(const auto elements, value.AsArray());
  if (elements.size() > kMaxTemplates) {
    return value.Error(absl::StrCat("has ", elements.size(), " templates, at most ", kMaxTemplates, " are allowed"));
  }
  for (const JsonValue& element : elements) {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view name, element.String("name"));
    QUIRE_ASSIGN_OR_RETURN(const std::string_view source, element.String("template"));
    sources.emplace_back(name, source);
  }
  return sources;
}

// An absent file is an empty object.
absl::StatusOr<json> ReadObject(std::string_view text, const char* file) {
  if (text.empty()) return json::object();
  QUIRE_ASSIGN_OR_RETURN(json document, ParseJson(text, file));
  if (!document.is_object()) return InvalidArgument(file, ": expected an object");
  return document;
}

// Returns whether a template has the text as a literal.
bool HasLiteral(const std::string& source, const char* text) {
  return absl::StrContains(source, absl::StrCat("'", text, "'")) ||
         absl::StrContains(source, absl::StrCat("\"", text, "\""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Load(const ChatTemplateFiles& files) {
  QUIRE_ASSIGN_OR_RETURN(const json config, ReadObject(files.tokenizer_config_json, "tokenizer_config.json"));
  std::string file = "chat_template.jinja";
  Sources sources;
  if (!files.chat_template_jinja.empty()) sources.emplace_back("default", files.chat_template_jinja);
  if (sources.empty()) {
    file = "tokenizer_config.json: chat_template";
    QUIRE_ASSIGN_OR_RETURN(const JsonValue value, JsonValue(config, "tokenizer_config.json: ").Find("chat_template"));
    QUIRE_ASSIGN_OR_RETURN(sources, ReadSources(value));
  }
  if (sources.empty()) {
    file = "chat_template.json: chat_template";
    QUIRE_ASSIGN_OR_RETURN(const json document, ReadObject(files.chat_template_json, "chat_template.json"));
    QUIRE_ASSIGN_OR_RETURN(const JsonValue value, JsonValue(document, "chat_template.json: ").Find("chat_template"));
    QUIRE_ASSIGN_OR_RETURN(sources, ReadSources(value));
  }
  if (sources.empty()) return nullptr;
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate);
  chat->special_ = SpecialTokens(config);
  std::string all_sources;
  for (const auto& [name, source] : sources) {
    auto compiled = jinja::Template::Compile(source);
    if (!compiled.ok()) {
      const std::string which = sources.size() == 1 ? "" : absl::StrCat(" \"", name, "\"");
      return InvalidArgument(file, which, ": ", compiled.status().message());
    }
    chat->templates_[name] = *std::move(compiled);
    absl::StrAppend(&all_sources, source, "\n");
  }
  chat->answer_format_ = GuessAnswerFormat(all_sources);
  chat->knows_developer_ = HasLiteral(all_sources, "developer");
  chat->knows_tool_ = HasLiteral(all_sources, "tool");
  return std::unique_ptr<const ChatTemplate>(std::move(chat));
}

absl::StatusOr<const jinja::Template*> ChatTemplate::Choose(bool has_tools) const {
  auto found = has_tools ? templates_.find("tool_use") : templates_.end();
  if (found == templates_.end()) found = templates_.find("default");
  if (found != templates_.end()) return found->second.get();
  const std::string names = absl::StrJoin(
      templates_, ", ", [](std::string* out, const auto& entry) { absl::StrAppend(out, "\"", entry.first, "\""); });
  return InvalidArgument("the model has chat templates named ", names, ", and none is named \"default\"");
}

absl::StatusOr<jinja::Text> ChatTemplate::Render(Input input, size_t max_bytes) const {
  const bool has_tools = !input.tools.is_none();
  QUIRE_ASSIGN_OR_RETURN(const jinja::Template* const chosen, Choose(has_tools));
  std::vector<std::pair<std::string, Value>> variables = std::move(input.more);
  const auto add = [&variables](std::string_view name, Value value) {
    const auto has_name = [&](const auto& variable) { return variable.first == name; };
    if (std::none_of(variables.begin(), variables.end(), has_name)) variables.emplace_back(name, std::move(value));
  };
  add("messages", Value::MakeList(std::move(input.messages)));
  add("tools", std::move(input.tools));
  add("documents", jinja::None());
  add("add_generation_prompt", Value(input.add_generation_prompt));
  for (const auto& [name, value] : special_) add(name, value);
  jinja::RenderOptions options;
  options.limits.max_output_bytes = max_bytes;
  options.now = absl::Now();
  options.time_zone = absl::LocalTimeZone();
  return chosen->Render(std::move(variables), options);
}

}  // namespace quire
