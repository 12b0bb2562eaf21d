// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/bpe.h"

#include <queue>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/encode_stop.h"

namespace quire {
namespace {

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

absl::Status NotInVocabulary(size_t rank, std::string_view piece) {
  return absl::InvalidArgumentError(
      absl::StrCat("merge ", rank, ": \"", std::string(piece), "\" is not in the vocabulary"));
}

}  // namespace

// A part of the word. The symbols that are left form a doubly linked list.
struct Bpe::Symbol {
  TokenId id;
  int32_t previous;  // index, -1 at the start
  int32_t next;      // index, -1 at the end
  bool is_merged_away;
};

// Two neighbours that may be merged. It has expired when the two are no longer neighbours.
struct Bpe::Candidate {
  uint32_t rank;
  int32_t left;
  TokenId merged;

  // The order for a priority queue, which serves the largest element first.
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

absl::StatusOr<std::unique_ptr<Bpe>> Bpe::Create(Vocabulary vocabulary, const std::vector<Merge>& merges,
                                                 Options options) {
  std::unique_ptr<Bpe> bpe(new Bpe(std::move(vocabulary), std::move(options)));
  const Options& opts = bpe->options_;
  if (!opts.unk_token.empty()) {
    bpe->unk_ = bpe->vocabulary_.Find(opts.unk_token);
  }
  for (int byte = 0; byte < 256; ++byte) {
    bpe->byte_tokens_.push_back(bpe->vocabulary_.Find(absl::StrFormat("<0x%02X>", byte)));
  }
  bpe->merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const TokenId left_id = bpe->vocabulary_.Find(left);
    const TokenId right_id = bpe->vocabulary_.Find(right);
    if (left_id == kNoToken) return NotInVocabulary(rank, left);
    if (right_id == kNoToken) return NotInVocabulary(rank, right);
    if (right.size() < opts.continuing_subword_prefix.size()) {
      return absl::InvalidArgumentError(absl::StrCat("merge ", rank, ": \"", right, "\" is shorter than the prefix \"",
                                                     opts.continuing_subword_prefix, "\""));
    }
    const std::string merged = absl::StrCat(left, right.substr(opts.continuing_subword_prefix.size()));
    const TokenId merged_id = bpe->vocabulary_.Find(merged);
    if (merged_id == kNoToken) return NotInVocabulary(rank, merged);
    bpe->merges_[PairKey(left_id, right_id)] = {static_cast<uint32_t>(rank), merged_id};
  }
  return bpe;
}

absl::Status Bpe::Encode(std::string_view word, std::vector<TokenId>* tokens) const {
  if (word.empty()) return absl::OkStatus();
  if (options_.ignore_merges) {
    const TokenId id = vocabulary_.Find(word);
    if (id != kNoToken) {
      tokens->push_back(id);
      return absl::OkStatus();
    }
  }
  std::vector<Symbol> symbols;
  QUIRE_RETURN_IF_ERROR(SplitIntoSymbols(word, &symbols));
  MergeSymbols(&symbols);
  for (const Symbol& symbol : symbols) {
    if (!symbol.is_merged_away) tokens->push_back(symbol.id);
  }
  return absl::OkStatus();
}

absl::Status Bpe::SplitIntoSymbols(std::string_view word, std::vector<Symbol>* symbols) const {
  const auto add = [symbols](TokenId id) { symbols->push_back({id, 0, 0, false}); };
  // An unknown token waits until the next known character; bytes overtake it, as they do in the reference.
  bool has_pending_unk = false;
  std::string decorated;
  for (size_t pos = 0; pos < word.size();) {
    const size_t end = pos + Utf8Length(word[pos]);
    const std::string_view character = word.substr(pos, end - pos);
    std::string_view piece = character;
    const bool has_prefix = pos != 0 && !options_.continuing_subword_prefix.empty();
    const bool has_suffix = end == word.size() && !options_.end_of_word_suffix.empty();
    if (has_prefix || has_suffix) {
      decorated.assign(has_prefix ? options_.continuing_subword_prefix : "");
      decorated.append(character);
      if (has_suffix) decorated.append(options_.end_of_word_suffix);
      piece = decorated;
    }
    pos = end;
    const TokenId id = vocabulary_.Find(piece);
    if (id != kNoToken) {
      if (has_pending_unk) add(unk_);
      has_pending_unk = false;
      add(id);
      continue;
    }
    if (options_.byte_fallback && AppendBytes(piece, symbols)) continue;
    if (options_.unk_token.empty()) continue;
    if (unk_ == kNoToken) {
      return absl::InvalidArgumentError(absl::StrCat("character \"", std::string(piece),
                                                     "\" has no token and neither has unk_token \"", options_.unk_token,
                                                     "\""));
    }
    if (has_pending_unk && !options_.fuse_unk) add(unk_);
    has_pending_unk = true;
  }
  if (has_pending_unk) add(unk_);
  for (size_t i = 0; i < symbols->size(); ++i) {
    (*symbols)[i].previous = static_cast<int32_t>(i) - 1;
    (*symbols)[i].next = i + 1 < symbols->size() ? static_cast<int32_t>(i) + 1 : -1;
  }
  return absl::OkStatus();
}

bool Bpe::AppendBytes(std::string_view character, std::vector<Symbol>* symbols) const {
  for (const char c : character) {
    if (byte_tokens_[static_cast<unsigned char>(c)] == kNoToken) return false;
  }
  for (const char c : character) symbols->push_back({byte_tokens_[static_cast<unsigned char>(c)], 0, 0, false});
  return true;
}

void Bpe::MergeSymbols(std::vector<Symbol>* symbols) const {
  std::vector<Symbol>& list = *symbols;
  std::vector<Candidate> initial;
  for (size_t i = 0; i + 1 < list.size() && !EncodeStop::IsDue(); ++i) {
    const Ranked* merge = FindMerge(list[i].id, list[i + 1].id);
    if (merge != nullptr) initial.push_back({merge->rank, static_cast<int32_t>(i), merge->merged});
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(initial));
  const auto push = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Ranked* merge = FindMerge(list[left].id, list[right].id);
    if (merge != nullptr) queue.push({merge->rank, left, merge->merged});
  };
  while (!queue.empty() && !EncodeStop::IsDue()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = list[top.left];
    if (left.is_merged_away || left.next < 0) continue;
    Symbol& right = list[left.next];
    const Ranked* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->merged != top.merged) continue;
    left.id = top.merged;
    left.next = right.next;
    right.is_merged_away = true;
    if (right.next >= 0) list[right.next].previous = top.left;
    push(left.previous, top.left);
    push(top.left, left.next);
  }
}

const Bpe::Ranked* Bpe::FindMerge(TokenId left, TokenId right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

}  // namespace quire
