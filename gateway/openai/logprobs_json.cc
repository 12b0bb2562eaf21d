// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

// JSON has no infinity. vLLM writes this number too.
constexpr double kLowestLogprob = -9999;

double Logprob(const v1::TokenLogprob& token) {
  return std::isfinite(token.logprob()) ? std::max<double>(token.logprob(), kLowestLogprob) : kLowestLogprob;
}

Json ChatToken(const v1::TokenLogprob& token) {
  Json bytes = Json::array();
  for (const char c : token.token()) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token.token()}, {"logprob", Logprob(token)}, {"bytes", std::move(bytes)}};
}

}  // namespace

void CompletionLogprobs::Add(const LogprobList& positions, uint32_t num_top) {
  for (const v1::PositionLogprobs& position : positions) {
    text_offsets_.push_back(position.text_offset());
    tokens_.push_back(position.has_chosen() ? position.chosen().token() : position.first_token());
    if (!position.has_chosen()) {
      token_logprobs_.push_back(nullptr);
      top_logprobs_.push_back(nullptr);
      continue;
    }
    token_logprobs_.push_back(Logprob(position.chosen()));
    Json top = Json::object();
    for (int i = 0; i < position.top_size() && i < static_cast<int>(num_top); ++i) {
      top[position.top(i).token()] = Logprob(position.top(i));
    }
    top[position.chosen().token()] = Logprob(position.chosen());
    top_logprobs_.push_back(std::move(top));
  }
}

Json CompletionLogprobs::Take() {
  if (tokens_.empty()) return nullptr;
  return {{"text_offset", std::exchange(text_offsets_, Json::array())},
          {"token_logprobs", std::exchange(token_logprobs_, Json::array())},
          {"tokens", std::exchange(tokens_, Json::array())},
          {"top_logprobs", std::exchange(top_logprobs_, Json::array())}};
}

Json ChatLogprobs(const LogprobList& positions) {
  Json list = Json::array();
  for (const v1::PositionLogprobs& position : positions) {
    Json entry = ChatToken(position.chosen());
    Json& top = entry["top_logprobs"] = Json::array();
    for (const v1::TokenLogprob& token : position.top()) top.push_back(ChatToken(token));
    list.push_back(std::move(entry));
  }
  return list;
}

Json PromptLogprobs(const LogprobList& positions) {
  Json list = Json::array();
  for (const v1::PositionLogprobs& position : positions) {
    if (!position.has_chosen()) {
      list.push_back(nullptr);
      continue;
    }
    Json entry = Json::object();
    const auto add = [&entry](const v1::TokenLogprob& token, uint32_t rank) {
      entry[absl::StrCat(token.token_id())] = {
          {"logprob", Logprob(token)}, {"rank", rank}, {"decoded_token", token.token()}};
    };
    for (int i = 0; i < position.top_size(); ++i) add(position.top(i), static_cast<uint32_t>(i + 1));
    add(position.chosen(), position.rank());
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace quire
