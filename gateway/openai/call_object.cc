// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/call_object.h"

#include <algorithm>

#include "gateway/openai/field_reader.h"

namespace quire {

size_t CallObject::Add(absl::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    raw_ += text[i];
    Scan(raw_.size() - 1);
    if (depth_ == 0) return i + 1;
  }
  return text.size();
}

bool CallObject::IsArguments() const {
  return is_keyed_ || key_ == "arguments" || key_ == "parameters";
}

void CallObject::Scan(size_t i) {
  const char c = raw_[i];
  if (is_string_) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (c == '\\') {
      is_escaped_ = true;
    } else if (c == '"') {
      is_string_ = false;
      if (depth_ == 1) EndString(i + 1);
    }
    return;
  }
  switch (c) {
    case '"':
      is_string_ = true;
      string_begin_ = i;
      break;
    case '{':
    case '[':
      if (depth_ == 1 && is_value_ && c == '{' && IsArguments() && !has_arguments()) arguments_begin_ = i;
      ++depth_;
      break;
    case '}':
    case ']':
      --depth_;
      if (depth_ == 1 && has_arguments() && arguments_end_ == raw_.npos) arguments_end_ = i + 1;
      break;
    case ':':
      if (depth_ == 1) is_value_ = true;
      break;
    case ',':
      if (depth_ == 1) is_value_ = false;
      break;
    default:
      break;
  }
}

void CallObject::EndString(size_t end) {
  const Json text = Json::parse(raw_.substr(string_begin_, end - string_begin_), nullptr, /*allow_exceptions=*/false);
  if (!text.is_string()) return;
  if (!is_value_) {
    key_ = text.get<std::string>();
    if (is_keyed_ && !name_.has_value()) name_ = key_;
  } else if (!is_keyed_ && key_ == "name" && !name_.has_value()) {
    name_ = text.get<std::string>();
  }
}

std::string CallObject::TakeArguments() {
  if (!has_arguments()) return "";
  const size_t end = std::min(arguments_end_, raw_.size());
  std::string text = raw_.substr(arguments_begin_ + num_taken_, end - arguments_begin_ - num_taken_);
  num_taken_ += text.size();
  return text;
}

std::optional<WholeCall> ParseWholeCall(const std::string& object, bool is_keyed) {
  const Json json = ParsePart(object);
  if (is_keyed) {
    if (!json.is_object() || json.size() != 1 || !json.front().is_object()) return std::nullopt;
    return WholeCall{.name = json.begin().key(), .arguments = Dump(json.front())};
  }
  return ParseWholeCall(json);
}

std::optional<WholeCall> ParseWholeCall(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return std::nullopt;
  WholeCall call{.name = name->get<std::string>(), .arguments = "{}"};
  auto arguments = json.find("arguments");
  if (arguments == json.end()) arguments = json.find("parameters");
  if (arguments == json.end() || arguments->is_null()) return call;
  if (arguments->is_string()) {
    call.arguments = arguments->get<std::string>();
    if (!ParsePart(call.arguments).is_object()) return std::nullopt;
  } else if (arguments->is_object()) {
    call.arguments = Dump(*arguments);
  } else {
    return std::nullopt;
  }
  return call;
}

}  // namespace quire
