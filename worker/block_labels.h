// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_BLOCK_LABELS_H_
#define QUIRE_WORKER_BLOCK_LABELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "worker/worker_limits.h"

namespace quire {

// What the blocks of the pool and of the host tier contain. A label has the tokens of one block, and
// names what comes before the block: the content of another block, or a root of the prefix cache. So a
// chain of labels spells the prefix that the K and V of the last block were computed from. A block whose
// content is not known in this way has no label.
//
// A place is a block of the pool, or num_blocks + a block of the host tier. Full blocks with the same prefix and the
// same tokens have the same content number, so it does not matter which of them is in the table before a block. When
// the last label with a content number goes, the number is never used again, and labels that name it lead nowhere.
//
// With 16 tokens per block a label takes 96 bytes. Owned by the executor thread.
class BlockLabels {
 public:
  struct Label {
    uint64_t parent = 0;   // The content number of the block before this one, or the number of the root. 0: no label.
    uint64_t content = 0;  // The content number. 0: the block is not full.
    uint32_t root = 0;     // The index of the root.
    int num_tokens = 0;    // At least 1 if there is a label.
  };

  explicit BlockLabels(const WorkerLimits& limits);

  // Removes all labels.
  void Clear();
  // The content of `source` was copied to `destination`.
  void Copy(uint32_t source, uint32_t destination);
  // A slice has stored K and V of `tokens`, which begin at `first_position`. `table` is the block table of the row up
  // to the end of the slice, and `root` the name of its root. Sets the labels of the blocks that were written. The
  // label of a block goes if the tokens before the slice in this block, or the blocks before it, are not known to be
  // those that the slice has read. REQUIRES: the table has blocks for all these tokens, and there is at least one.
  void Write(absl::string_view root, absl::Span<const uint32_t> table, int first_position,
             absl::Span<const TokenId> tokens);
  // The same for a row without a root. The blocks [first_position / block_size, table.size()) lose their labels.
  void WriteUnlabelled(absl::Span<const uint32_t> table, int first_position);

  int num_labels() const { return num_labels_; }
  int num_places() const { return static_cast<int>(labels_.size()); }
  const Label& label(uint32_t place) const { return labels_[place]; }
  // The tokens of the label. Valid until the next non-const call.
  absl::Span<const TokenId> TokensOf(uint32_t place) const {
    return {tokens_.data() + size_t{place} * block_size_, static_cast<size_t>(labels_[place].num_tokens)};
  }
  // The name of the root with this index. REQUIRES: a label has this root.
  const std::string& RootName(uint32_t root) const { return roots_[root].name; }
  // The number that the first labels below this root name as their parent.
  uint64_t RootNumber(uint32_t root) const { return roots_[root].number; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Root {
    std::string name;
    uint64_t number = 0;
    int num_labels = 0;  // With 0, the entry is free.
  };

  bool HasLabel(uint32_t place) const { return labels_[place].parent != 0; }
  uint32_t FindOrAddRoot(absl::string_view name);
  // Returns whether the labels of these blocks form one chain of full blocks from the root down.
  bool IsChain(absl::Span<const uint32_t> table, uint32_t root) const;
  // The content number before entry `index` of the table, or 0 when it is not known.
  uint64_t ParentOf(absl::Span<const uint32_t> table, int index, uint32_t root) const;
  void WriteBlock(uint32_t place, uint64_t parent, uint32_t root, int first_slot, absl::Span<const TokenId> tokens);
  void Remove(uint32_t place);
  // Gives a full label its content number, and removes that number again.
  void AddContent(uint32_t place);
  void RemoveContent(uint32_t place);
  uint64_t HashOf(uint32_t place) const;

  const int block_size_;
  std::vector<Label> labels_;    // [places]
  std::vector<TokenId> tokens_;  // [places, block_size]
  // The full labels by the hash of parent and tokens. Those with the same hash form a list through next_.
  absl::flat_hash_map<uint64_t, uint32_t> full_;
  std::vector<uint32_t> next_;  // [places]
  std::vector<Root> roots_;
  std::vector<uint32_t> free_roots_;
  absl::flat_hash_map<std::string, uint32_t> root_index_;
  uint64_t last_number_ = 0;  // A content or a root got it.
  int num_labels_ = 0;
};

}  // namespace quire

#endif  // QUIRE_WORKER_BLOCK_LABELS_H_
