// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/unigram_lattice.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/utf8.h"
#include "kv_manager/tokenizer/encode_stop.h"

namespace quire {
namespace {

constexpr size_t kUnreached = static_cast<size_t>(-1);

// The best segmentation of the text up to a position, described by its last segment.
struct Best {
  size_t begin = kUnreached;
  TokenId id = -1;
  double score = 0;
};

// A sum in single precision keeps too few digits beyond this. Then the sums of all positions that are reached are made
// smaller by the same number, as in the reference.
constexpr double kMaxSingleScore = 100000;

// REQUIRES: the first position is reached.
void Rebase(std::span<Best> reached) {
  const auto offset = static_cast<float>(reached.front().score);
  reached.front().score = 0;
  for (Best& best : reached.subspan(1)) {
    if (best.begin != kUnreached) best.score = static_cast<float>(best.score) - offset;
  }
}

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
  size_t frontier = 0;  // The last position that is reached.
  const auto offer = [&](size_t begin, size_t end, TokenId id, double score) {
    const double sum =
        is_single ? static_cast<float>(score) + static_cast<float>(best[begin].score) : score + best[begin].score;
    Best& target = best[end];
    frontier = std::max(frontier, end);
    if (target.begin == kUnreached || sum > target.score) target = {begin, id, sum};
  };
  for (size_t begin = 0; begin < text.size();) {
    if (EncodeStop::IsDue()) return {};
    const size_t character = Utf8Length(text[begin]);
    if (is_single && std::abs(best[begin].score) > kMaxSingleScore) {
      Rebase(std::span(best).subspan(begin, frontier - begin + 1));
    }
    bool has_character = false;
    trie_.ForEachPrefix(text.substr(begin), [&](size_t num_bytes, TokenId id) {
      offer(begin, begin + num_bytes, id, scores_[id]);
      has_character = has_character || num_bytes == character;
    });
    if (!has_character) offer(begin, begin + character, unk_, unk_score_);
    begin += character;
  }
  std::vector<Segment> segments;
  for (size_t end = text.size(); end > 0; end = best[end].begin)
    segments.push_back({best[end].begin, end, best[end].id});
  std::reverse(segments.begin(), segments.end());
  return segments;
}

}  // namespace quire
