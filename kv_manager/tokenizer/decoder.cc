// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/status.h"
#include "kv_manager/tokenizer/byte_level.h"

namespace quire {
namespace {

using Kind = DecoderStep::Kind;

// Returns the byte of a token "<0x41>". As in the reference, "<0x+7>" counts too.
std::optional<char> ByteOfToken(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token.back() != '>') return std::nullopt;
  const int high = token[3] == '+' ? 0 : HexValue(token[3]);
  const int low = HexValue(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

// Returns the bytes of a byte-level token. A token with a foreign character keeps its own bytes.
std::string BytesOfByteLevelToken(std::string_view token) {
  std::string bytes;
  for (size_t pos = 0; pos < token.size();) {
    const int byte = ByteOfByteLevelCharacter(DecodeUtf8(token, &pos));
    if (byte < 0) return std::string(token);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

std::string_view StripToken(const DecoderStep& step, std::string_view token) {
  const size_t size = step.content.size();
  for (size_t i = 0; i < step.num_start && token.substr(0, size) == step.content; ++i) token.remove_prefix(size);
  for (size_t i = 0; i < step.num_stop && token.size() >= size && token.substr(token.size() - size) == step.content;
       ++i) {
    token.remove_suffix(size);
  }
  return token;
}

std::string ReplaceToken(const DecoderStep& step, std::string_view token) {
  std::vector<TextSpan> spans;
  // A pattern whose matching gives up replaces nothing.
  if (!step.pattern->FindAll(token, &spans).ok()) return std::string(token);
  std::string out;
  for (const TextSpan& span : spans) {
    out.append(span.is_match ? std::string_view(step.content) : token.substr(span.begin, span.end - span.begin));
  }
  return out;
}

std::string ReplaceMetaspace(const DecoderStep& step, bool is_first, std::string_view token) {
  std::string out;
  size_t covered = 0;
  for (size_t at = token.find(step.content); at != std::string_view::npos; at = token.find(step.content, covered)) {
    out.append(token.substr(covered, at - covered));
    if (!is_first || !step.drops_first) out.push_back(' ');
    covered = at + step.content.size();
  }
  out.append(token.substr(covered));
  return out;
}

bool JoinsTokens(const DecoderStep& step) {
  return step.kind == Kind::kByteLevel || step.kind == Kind::kFuse || step.kind == Kind::kJoinWithSpaces;
}

absl::Status ParseCharacter(const JsonValue& json, std::string_view key, std::string* character) {
  QUIRE_ASSIGN_OR_RETURN(*character, json.String(key));
  if (character->empty() || character->size() != Utf8Length(character->front())) {
    return json.Error(absl::StrCat("\"", std::string(key), "\" must be one character"));
  }
  return absl::OkStatus();
}

absl::Status ParseCount(const JsonValue& json, std::string_view key, size_t* count) {
  constexpr int64_t kMaxCount = 1024;
  QUIRE_ASSIGN_OR_RETURN(const JsonValue member, json.Member(key));
  QUIRE_ASSIGN_OR_RETURN(const int64_t value, member.AsInteger());
  if (value < 0 || value > kMaxCount) return member.Error(absl::StrCat("is ", value, ", it is 0 to ", kMaxCount));
  *count = static_cast<size_t>(value);
  return absl::OkStatus();
}

absl::Status AppendSteps(const JsonValue& json, std::vector<DecoderStep>* steps) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view type, json.String("type"));
  DecoderStep step;
  if (type == "Sequence") {
    QUIRE_ASSIGN_OR_RETURN(const auto elements, json.Array("decoders"));
    for (const JsonValue& element : elements) QUIRE_RETURN_IF_ERROR(AppendSteps(element, steps));
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    QUIRE_RETURN_IF_ERROR(ParseCharacter(json, "content", &step.content));
    QUIRE_RETURN_IF_ERROR(ParseCount(json, "start", &step.num_start));
    QUIRE_RETURN_IF_ERROR(ParseCount(json, "stop", &step.num_stop));
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    QUIRE_ASSIGN_OR_RETURN(const JsonValue pattern_json, json.Member("pattern"));
    QUIRE_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(pattern_json));
    step.pattern = std::make_shared<const Pattern>(std::move(pattern));
    QUIRE_ASSIGN_OR_RETURN(step.content, json.String("content"));
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    QUIRE_RETURN_IF_ERROR(ParseCharacter(json, "replacement", &step.content));
    QUIRE_ASSIGN_OR_RETURN(const bool adds_prefix_space, json.BoolOr("add_prefix_space", true));
    QUIRE_ASSIGN_OR_RETURN(const std::string_view scheme, json.StringOr("prepend_scheme", "always"));
    step.drops_first = adds_prefix_space && scheme != "never";
  } else {
    return json.Error(absl::StrCat("decoder type \"", std::string(type), "\" is not supported"));
  }
  steps->push_back(std::move(step));
  return absl::OkStatus();
}

// Returns how many times longer the Replace steps can make a text. Without a bound a small file could ask for any
// amount of memory.
absl::Status CheckGrowth(const JsonValue& json, const std::vector<DecoderStep>& steps) {
  constexpr size_t kMaxGrowth = 1 << 16;
  size_t growth = 1;
  for (const DecoderStep& step : steps) {
    if (step.kind != Kind::kReplace) continue;
    const size_t literal = step.pattern->literal().size();
    growth *= literal == 0 ? step.content.size() + 1 : std::max<size_t>(1, step.content.size() / literal);
    if (growth > kMaxGrowth) return json.Error(absl::StrCat("makes a text more than ", kMaxGrowth, " times longer"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Decoder> Decoder::Parse(const JsonValue& json) {
  Decoder decoder;
  if (json.is_null()) {
    DecoderStep join;
    join.kind = Kind::kJoinWithSpaces;
    decoder.steps.push_back(std::move(join));
    return decoder;
  }
  QUIRE_RETURN_IF_ERROR(AppendSteps(json, &decoder.steps));
  QUIRE_RETURN_IF_ERROR(CheckGrowth(json, decoder.steps));
  return decoder;
}

std::string Decoder::BytesOfToken(std::string_view token) const {
  std::string bytes(token);
  for (const DecoderStep& step : steps) {
    switch (step.kind) {
      case Kind::kByteLevel:
        return BytesOfByteLevelToken(bytes);
      case Kind::kByteFallback:
        if (const std::optional<char> byte = ByteOfToken(bytes)) return std::string(1, *byte);
        break;
      case Kind::kReplace:
        bytes = ReplaceToken(step, bytes);
        break;
      case Kind::kMetaspace:
        bytes = ReplaceMetaspace(step, /*is_first=*/false, bytes);
        break;
      case Kind::kStrip:
      case Kind::kFuse:
      case Kind::kJoinWithSpaces:
        break;  // These steps act on the text as a whole.
    }
  }
  return bytes;
}

DecoderStream::DecoderStream(const Decoder* decoder) : decoder_(decoder), stages_(decoder->steps.size()) {
  const auto& steps = decoder->steps;
  num_token_steps_ = static_cast<size_t>(std::find_if(steps.begin(), steps.end(), JoinsTokens) - steps.begin());
}

void DecoderStream::Push(std::string_view token, std::string* out) {
  PushToken(0, token, out);
}

void DecoderStream::Finish(std::string* out) {
  for (size_t step = 0; step < stages_.size(); ++step) FinishStep(step, out);
}

// Passes a whole token through the steps up to the one that joins tokens.
void DecoderStream::PushToken(size_t index, std::string_view token, std::string* out) {
  if (index == stages_.size()) {
    out->append(token);
    return;
  }
  const DecoderStep& step = decoder_->steps[index];
  Stage& stage = stages_[index];
  const bool is_first = !std::exchange(stage.has_token, true);
  switch (step.kind) {
    case Kind::kByteLevel: {
      std::string text;
      stage.assembler.Append(BytesOfByteLevelToken(token), &text);
      return PushText(index + 1, text, out);
    }
    case Kind::kFuse:
      return PushText(index + 1, token, out);
    case Kind::kJoinWithSpaces:
      return PushText(index + 1, is_first ? std::string(token) : absl::StrCat(" ", std::string(token)), out);
    case Kind::kStrip:
      return PushToken(index + 1, StripToken(step, token), out);
    case Kind::kReplace:
      return PushToken(index + 1, ReplaceToken(step, token), out);
    case Kind::kMetaspace:
      return PushToken(index + 1, ReplaceMetaspace(step, is_first, token), out);
    case Kind::kByteFallback:
      break;
  }
  if (const std::optional<char> byte = ByteOfToken(token)) {
    stage.held.push_back(*byte);
    return;
  }
  FlushBytes(index, out);
  PushToken(index + 1, token, out);
}

// A run of byte tokens becomes one token of text, or one replacement character for each byte.
void DecoderStream::FlushBytes(size_t index, std::string* out) {
  const std::string bytes = std::exchange(stages_[index].held, {});
  if (bytes.empty()) return;
  if (IsValidUtf8(bytes)) return PushToken(index + 1, bytes, out);
  for (size_t i = 0; i < bytes.size(); ++i) PushToken(index + 1, kReplacementCharacter, out);
}

// Passes a part of the joined text (whole characters) to a step behind the one that joins tokens.
void DecoderStream::PushText(size_t index, std::string_view text, std::string* out) {
  if (text.empty()) return;
  if (index == stages_.size()) {
    out->append(text);
    return;
  }
  const DecoderStep& step = decoder_->steps[index];
  switch (step.kind) {
    case Kind::kFuse:
    case Kind::kJoinWithSpaces:
      return PushText(index + 1, text, out);
    case Kind::kStrip:
      return StripText(index, text, out);
    case Kind::kReplace:
      return ReplaceText(index, text, out);
    case Kind::kMetaspace:
      return PushText(index + 1, ReplaceMetaspace(step, /*is_first=*/true, text), out);
    case Kind::kByteLevel:
    case Kind::kByteFallback:
      // The step must see the joined token as a whole.
      stages_[index].held.append(text);
      return;
  }
}

void DecoderStream::StripText(size_t index, std::string_view text, std::string* out) {
  const DecoderStep& step = decoder_->steps[index];
  Stage& stage = stages_[index];
  const size_t size = step.content.size();
  while (!stage.has_begun && !text.empty()) {
    stage.has_begun = stage.num_stripped == step.num_start || text.substr(0, size) != step.content;
    if (stage.has_begun) break;
    text.remove_prefix(size);
    ++stage.num_stripped;
  }
  if (text.empty()) return;
  // Keeps back what Finish may have to cut off.
  std::string all = std::exchange(stage.held, {}) + std::string(text);
  size_t end = all.size();
  for (size_t i = 0; i < step.num_stop && end >= size && all.compare(end - size, size, step.content) == 0; ++i) {
    end -= size;
  }
  stage.held = all.substr(end);
  PushText(index + 1, std::string_view(all).substr(0, end), out);
}

void DecoderStream::ReplaceText(size_t index, std::string_view text, std::string* out) {
  const DecoderStep& step = decoder_->steps[index];
  Stage& stage = stages_[index];
  stage.held.append(text);
  const std::string& literal = step.pattern->literal();
  if (literal.empty()) return;  // A regular expression may look at the whole text.
  const std::string_view held = stage.held;
  std::string replaced;
  size_t covered = 0;
  for (size_t at = held.find(literal); at != std::string_view::npos; at = held.find(literal, covered)) {
    replaced.append(held.substr(covered, at - covered)).append(step.content);
    covered = at + literal.size();
  }
  // Keeps back the longest end that may be the start of a match.
  size_t keep = std::min(held.size() - covered, literal.size() - 1);
  while (keep > 0 && held.substr(held.size() - keep) != std::string_view(literal).substr(0, keep)) --keep;
  replaced.append(held.substr(covered, held.size() - keep - covered));
  stage.held.erase(0, stage.held.size() - keep);
  PushText(index + 1, replaced, out);
}

void DecoderStream::FinishStep(size_t index, std::string* out) {
  const DecoderStep& step = decoder_->steps[index];
  Stage& stage = stages_[index];
  const bool sees_tokens = index <= num_token_steps_;
  if (step.kind == Kind::kByteLevel && sees_tokens) {
    std::string text;
    stage.assembler.Finish(&text);
    return PushText(index + 1, text, out);
  }
  if (step.kind == Kind::kByteFallback && sees_tokens) return FlushBytes(index, out);
  const std::string held = std::exchange(stage.held, {});
  if (held.empty() || step.kind == Kind::kStrip) return;
  if (step.kind == Kind::kReplace) return PushText(index + 1, ReplaceToken(step, held), out);
  if (step.kind == Kind::kByteFallback) {
    const std::optional<char> byte = ByteOfToken(held);
    if (!byte.has_value()) return PushText(index + 1, held, out);
    const std::string text(1, *byte);
    return PushText(index + 1, IsValidUtf8(text) ? std::string_view(text) : kReplacementCharacter, out);
  }
  std::string text;
  stage.assembler.Append(BytesOfByteLevelToken(held), &text);
  stage.assembler.Finish(&text);
  PushText(index + 1, text, out);
}

}  // namespace quire
