// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/unigram_lattice.h"

#include <algorithm>

#include "base/utf8.h"

namespace quire {
namespace {

constexpr size_t kUnreached = static_cast<size_t>(-1);

// The best segmentation of the text up to a position, described by its last segment.
struct Best {
  size_t begin = kUnreached;
  TokenId id = -1;
  double score = 0;
};

}  // namespace

UnigramLattice::UnigramLattice(const std::vector<Piece>& pieces, TokenId unk, double unk_score, Arithmetic arithmetic)
    : unk_(unk), unk_score_(unk_score), arithmetic_(arithmetic) {
  std::vector<std::pair<std::string_view, TokenId>> strings;
  strings.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    strings.emplace_back(piece.piece, piece.id);
    if (scores_.size() <= static_cast<size_t>(piece.id)) scores_.resize(static_cast<size_t>(piece.id) + 1);
    scores_[piece.id] = piece.score;
  }
  trie_ = PrefixTrie(std::move(strings));
}

std::vector<UnigramLattice::Segment> UnigramLattice::FindBest(std::string_view text) const {
  std::vector<Best> best(text.size() + 1);
  const bool is_single = arithmetic_ == Arithmetic::kSingle;
  const auto offer = [&](size_t begin, size_t end, TokenId id, double score) {
    Best& target = best[end];
    if (target.begin != kUnreached && !(score > target.score)) return;
    // In single precision the candidate is compared before it is rounded, as in the reference.
    target = {begin, id, is_single ? static_cast<float>(score) : score};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = Utf8Length(text[begin]);
    const double so_far = best[begin].score;
    bool has_character = false;
    trie_.ForEachPrefix(text.substr(begin), [&](size_t num_bytes, TokenId id) {
      offer(begin, begin + num_bytes, id, scores_[id] + so_far);
      has_character = has_character || num_bytes == character;
    });
    if (!has_character) {
      const double score = unk_score_ + so_far;
      offer(begin, begin + character, unk_, is_single ? static_cast<float>(score) : score);
    }
    begin += character;
  }
  std::vector<Segment> segments;
  for (size_t end = text.size(); end > 0; end = best[end].begin)
    segments.push_back({best[end].begin, end, best[end].id});
  std::reverse(segments.begin(), segments.end());
  return segments;
}

}  // namespace quire
