// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/bare_object.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/tag_search.h"

namespace quire {
namespace {

bool IsSpace(char c) {
  return absl::ascii_isspace(static_cast<unsigned char>(c));
}

bool Closes(char c) {
  return c == '}' || c == ']';
}

}  // namespace

void BareObject::Reset(const ParameterTypes* types) {
  *this = BareObject(quote_);
  types_ = types;
}

size_t BareObject::Add(absl::string_view text, bool is_last, std::string* json) {
  size_t at = 0;
  while (at < text.size() && !is_complete()) {
    const absl::string_view rest = text.substr(at);
    // A bare value may contain anything.
    const bool may_be_quote = state_ != State::kBare && state_ != State::kName && state_ != State::kJson;
    if (may_be_quote && absl::StartsWith(rest, quote_)) {
      TakeQuote(json);
      at += quote_.size();
      continue;
    }
    if (may_be_quote && !is_last && CouldBecome(rest, quote_)) return at;
    Take(text[at++], json);
  }
  if (is_last && !is_complete()) Flush(json);
  return at;
}

void BareObject::TakeQuote(std::string* json) {
  if (state_ == State::kString) return EndString(json);
  if (state_ == State::kAfter || state_ == State::kColon)
    state_ = IsInObject() && !is_key_ ? State::kKey : State::kValue;
  BeginString(State::kString, json);
}

void BareObject::Take(char c, std::string* json) {
  switch (state_) {
    case State::kString:
      return AppendPartOfString(absl::string_view(&c, 1), json);
    case State::kJson:
      if (c == '"' && !is_escaped_) return EndString(json);
      is_escaped_ = c == '\\' && !is_escaped_;
      // A line break in a string is no JSON.
      return static_cast<unsigned char>(c) < 0x20 ? AppendPartOfString(absl::string_view(&c, 1), json)
                                                  : json->push_back(c);
    case State::kName:
      if (c == ':') return EndName(json);
      if (Closes(c)) {
        EndName(json);
        return Take(c, json);
      }
      text_ += c;
      return;
    case State::kBare:
      if (c != ',' && !Closes(c)) {
        text_ += c;
        return;
      }
      EndBare(json);
      return Take(c, json);
    case State::kColon:
      if (c == ':') state_ = State::kValue;
      if (c == ':' || IsSpace(c)) return;
      state_ = State::kValue;
      return Take(c, json);
    case State::kAfter:
      if (IsSpace(c)) return;
      if (Closes(c)) return Close(json);
      state_ = IsInObject() ? State::kKey : State::kValue;
      if (c != ',') Take(c, json);  // The comma is missing.
      return;
    case State::kKey:
    case State::kValue:
      break;
  }
  if (!has_begun_) {
    has_begun_ = true;
    return Open('{', json);
  }
  if (IsSpace(c)) return;
  const bool is_value = state_ == State::kValue;
  if (c == '"') return BeginString(State::kJson, json);
  if (is_value && (c == '{' || c == '[')) {
    BeginValue(json);
    return Open(c, json);
  }
  if (Closes(c)) {
    if (is_value && IsInObject()) absl::StrAppend(json, "null");  // The value is missing.
    return Close(json);
  }
  if (c == ',' && !is_value) return;
  if (is_value) BeginValue(json);
  text_.clear();
  state_ = is_value ? State::kBare : State::kName;
  Take(c, json);
}

void BareObject::BeginString(State state, std::string* json) {
  is_key_ = state_ == State::kKey;
  if (is_key_) {
    if (needs_comma_) absl::StrAppend(json, ", ");
    value_types_ = kAnyType;
  } else {
    BeginValue(json);
  }
  *json += '"';
  is_escaped_ = false;
  state_ = state;
}

void BareObject::EndString(std::string* json) {
  absl::StrAppend(json, is_key_ ? "\": " : "\"");
  state_ = is_key_ ? State::kColon : State::kAfter;
  needs_comma_ = true;
}

void BareObject::BeginValue(std::string* json) {
  if (!IsInObject() && needs_comma_) absl::StrAppend(json, ", ");
  is_key_ = false;
}

void BareObject::EndName(std::string* json) {
  const absl::string_view name = absl::StripAsciiWhitespace(text_);
  absl::StrAppend(json, needs_comma_ ? ", \"" : "\"");
  AppendPartOfString(name, json);
  absl::StrAppend(json, "\": ");
  value_types_ = kAnyType;
  if (types_ != nullptr && brackets_.size() == 1) {
    const auto types = types_->find(std::string(name));
    if (types != types_->end()) value_types_ = types->second;
  }
  text_.clear();
  state_ = State::kValue;
}

void BareObject::EndBare(std::string* json) {
  absl::StrAppend(json, TypedValue(absl::StripAsciiWhitespace(text_), brackets_.size() == 1 ? value_types_ : kAnyType));
  text_.clear();
  needs_comma_ = true;
  state_ = State::kAfter;
}

void BareObject::Open(char bracket, std::string* json) {
  brackets_ += bracket;
  *json += bracket;
  needs_comma_ = false;
  state_ = bracket == '{' ? State::kKey : State::kValue;
}

void BareObject::Close(std::string* json) {
  *json += IsInObject() ? '}' : ']';
  brackets_.pop_back();
  needs_comma_ = true;
  state_ = State::kAfter;
}

void BareObject::Flush(std::string* json) {
  if (state_ != State::kName && state_ != State::kBare) return;
  if (state_ == State::kName) absl::StrAppend(json, needs_comma_ ? ", \"" : "\"");
  const bool is_string = state_ == State::kBare && (value_types_ & kStringType) != 0;
  if (is_string) *json += '"';
  AppendPartOfString(text_, json);
  text_.clear();
}

}  // namespace quire
