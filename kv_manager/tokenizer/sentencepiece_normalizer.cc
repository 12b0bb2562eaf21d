// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/sentencepiece_normalizer.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"

namespace quire {
namespace {

// Real rules grow a text by less than a factor of 20 (U+FDFA).
constexpr size_t kMaxGrowth = 64;

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

absl::StatusOr<SentencePieceNormalizer> SentencePieceNormalizer::Create(const SentencePieceModel& model,
                                                                        bool adds_prefix) {
  SentencePieceNormalizer normalizer;
  if (!model.precompiled_charsmap.empty()) {
    absl::StatusOr<Charsmap> charsmap = Charsmap::Parse(model.precompiled_charsmap);
    if (!charsmap.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.model: precompiled_charsmap: ", charsmap.status().message()));
    }
    normalizer.charsmap_ = *std::move(charsmap);
  }
  normalizer.add_dummy_prefix_ = adds_prefix;
  normalizer.remove_extra_whitespaces_ = model.remove_extra_whitespaces;
  normalizer.escape_whitespaces_ = model.escape_whitespaces;
  normalizer.treat_whitespace_as_suffix_ = model.treat_whitespace_as_suffix;
  return normalizer;
}

absl::StatusOr<std::string> SentencePieceNormalizer::Normalize(std::string_view text,
                                                               const PrefixTrie& user_defined) const {
  const size_t limit = text.size() * kMaxGrowth + 1024;
  while (remove_extra_whitespaces_ && !text.empty()) {
    const auto [form, num_bytes] = NormalizePrefix(text, user_defined);
    if (form != " ") break;
    text.remove_prefix(num_bytes);
  }
  std::string out;
  if (text.empty()) return out;
  if (add_dummy_prefix_ && !treat_whitespace_as_suffix_) out.append(space());
  bool is_after_space = remove_extra_whitespaces_;
  while (!text.empty()) {
    auto [form, num_bytes] = NormalizePrefix(text, user_defined);
    text.remove_prefix(num_bytes);
    while (is_after_space && !form.empty() && form.front() == ' ') form.remove_prefix(1);
    if (!form.empty()) is_after_space = remove_extra_whitespaces_ && form.back() == ' ';
    for (const char c : form) {
      if (c == ' ') {
        out.append(space());
      } else {
        out.push_back(c);
      }
    }
    if (out.size() > limit) {
      return absl::InvalidArgumentError(
          absl::StrCat("normalized text has more than ", limit, " bytes, the limit for this text"));
    }
  }
  while (remove_extra_whitespaces_ && EndsWith(out, space())) out.resize(out.size() - space().size());
  if (add_dummy_prefix_ && treat_whitespace_as_suffix_) out.append(space());
  return out;
}

std::pair<std::string_view, size_t> SentencePieceNormalizer::NormalizePrefix(std::string_view text,
                                                                             const PrefixTrie& user_defined) const {
  const size_t symbol = user_defined.FindLongest(text).first;
  if (symbol > 0) return {text.substr(0, symbol), symbol};
  if (charsmap_.has_value()) {
    if (const auto match = charsmap_->FindLongest(text)) return {match->replacement, match->num_bytes};
  }
  const size_t character = Utf8Length(text.front());
  return {text.substr(0, character), character};
}

std::string_view SentencePieceNormalizer::space() const {
  return escape_whitespaces_ ? kSpaceSymbol : " ";
}

}  // namespace quire
