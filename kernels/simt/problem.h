// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_PROBLEM_H_
#define QUIRE_KERNELS_SIMT_PROBLEM_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
#include <version>

#ifdef __cpp_lib_source_location
#include <source_location>
#endif

namespace quire::simt {

// A line of a kernel.
#ifdef __cpp_lib_source_location
using Place = std::source_location;
#else
// Clang 14 has no std::source_location, but the functions that it is made of.
class Place {
 public:
  static constexpr Place current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                                 unsigned column = __builtin_COLUMN()) {
    Place place;
    place.file_ = file;
    place.line_ = line;
    place.column_ = column;
    return place;
  }

  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }
  constexpr unsigned column() const { return column_; }

 private:
  const char* file_ = "";
  unsigned line_ = 0;
  unsigned column_ = 0;
};
#endif

// "gemm.h:17"
std::string ToString(const Place& place);

// The operations of the layer, for reports and for comparing the operations of lanes.
enum class Operation : uint8_t {
  kSyncBlock,
  kSyncWarp,
  kShuffle,
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kBallot,
  kLoadMatrix4,
  kLoadMatrix4Transposed,
  kMmaBf16,
  kMmaF16,
  kMmaS8,
  kLoadShared,
  kStoreShared,
  kLoadGlobal,
  kLoadReadOnly,
  kStoreGlobal,
  kAtomic,
  kCopyAsync16,
  kSyncWarpGroup,
  kInitBarrier,
  kArriveAtBarrier,
  kWaitForBarrier,
  kCopyBulk,
  kBeginProducts,
  kMultiply,
  kMultiplyRows,
  kCommitProducts,
  kWaitForProducts,
};

const char* Name(Operation operation);

enum class ProblemKind : uint8_t {
  kDivergence,  // Lanes of a warp are in different collectives, or have exited. Ends the launch, unless at a SyncBlock.
  kDeadlock,    // No thread can continue. Ends the launch.
  kRunaway,     // A block executes more operations than allowed. Ends the launch.
  kSharedRace,  // Two accesses to shared memory, at least one of them a write, have no barrier between them.
  kSharedOutOfBounds,  // Loads return poison (bytes of 0xff), stores are dropped; the next three do the same.
  kGlobalOutOfBounds,  // An access is not inside one buffer of the launch.
  kReadOnlyViolation,  // A store to a buffer that the launch only reads, or LoadReadOnly of a buffer that it writes.
  kMisaligned,         // An address that is not a multiple of the size of the access.
  kUninitializedRead,  // A load of shared memory that this block never wrote.
  kUnwaitedCopies,     // A thread exits, or a block ends, before asynchronous copies or products are done.
  kBeforePriorGrid,    // An access to data of the prior grid before WaitForPriorGrid().
  kGlobalRace,         // Like kSharedRace in global memory, within a block or between blocks.
  kMissingFence,       // An asynchronous access, or a product, without the fence that must come before it.
  kBarrierMisuse,      // A barrier in shared memory that was not initialised, or has more arrivals than its count.
};

const char* Name(ProblemKind kind);

struct Problem {
  ProblemKind kind;
  std::string text;  // Description of the first occurrence: what, where and which threads.
  Place place;       // The place of the operation that revealed it.
  int block = 0;     // Block of the operation; `thread` is -1 if no single thread made it.
  int thread = 0;
  int64_t count = 1;  // Number of occurrences at this place, and at the same other place if two accesses collide.
};

// The problems of a launch, one entry per kind and place, the first `kMaxProblems` of them.
class ProblemLog {
 public:
  static constexpr size_t kMaxProblems = 64;

  // The place and thread of a problem. `other` is the place of an earlier access that takes part in it.
  struct Origin {
    Place place;
    int block;
    int thread;
    Place other = {};
  };

  // Counts the problem. Describes it with `describe() -> std::string` if it is the first of its kind and place.
  template <typename Describe>
  void Report(ProblemKind kind, const Origin& origin, Describe describe) {
    if (Problem* first = Add(kind, origin)) first->text = describe();
  }

  const std::vector<Problem>& problems() const { return problems_; }

 private:
  using Line = std::pair<std::string, unsigned>;
  using Key = std::tuple<ProblemKind, Line, Line>;  // Equal for two colliding accesses in either order.

  // Returns the new entry, or null if the problem is known or there are too many.
  Problem* Add(ProblemKind kind, const Origin& origin);

  std::map<Key, size_t> index_;  // Index into problems_.
  std::vector<Problem> problems_;
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_PROBLEM_H_
