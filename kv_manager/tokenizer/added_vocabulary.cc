// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/added_vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/unicode.h"
#include "kv_manager/tokenizer/user_text.h"

namespace quire {
namespace {

// Real rules grow a text by less than a factor of 20.
constexpr size_t kMaxGrowth = 64;

size_t MaxBytes(std::string_view text) {
  return text.size() * kMaxGrowth + 1024;
}

// The start of the last character before `end`.
size_t PreviousCharacter(std::string_view text, size_t end) {
  do {
    --end;
  } while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

bool EndsWithWord(std::string_view text) {
  if (text.empty()) return false;
  size_t pos = PreviousCharacter(text, text.size());
  return IsWordCharacter(DecodeUtf8(text, &pos));
}

bool StartsWithWord(std::string_view text) {
  size_t pos = 0;
  return !text.empty() && IsWordCharacter(DecodeUtf8(text, &pos));
}

// Returns where the whitespace at the end of text[0, end) starts, but never a position before `begin`.
size_t SkipSpacesLeft(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    size_t previous = PreviousCharacter(text, end);
    const size_t start = previous;
    if (!IsWhitespace(DecodeUtf8(text, &previous))) break;
    end = start;
  }
  return end;
}

size_t SkipSpacesRight(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t next = begin;
    if (!IsWhitespace(DecodeUtf8(text, &next))) break;
    begin = next;
  }
  return begin;
}

}  // namespace

absl::StatusOr<AddedVocabulary> AddedVocabulary::Create(std::vector<AddedToken> tokens, const Normalizer* normalizer) {
  AddedVocabulary added;
  added.tokens_ = std::move(tokens);
  added.patterns_.resize(added.tokens_.size());
  std::vector<std::pair<std::string_view, TokenId>> plain;
  std::vector<std::pair<std::string_view, TokenId>> normalized;
  absl::flat_hash_set<std::string> seen[2];
  for (size_t i = 0; i < added.tokens_.size(); ++i) {
    const AddedToken& token = added.tokens_[i];
    if (!added.index_.emplace(token.id, i).second) {
      return absl::InvalidArgumentError(absl::StrCat("two added tokens have id ", token.id));
    }
    TextPiece pattern;
    pattern.text = token.content;
    pattern.max_bytes = MaxBytes(token.content);
    if (token.normalized && normalizer != nullptr) QUIRE_RETURN_IF_ERROR(normalizer->Normalize(&pattern));
    if (pattern.text.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("added token ", token.id, " is empty"));
    }
    if (!seen[token.normalized].insert(pattern.text).second) {
      return absl::InvalidArgumentError(absl::StrCat("added token \"", pattern.text, "\" is given twice"));
    }
    added.is_control_.push_back(token.special || !IsOnlySpace(pattern.text));
    added.patterns_[i] = std::move(pattern.text);
    (token.normalized ? normalized : plain).emplace_back(added.patterns_[i], static_cast<TokenId>(i));
  }
  added.plain_trie_ = PrefixTrie(std::move(plain));
  added.normalized_trie_ = PrefixTrie(std::move(normalized));
  return added;
}

absl::StatusOr<std::vector<TextPiece>> AddedVocabulary::Extract(std::string_view text, const Normalizer* normalizer,
                                                                bool parses_special,
                                                                absl::Span<const ByteRange> user) const {
  TextPiece prompt;
  prompt.text = text;
  prompt.num_origin_bytes = text.empty() ? 0 : Utf8Length(text.front());
  std::vector<TextPiece> out;
  for (auto& [piece, range] : Split(prompt, plain_trie_, parses_special, user)) {
    if (piece.token != kNoToken) {
      out.push_back(std::move(piece));
      continue;
    }
    std::vector<ByteRange> piece_user = Clip(user, range.begin, range.end);
    if (normalizer != nullptr) {
      const std::string_view before = text.substr(range.begin, range.end - range.begin);
      piece.max_bytes = MaxBytes(piece.text);
      QUIRE_RETURN_IF_ERROR(normalizer->Normalize(&piece));
      QUIRE_ASSIGN_OR_RETURN(piece_user, NormalizedUserRanges(before, piece_user, piece.text, normalizer));
    }
    for (Cut& cut : Split(piece, normalized_trie_, parses_special, piece_user)) out.push_back(std::move(cut.piece));
  }
  return out;
}

absl::StatusOr<std::vector<ByteRange>> AddedVocabulary::NormalizedUserRanges(std::string_view text,
                                                                             absl::Span<const ByteRange> user,
                                                                             const std::string& normalized,
                                                                             const Normalizer* normalizer) const {
  if (normalized_trie_.empty()) return std::vector<ByteRange>();
  return AlignUserRanges(text, user, normalized, [&](std::string_view part) -> absl::StatusOr<std::string> {
    TextPiece piece;
    piece.text = part;
    piece.max_bytes = MaxBytes(part);
    QUIRE_RETURN_IF_ERROR(normalizer->Normalize(&piece));
    return std::move(piece.text);
  });
}

bool AddedVocabulary::IsControl(TokenId id) const {
  const auto it = index_.find(id);
  return it != index_.end() && is_control_[it->second];
}

const AddedToken* AddedVocabulary::Find(TokenId id) const {
  const auto it = index_.find(id);
  return it == index_.end() ? nullptr : &tokens_[it->second];
}

std::vector<AddedVocabulary::Cut> AddedVocabulary::Split(const TextPiece& piece, const PrefixTrie& trie,
                                                         bool parses_special, absl::Span<const ByteRange> user) const {
  const std::string_view text = piece.text;
  std::vector<Cut> cuts;
  size_t covered = 0;
  const auto add_text = [&](size_t end) {
    if (covered < end) cuts.push_back({piece.Slice(covered, end), {covered, end}});
  };
  for (size_t pos = 0; !trie.empty() && pos < text.size();) {
    const auto [num_bytes, index] = FindMatch(text, pos, trie, user);
    if (num_bytes == 0) {
      pos += Utf8Length(text[pos]);
      continue;
    }
    // The search continues behind the match even when the match does not count.
    const AddedToken& token = tokens_[index];
    size_t begin = pos;
    size_t end = pos + num_bytes;
    pos = end;
    if (token.special && !parses_special) continue;
    if (token.single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    if (token.lstrip) begin = SkipSpacesLeft(text, covered, begin);
    if (token.rstrip) end = SkipSpacesRight(text, end);
    add_text(begin);
    Cut match;
    match.piece.token = token.id;
    match.range = {begin, end};
    cuts.push_back(std::move(match));
    covered = end;
  }
  add_text(text.size());
  return cuts;
}

AddedVocabulary::Match AddedVocabulary::FindMatch(std::string_view text, size_t pos, const PrefixTrie& trie,
                                                  absl::Span<const ByteRange> user) const {
  Match longest;
  trie.ForEachPrefix(text.substr(pos), [&](size_t num_bytes, TokenId index) {
    if (is_control_[index] && Overlaps(user, pos, pos + num_bytes)) return;
    longest = {num_bytes, static_cast<size_t>(index)};
  });
  return longest;
}

}  // namespace quire
