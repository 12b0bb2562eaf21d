#ifndef QUIRE_KERNELS_SIMT_PROBLEM_H_
#define QUIRE_KERNELS_SIMT_PROBLEM_H_

#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace quire::simt {

// A line of a kernel.
using Place = std::source_location;

// "gemm.h:17"
std::string ToString(const Place& place);

// What a thread of a kernel can ask of the layer, for reports and for comparing what lanes do.
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
  kLoadShared,
  kStoreShared,
  kLoadGlobal,
  kLoadReadOnly,
  kStoreGlobal,
  kAtomic,
  kCopyAsync16,
};

const char* Name(Operation operation);

enum class ProblemKind : uint8_t {
  kDivergence,         // Lanes of a warp in different collectives, or gone. Ends the launch, but for a block barrier.
  kDeadlock,           // Nobody can go on. Ends the launch.
  kRunaway,            // A block that asks for more operations than it may. Ends the launch.
  kSharedRace,         // Two accesses of shared memory, one of them a write, with no barrier between.
  kSharedOutOfBounds,  // Loads return poison (bytes of 0xff), stores are dropped; also in the next three.
  kGlobalOutOfBounds,  // Not inside one buffer of the launch.
  kReadOnlyWrite,      // A store to a buffer that the launch only reads, or LoadReadOnly of one that it writes.
  kMisaligned,         // An address that is not a multiple of the size of the access.
  kUninitializedRead,  // A load of shared memory that this block never wrote.
  kUnwaitedCopies,     // A thread exits before its asynchronous copies have landed.
  kBeforePriorGrid,    // An access of what the prior grid wrote, before WaitForPriorGrid().
  kGlobalRace,         // As kSharedRace, in global memory, within a block or between blocks.
};

const char* Name(ProblemKind kind);

struct Problem {
  ProblemKind kind;
  std::string text;  // What, where, who; of the first time.
  Place place;       // Of the operation that revealed it.
  int block = 0;     // Who; thread is -1 where it is not one of them.
  int thread = 0;
  int64_t count = 1;  // How often at this place, and the other place if two accesses collide.
};

// The problems of a launch, one entry per kind and place, the first `kMaxProblems` of them.
class ProblemLog {
 public:
  static constexpr size_t kMaxProblems = 64;

  // Where and by whom. `other` is the place of an earlier access that is part of it.
  struct Origin {
    Place place;
    int block;
    int thread;
    Place other = {};
  };

  // Counts the problem, and describes it with `describe() -> std::string` if it is the first of its kind and place.
  template <typename Describe>
  void Report(ProblemKind kind, const Origin& origin, Describe describe) {
    if (Problem* first = Add(kind, origin)) first->text = describe();
  }

  const std::vector<Problem>& problems() const { return problems_; }

 private:
  using Line = std::pair<std::string, unsigned>;
  using Key = std::tuple<ProblemKind, Line, Line>;  // Of two accesses that collide the same, whichever came first.

  // The new entry, or null if the problem is known or there are too many.
  Problem* Add(ProblemKind kind, const Origin& origin);

  std::map<Key, size_t> index_;  // Into problems_.
  std::vector<Problem> problems_;
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_PROBLEM_H_
