// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/chat/chat_template.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/json_reader.h"
#include "base/status.h"
#include "kv_manager/jinja/json.h"
#include "kv_manager/tokenizer/json_value.h"
#include "kv_manager/tokenizer/tokenizer_config.h"

namespace quire {
namespace {

using jinja::Value;
using nlohmann::json;

constexpr size_t kMaxTemplates = 64;
constexpr int64_t kMaxProbeSteps = 100'000;
constexpr int64_t kMaxProbeBytes = 4 << 20;
// Conversations that tell whether a template takes a content in parts, with the role of that message.
constexpr char kProbeUser[] = R"({"role": "user", "content": "q"})";
constexpr char kProbeParts[] = R"([{"type": "text", "text": "qfirst"}, {"type": "text", "text": "qsecond"}])";
constexpr char kProbeCall[] =
    R"({"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function", )"
    R"("function": {"name": "f", "arguments": {}}}]})";
constexpr std::pair<const char*, const char*> kProbes[] = {
    {"system", R"([{"role": "system", "content": PARTS}, USER])"},
    {"developer", R"([{"role": "developer", "content": PARTS}, USER])"},
    {"user", R"([{"role": "user", "content": PARTS}])"},
    {"assistant", R"([USER, {"role": "assistant", "content": PARTS}, USER])"},
    {"tool", R"([USER, CALL, {"role": "tool", "name": "f", "tool_call_id": "abcdefghi", "content": PARTS}])"}};
constexpr char kAdditionalTemplates[] = "additional_chat_templates/";
constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

// The content of a token, which is a text or an object with one. Returns null when it is neither.
const std::string* TokenContent(const json& token) {
  if (token.is_string()) return token.get_ptr<const std::string*>();
  if (!token.is_object()) return nullptr;
  const auto content = token.find("content");
  return content != token.end() && content->is_string() ? content->get_ptr<const std::string*>() : nullptr;
}

using Variables = std::vector<std::pair<std::string, Value>>;

// Adds the special tokens that only this model has, such as "image_token": texts of such a name in
// tokenizer_config.json, and the members of extra_special_tokens if it is an object.
void AddTokensOfModel(const json& config, Variables* variables) {
  for (const auto& [name, value] : config.items()) {
    const bool is_standard =
        std::find(std::begin(kSpecialTokens), std::end(kSpecialTokens), name) != std::end(kSpecialTokens);
    if (is_standard || !absl::EndsWith(name, "_token") || !value.is_string()) continue;
    variables->emplace_back(name, Value(std::string_view(value.get_ref<const std::string&>())));
  }
  const auto extra = config.find("extra_special_tokens");
  if (extra == config.end() || !extra->is_object()) return;
  for (const auto& [name, value] : extra->items()) {
    if (const std::string* const content = TokenContent(value)) {
      variables->emplace_back(name, Value(std::string_view(*content)));
    }
  }
}

// Transformers passes the tokens that the checkpoint has, and no others.
Variables SpecialTokens(const json& config) {
  Variables variables;
  for (const char* name : kSpecialTokens) {
    const auto token = config.find(name);
    const std::string* const content = token == config.end() ? nullptr : TokenContent(*token);
    if (content != nullptr) variables.emplace_back(name, Value(std::string_view(*content)));
  }
  AddTokensOfModel(config, &variables);
  return variables;
}

using Sources = std::vector<std::pair<std::string, std::string>>;  // Names and templates.

// The value of "chat_template": null, a template, or templates with names: a list, or an object with a member for each.
absl::StatusOr<Sources> ReadSources(const JsonValue& value) {
  Sources sources;
  if (value.is_null()) return sources;
  if (value.raw().is_string()) {
    sources.emplace_back("default", value.raw().get<std::string>());
    return sources;
  }
  const json& raw = value.raw();
  if (!raw.is_array() && !raw.is_object()) return value.Error("expected a text or a list of named templates");
  if (raw.size() > kMaxTemplates) {
    return value.Error(absl::StrCat("has ", raw.size(), " templates, at most ", kMaxTemplates, " are allowed"));
  }
  if (raw.is_object()) {
    for (const auto& [name, source] : raw.items()) {
      QUIRE_ASSIGN_OR_RETURN(const std::string_view text, value.Child(source, name).AsString());
      sources.emplace_back(name, text);
    }
    return sources;
  }
  QUIRE_ASSIGN_OR_RETURN(const auto elements, value.AsArray());
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
  QUIRE_ASSIGN_OR_RETURN(json document, ReadJson<nlohmann::json>(text, file));
  if (!document.is_object()) return InvalidArgument(file, ": expected an object");
  return document;
}

// The templates that are files. If there is one, no other counts.
Sources FileSources(const ChatTemplateFiles& files) {
  std::map<std::string, std::string> sources;
  if (!files.chat_template_jinja.empty()) sources["default"] = files.chat_template_jinja;
  for (const auto& [name, source] : files.additional) sources[std::string(name)] = source;
  return Sources(sources.begin(), sources.end());
}

// The file from which FileSources has taken the template.
std::string FileOf(const std::string& name, const ChatTemplateFiles& files) {
  const bool is_additional = std::any_of(files.additional.begin(), files.additional.end(),
                                         [&](const auto& file) { return file.first == name; });
  return is_additional ? absl::StrCat(kAdditionalTemplates, name, ".jinja") : "chat_template.jinja";
}

// Returns whether a template has the text as a literal.
bool HasLiteral(const std::string& source, const char* text) {
  return absl::StrContains(source, absl::StrCat("'", text, "'")) ||
         absl::StrContains(source, absl::StrCat("\"", text, "\""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Load(const ChatTemplateFiles& files) {
  QUIRE_ASSIGN_OR_RETURN(const json config,
                         MergeSpecialTokens({.tokenizer_config_json = files.tokenizer_config_json,
                                             .special_tokens_map_json = files.special_tokens_map_json}));
  std::string file;
  Sources sources = FileSources(files);
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
  for (const auto& [name, text] : files.default_tokens) {
    if (!config.contains(name)) chat->special_.emplace_back(name, jinja::Value(text));
  }
  std::string all_sources;
  for (const auto& [name, source] : sources) {
    auto compiled = jinja::Template::Compile(source);
    if (!compiled.ok()) {
      const std::string which = sources.size() == 1 ? "" : absl::StrCat(" \"", name, "\"");
      const std::string where = file.empty() ? FileOf(name, files) : absl::StrCat(file, which);
      return InvalidArgument(where, ": ", compiled.status().message());
    }
    Named& named = chat->templates_[name];
    named.compiled = *std::move(compiled);
    absl::StrAppend(&all_sources, source, "\n");
  }
  for (auto& [name, named] : chat->templates_) named.part_roles = chat->FindPartRoles(*named.compiled);
  chat->answer_format_ = GuessAnswerFormat(all_sources);
  chat->knows_developer_ = HasLiteral(all_sources, "developer");
  chat->knows_tool_ = HasLiteral(all_sources, "tool");
  return std::unique_ptr<const ChatTemplate>(std::move(chat));
}

// Renders short conversations in which a message of a role has its content in parts.
std::set<std::string> ChatTemplate::FindPartRoles(const jinja::Template& compiled) const {
  std::set<std::string> roles;
  for (const auto& [role, conversation] : kProbes) {
    const std::string messages =
        absl::StrReplaceAll(conversation, {{"USER", kProbeUser}, {"CALL", kProbeCall}, {"PARTS", kProbeParts}});
    const absl::StatusOr<jinja::Value> list = jinja::ParseJson(messages, /*from_user=*/false);
    QUIRE_CHECK(list.ok()) << list.status();
    jinja::RenderOptions options;
    options.limits.max_steps = kMaxProbeSteps;
    options.limits.max_built_bytes = kMaxProbeBytes;
    const absl::StatusOr<jinja::Text> text = RenderWith(compiled, {.messages = list->as_list()->items}, options);
    if (!text.ok() || !absl::StrContains(text->bytes, "qfirst") || !absl::StrContains(text->bytes, "qsecond")) continue;
    // A template that takes texts alone prints the list as Python or as JSON.
    if (absl::StrContains(text->bytes, "'qfirst'") || absl::StrContains(text->bytes, "\"qfirst\"")) continue;
    roles.insert(role);
  }
  return roles;
}

bool ChatTemplate::TakesParts(const std::string& role, bool has_tools) const {
  const auto chosen = Choose(has_tools);
  return chosen.ok() && (*chosen)->part_roles.contains(role);
}

absl::StatusOr<const ChatTemplate::Named*> ChatTemplate::Choose(bool has_tools) const {
  auto found = has_tools ? templates_.find("tool_use") : templates_.end();
  if (found == templates_.end()) found = templates_.find("default");
  if (found != templates_.end()) return &found->second;
  const std::string names = absl::StrJoin(
      templates_, ", ", [](std::string* out, const auto& entry) { absl::StrAppend(out, "\"", entry.first, "\""); });
  return InvalidArgument("the model has chat templates named ", names, ", and none is named \"default\"");
}

absl::StatusOr<jinja::Text> ChatTemplate::Render(Input input, size_t max_bytes) const {
  QUIRE_ASSIGN_OR_RETURN(const Named* const chosen, Choose(!input.tools.is_none()));
  jinja::RenderOptions options;
  options.limits.max_output_bytes = max_bytes;
  return RenderWith(*chosen->compiled, std::move(input), options);
}

absl::StatusOr<jinja::Text> ChatTemplate::RenderWith(const jinja::Template& compiled, Input input,
                                                     jinja::RenderOptions options) const {
  Variables variables = std::move(input.more);
  const auto add = [&variables](std::string_view name, jinja::Value value) {
    const auto has_name = [&](const auto& variable) { return variable.first == name; };
    if (std::none_of(variables.begin(), variables.end(), has_name)) variables.emplace_back(name, std::move(value));
  };
  add("messages", jinja::Value::MakeList(std::move(input.messages)));
  add("tools", std::move(input.tools));
  add("documents", jinja::None());
  add("add_generation_prompt", jinja::Value(input.add_generation_prompt));
  for (const auto& [name, value] : special_) add(name, value);
  options.now = absl::Now();
  options.time_zone = absl::LocalTimeZone();
  return compiled.Render(std::move(variables), options);
}

}  // namespace quire
