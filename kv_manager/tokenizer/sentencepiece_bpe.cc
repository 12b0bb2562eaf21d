// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/sentencepiece_bpe.h"

#include <queue>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/encode_stop.h"

namespace quire {

// A part of the text. The symbols that are left form a doubly linked list. A symbol that is empty has been merged away.
struct SentencePieceBpe::Symbol {
  std::string_view piece;
  int32_t previous;  // index, -1 at the start
  int32_t next;      // index, -1 at the end
  bool is_frozen;
};

// Two neighbours that may be merged. It has expired when their sizes no longer add up.
struct SentencePieceBpe::Candidate {
  float score;
  int32_t left;
  int32_t right;
  size_t size;

  // The order for a priority queue, which serves the largest element first.
  bool operator<(const Candidate& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

class SentencePieceBpe::Merger {
 public:
  Merger(const Lookup& lookup, std::vector<Symbol> symbols) : lookup_(lookup), symbols_(std::move(symbols)) {}

  void Run() {
    for (size_t i = 1; i < symbols_.size() && !EncodeStop::IsDue(); ++i) {
      Offer(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    }
    while (!queue_.empty() && !EncodeStop::IsDue()) {
      const Candidate top = queue_.top();
      queue_.pop();
      Symbol& left = symbols_[top.left];
      Symbol& right = symbols_[top.right];
      if (left.piece.empty() || right.piece.empty() || left.piece.size() + right.piece.size() != top.size) continue;
      left.piece = Joined(left, right);
      left.next = right.next;
      if (right.next >= 0) symbols_[right.next].previous = top.left;
      right.piece = {};
      Offer(left.previous, top.left);
      Offer(top.left, left.next);
    }
  }

  std::vector<std::string_view> Pieces() const {
    std::vector<std::string_view> pieces;
    for (int32_t i = symbols_.empty() ? -1 : 0; i != -1; i = symbols_[i].next) AppendParts(symbols_[i].piece, &pieces);
    return pieces;
  }

 private:
  static std::string_view Joined(const Symbol& left, const Symbol& right) {
    return {left.piece.data(), left.piece.size() + right.piece.size()};
  }

  void Offer(int32_t left, int32_t right) {
    if (left < 0 || right < 0 || symbols_[left].is_frozen || symbols_[right].is_frozen) return;
    const std::string_view joined = Joined(symbols_[left], symbols_[right]);
    const Merged merged = lookup_(joined);
    if (merged.id < 0) return;
    queue_.push({merged.score, left, right, joined.size()});
    if (merged.is_unused) unused_[{joined.data(), joined.size()}] = symbols_[left].piece.size();
  }

  // Splits unused pieces in the way in which they were merged last.
  void AppendParts(std::string_view piece, std::vector<std::string_view>* pieces) const {
    std::vector<std::string_view> stack = {piece};
    while (!stack.empty()) {
      const std::string_view top = stack.back();
      stack.pop_back();
      const auto it = unused_.find({top.data(), top.size()});
      if (it == unused_.end()) {
        pieces->push_back(top);
      } else {
        stack.push_back(top.substr(it->second));
        stack.push_back(top.substr(0, it->second));
      }
    }
  }

  const Lookup& lookup_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
  absl::flat_hash_map<absl::string_view, size_t> unused_;  // Maps an unused piece to the size of its left part.
};

std::vector<std::string_view> SentencePieceBpe::Segment(std::string_view text) const {
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t user_defined = user_defined_->FindLongest(text.substr(pos)).first;
    const size_t size = user_defined > 0 ? user_defined : Utf8Length(text[pos]);
    const auto index = static_cast<int32_t>(symbols.size());
    const bool is_last = pos + size == text.size();
    symbols.push_back({text.substr(pos, size), index - 1, is_last ? -1 : index + 1, user_defined > 0});
    pos += size;
  }
  Merger merger(lookup_, std::move(symbols));
  merger.Run();
  return merger.Pieces();
}

}  // namespace quire
