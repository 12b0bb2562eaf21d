// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/pin_validation.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kv_manager/requests/chat_prompt.h"
#include "kv_manager/tokenizer/user_text.h"

namespace quire {
namespace {

class PinChecker {
 public:
  PinChecker(const v1::Chat& chat, FieldErrors* errors) : chat_(chat), errors_(errors) {}

  void Check(const v1::PrefixPin& pin, const std::string& field) {
    const auto num_messages = static_cast<uint32_t>(chat_.messages_size());
    CheckNumber(pin.num_messages(), 0, num_messages, field + ".num_messages", "messages");
    if (pin.has_ttl_seconds()) CheckNumber(pin.ttl_seconds(), 1, kMaxPinSeconds, field + ".ttl_seconds", "");
    if (pin.has_num_parts() && pin.has_num_tool_calls()) {
      errors_->Add(field + ".num_tool_calls", "cannot be combined with num_parts");
    }
    const bool has_message = pin.num_messages() >= 1 && pin.num_messages() <= num_messages;
    const v1::ChatMessage& last =
        has_message ? chat_.messages(static_cast<int>(pin.num_messages()) - 1) : v1::ChatMessage::default_instance();
    if (pin.has_num_parts()) {
      const int num_parts = last.content_parts().empty() ? last.has_content() : last.content_parts_size();
      CheckNumber(pin.num_parts(), 1, num_parts, field + ".num_parts", "parts");
    }
    if (pin.has_num_tool_calls()) {
      CheckNumber(pin.num_tool_calls(), 1, last.tool_calls_size(), field + ".num_tool_calls", "tool calls");
    }
  }

 private:
  // `what` is what the conversation or the message has `max` of, if it is not empty.
  void CheckNumber(uint32_t value, uint32_t min, uint32_t max, const std::string& field, const char* what) {
    if (value >= min && value <= max) return;
    if (max < min) return errors_->Add(field, absl::StrCat("is ", value, ", and there are no ", what));
    const std::string limit = *what == 0 ? absl::StrCat(max) : absl::StrCat(max, ", the number of ", what);
    errors_->Add(field, absl::StrCat("is ", value, ", it must be ", min, " .. ", limit));
  }

  const v1::Chat& chat_;
  FieldErrors* const errors_;
};

// Returns how many tokens of the prompt lie in the first `num_bytes` bytes of its text.
int NumTokensIn(size_t num_bytes, const jinja::Text& text, const std::vector<TokenId>& prompt,
                const Tokenizer& tokenizer, const RequestLimits& limits) {
  const std::string_view bytes = text.bytes;
  size_t end = 0;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const std::string token = tokenizer.TokenBytes(prompt[i]);
    if (bytes.substr(end, token.size()) != token) break;
    end += token.size();
    if (end > num_bytes) return static_cast<int>(i);
  }
  if (end == bytes.size()) return static_cast<int>(prompt.size());
  // The tokenizer writes the text in another form. What the prompt and the beginning alone have in common is known to
  // be right.
  const std::vector<ByteRange> user = Clip(text.user, 0, num_bytes);
  const auto beginning = tokenizer.Encode(
      bytes.substr(0, num_bytes), {.add_special_tokens = false, .user_ranges = user, .has_left = limits.has_left});
  if (!beginning.ok()) return 0;
  const auto differs = std::mismatch(prompt.begin(), prompt.end(), beginning->begin(), beginning->end());
  return static_cast<int>(differs.first - prompt.begin());
}

}  // namespace

void ReadPins(const v1::GenerateRequest& in, const ServedModel& model, const RequestLimits& limits,
              const jinja::Text& text, Request* request, FieldErrors* errors) {
  if (in.pins_size() > kMaxRequestPins) {
    return errors->Add("pins",
                       absl::StrCat("has ", in.pins_size(), " entries, at most ", kMaxRequestPins, " are allowed"));
  }
  if (!in.has_chat()) return errors->Add("pins", "needs chat as the prompt");
  if (in.bypass_prefix_cache()) errors->Add("pins", "cannot be combined with bypass_prefix_cache");
  PinChecker checker(in.chat(), errors);
  for (int i = 0; i < in.pins_size(); ++i) checker.Check(in.pins(i), absl::StrCat("pins[", i, "]"));
  if (!errors->empty() || text.bytes.empty()) return;
  const std::vector<size_t> ends = PrefixEnds(in.chat(), in.pins(), model, text, limits.max_prompt_bytes);
  for (int i = 0; i < in.pins_size(); ++i) {
    const uint32_t seconds = in.pins(i).has_ttl_seconds() ? in.pins(i).ttl_seconds() : kDefaultRequestPinSeconds;
    request->pins.push_back({.num_tokens = NumTokensIn(ends[i], text, request->prompt, *model.tokenizer, limits),
                             .ttl_us = seconds * int64_t{1'000'000}});
  }
}

}  // namespace quire
