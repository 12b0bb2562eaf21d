// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_IDS_H_
#define QUIRE_BASE_IDS_H_

#include <cstdint>
#include <ostream>
#include <type_traits>

namespace quire {

// An index into the model's vocabulary. Valid ids are 0 .. vocab_size - 1.
using TokenId = int32_t;

// A physical block of one worker's pool, or of its host tier: 0 .. num_blocks - 1. Only the manager allocates blocks.
enum class BlockId : uint32_t {};

// One stream of tokens with its own block table. A request has one per sample or beam. Ids are never reused.
enum class SequenceId : uint64_t {};

// One request: a call of Generate, or one of the requests of a GenerateBatch stream. A manager process never reuses an
// id.
enum class RequestId : uint64_t {};

// The number of a step plan within one worker session: 1, 2, 3, ...
enum class StepId : uint64_t {};

// The number of the place where a worker keeps the state of a running sequence: its tokens so far, its block table and
// its sampling parameters. Valid rows are 0 .. max_sequences - 1. The scheduler assigns a row when a sequence starts
// running and reuses it once the sequence has left.
enum class RowId : uint32_t {};

// The number behind an id, for indexing and printing.
template <typename Id>
requires std::is_enum_v<Id>
constexpr std::underlying_type_t<Id> Value(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

inline std::ostream& operator<<(std::ostream& out, BlockId id) {
  return out << "block " << Value(id);
}
inline std::ostream& operator<<(std::ostream& out, SequenceId id) {
  return out << "sequence " << Value(id);
}
inline std::ostream& operator<<(std::ostream& out, RequestId id) {
  return out << "request " << Value(id);
}
inline std::ostream& operator<<(std::ostream& out, StepId id) {
  return out << "step " << Value(id);
}
inline std::ostream& operator<<(std::ostream& out, RowId id) {
  return out << "row " << Value(id);
}

}  // namespace quire

#endif  // QUIRE_BASE_IDS_H_
