// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json_text.h"
#include "base/number_text.h"

namespace quire {
namespace {

// JSON has no infinity. vLLM writes this number too.
constexpr double kLowestLogprob = -9999;

void AppendLogprob(const v1::TokenLogprob& token, std::string* out) {
  const double value =
      std::isfinite(token.logprob()) ? std::max<double>(token.logprob(), kLowestLogprob) : kLowestLogprob;
  const std::string text = NumberText(value);
  // Clients may take a number without a point for an integer.
  absl::StrAppend(out, text, text.find_first_of(".e") == text.npos ? ".0" : "");
}

// Begins an entry of a list, unless it is the first one.
void Separate(std::string* entries) {
  if (!entries->empty()) *entries += ',';
}

void Join(const std::string& more, std::string* entries) {
  if (more.empty()) return;
  Separate(entries);
  *entries += more;
}

void AppendName(const v1::TokenLogprob& token, TokenName name, std::string* out) {
  if (name == TokenName::kText) return AppendJsonString(token.token(), out);
  absl::StrAppend(out, "\"token_id:", token.token_id(), "\"");
}

// Appends {"token", "logprob", "bytes"} without the last brace.
void AppendChatToken(const v1::TokenLogprob& token, TokenName name, std::string* out) {
  *out += "{\"token\":";
  AppendName(token, name, out);
  *out += ",\"logprob\":";
  AppendLogprob(token, out);
  *out += ",\"bytes\":[";
  for (const char c : token.token()) absl::StrAppend(out, out->back() == '[' ? "" : ",", static_cast<unsigned char>(c));
  *out += ']';
}

// The logprobs of a position by their names. Different tokens may have the same text; the last one counts.
std::string TopObject(const v1::PositionLogprobs& position, uint32_t num_top, TokenName name) {
  std::vector<const v1::TokenLogprob*> tokens;  // At most 21.
  const auto add = [&tokens, name](const v1::TokenLogprob& token) {
    const auto same = std::find_if(tokens.begin(), tokens.end(), [&](const v1::TokenLogprob* other) {
      return name == TokenName::kId ? other->token_id() == token.token_id() : other->token() == token.token();
    });
    same == tokens.end() ? tokens.push_back(&token) : void(*same = &token);
  };
  for (int i = 0; i < position.top_size() && i < static_cast<int>(num_top); ++i) add(position.top(i));
  add(position.chosen());
  std::string object = "{";
  for (const v1::TokenLogprob* token : tokens) {
    if (object.size() > 1) object += ',';
    AppendName(*token, name, &object);
    object += ':';
    AppendLogprob(*token, &object);
  }
  return object + "}";
}

void AppendRanked(const v1::TokenLogprob& token, uint32_t rank, std::string* object) {
  absl::StrAppend(object, object->back() == '{' ? "\"" : ",\"", token.token_id(), "\":{\"logprob\":");
  AppendLogprob(token, object);
  absl::StrAppend(object, ",\"rank\":", rank, ",\"decoded_token\":");
  AppendJsonString(token.token(), object);
  *object += '}';
}

}  // namespace

size_t CountLogprobs(const LogprobList& positions) {
  size_t count = 0;
  for (const v1::PositionLogprobs& position : positions) count += 1 + static_cast<size_t>(position.top_size());
  return count;
}

void CompletionLogprobs::Add(const LogprobList& positions, uint32_t num_top, TokenName name) {
  for (const v1::PositionLogprobs& position : positions) {
    for (std::string* entries : {&text_offsets_, &tokens_, &token_logprobs_, &top_logprobs_}) Separate(entries);
    absl::StrAppend(&text_offsets_, position.text_offset());
    if (!position.has_chosen()) {
      AppendJsonString(position.first_token(), &tokens_);
      token_logprobs_ += "null";
      top_logprobs_ += "null";
      continue;
    }
    AppendName(position.chosen(), name, &tokens_);
    AppendLogprob(position.chosen(), &token_logprobs_);
    top_logprobs_ += TopObject(position, num_top, name);
  }
}

void CompletionLogprobs::Add(const CompletionLogprobs& other) {
  Join(other.text_offsets_, &text_offsets_);
  Join(other.tokens_, &tokens_);
  Join(other.token_logprobs_, &token_logprobs_);
  Join(other.top_logprobs_, &top_logprobs_);
}

std::string CompletionLogprobs::Take() {
  if (tokens_.empty()) return "null";
  std::string text;
  text.reserve(num_bytes() + 100);
  absl::StrAppend(&text, "{\"text_offset\":[", text_offsets_, "],\"token_logprobs\":[", token_logprobs_,
                  "],\"tokens\":[", tokens_, "],\"top_logprobs\":[", top_logprobs_, "]}");
  *this = CompletionLogprobs();
  return text;
}

void AppendChatLogprob(const v1::PositionLogprobs& position, TokenName name, std::string* entries) {
  Separate(entries);
  AppendChatToken(position.chosen(), name, entries);
  *entries += ",\"top_logprobs\":[";
  for (const v1::TokenLogprob& token : position.top()) {
    if (entries->back() != '[') *entries += ',';
    AppendChatToken(token, name, entries);
    *entries += '}';
  }
  *entries += "]}";
}

void AppendChatLogprobs(const LogprobList& positions, TokenName name, std::string* entries) {
  for (const v1::PositionLogprobs& position : positions) AppendChatLogprob(position, name, entries);
}

std::string PromptLogprobs(const LogprobList& positions) {
  std::string list = "[";
  for (const v1::PositionLogprobs& position : positions) {
    if (list.size() > 1) list += ',';
    if (!position.has_chosen()) {
      list += "null";
      continue;
    }
    list += '{';
    bool has_chosen = false;
    for (int i = 0; i < position.top_size(); ++i) {
      const bool is_chosen = position.top(i).token_id() == position.chosen().token_id();
      has_chosen = has_chosen || is_chosen;
      AppendRanked(position.top(i), is_chosen ? position.rank() : static_cast<uint32_t>(i + 1), &list);
    }
    if (!has_chosen) AppendRanked(position.chosen(), position.rank(), &list);
    list += '}';
  }
  list += ']';
  return list;
}

}  // namespace quire
