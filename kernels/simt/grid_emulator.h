// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_GRID_EMULATOR_H_
#define QUIRE_KERNELS_SIMT_GRID_EMULATOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/simt/access_history.h"
#include "kernels/simt/async_copies.h"
#include "kernels/simt/bank_conflicts.h"
#include "kernels/simt/fiber.h"
#include "kernels/simt/global_memory_checker.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/problem.h"
#include "kernels/simt/shared_barriers.h"
#include "kernels/simt/shared_memory_checker.h"
#include "kernels/simt/types.h"
#include "kernels/simt/warp_group_operations.h"

namespace quire::simt {

// One launch. It runs the blocks one after another, and the threads of a block as fibers in random turns. A thread runs
// until it reaches a barrier or a collective. The last thread to arrive executes it and makes all waiting threads ready
// again. The functions of simt.h and simt_sm90.h are implemented here, for the running thread. Owned by Launch().
class GridEmulator {
 public:
  GridEmulator(const LaunchConfig& config, const std::function<void()>& body);
  GridEmulator(const GridEmulator&) = delete;
  GridEmulator& operator=(const GridEmulator&) = delete;

  LaunchReport Run();

  // Returns the launch that runs on this OS thread. REQUIRES: called from a kernel.
  static GridEmulator& Current() { return *current_; }

  const LaunchConfig& config() const { return config_; }
  int block() const { return block_; }
  int thread() const { return thread_; }
  char* shared_memory() { return shared_.data(); }

  void SyncBlock(Place place);
  // Waits until all lanes of the warp have arrived with the same operation. The operation reads every lane's `in` and
  // writes every lane's `out`; it determines their types (RunCollective).
  void Collective(Operation operation, const void* in, void* out, Place place);

  void LoadShared(const void* p, void* value, size_t bytes, Place place);
  void StoreShared(void* p, const void* value, size_t bytes, Place place);
  void LoadGlobal(const void* p, void* value, size_t bytes, Operation operation, Place place);
  void StoreGlobal(void* p, const void* value, size_t bytes, Place place);
  // Whether an atomic on `p`, in shared or global memory, is allowed.
  bool CheckAtomic(void* p, size_t bytes, Place place);

  void CopyAsync16(void* shared, const void* global, bool predicate, Place place);
  void CommitCopies() { copies_[thread_].Commit(); }
  void WaitCopies(int groups_in_flight, Place place);

  // The functions of simt_sm90.h (grid_emulator_sm90.cc). An operation of a warp group waits until all its threads have
  // arrived with it. `in` is the ProductInput of a product, or the number of groups that a wait leaves in flight.
  void GroupOperation(Operation operation, const void* in, Place place);
  void InitBarrier(uint64_t* barrier, uint32_t count, Place place);
  void ArriveAtBarrier(uint64_t* barrier, uint32_t bytes, Place place);
  void WaitForBarrier(uint64_t* barrier, uint32_t parity, Place place);
  void CopyBulk(void* shared, const void* global, size_t bytes, uint64_t* barrier, Place place);
  void FenceAsyncProxy(Place place);

  void MemoryFence() { global_.OnFence(); }
  void WaitForPriorGrid() { global_.OnPriorGridDone(); }

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kInCollective, kAtSharedBarrier, kExited };

  struct Thread {
    State state = State::kReady;
    Operation operation = Operation::kSyncBlock;  // The operation in which it waits.
    Place place;                                  // The place at which it waits.
  };

  // The arguments of the lanes of a warp that have arrived at a collective so far.
  struct Meeting {
    int num_arrived = 0;
    std::array<const void*, kWarpSize> in;
    std::array<void*, kWarpSize> out;
  };

  // The accumulators of a product that is not done. They get their values when the group waits for it.
  struct Accumulators {
    PerGroupThread<float*> d;
    std::vector<float> values;  // [128][number per thread]
  };
  // Products that are committed together.
  struct ProductGroup {
    std::vector<Accumulators> accumulators;
    std::vector<size_t> reads;  // Offsets of the chunks that the products read.
  };
  struct WarpGroup {
    int num_arrived = 0;
    PerGroupThread<const void*> in;
    bool has_begun = false;              // Since the last wait.
    ProductGroup open;                   // Products that are not committed yet.
    std::deque<ProductGroup> in_flight;  // Committed products, the oldest first, that nobody has waited for.
  };

  static void ThreadMain(void* self);

  // Returns false if the block could not finish.
  bool RunBlock(int block);
  void BeginBlock(int block);
  int TakeReadyThread();
  void OnThreadExit();

  void WakeUp(int thread);
  void CompleteBarrier();
  void CheckBarrierIsUniform(int warp);
  void CompleteMeeting(int warp);
  bool LanesAgree(int warp);
  void RunCollective(int warp, Operation operation);
  void RunLoadMatrix(int warp, Operation operation);

  int num_groups() const { return num_warps() / kWarpsPerGroup; }
  void CompleteGroupOperation(int group);
  bool GroupAgrees(int group);
  void Multiply(int group, Operation operation, Place place);
  void WaitForProducts(int group, Place place);
  // Returns the open accumulators of the product. If an earlier product with them is in flight, they are taken from its
  // group, because they are valid only when the last product is done.
  Accumulators* FindAccumulators(WarpGroup* group, const PerGroupThread<const ProductInput*>& in);
  void WriteAccumulators(Accumulators* accumulators);
  // Returns null, and reports it, if there is no barrier.
  SharedBarrier* FindBarrier(uint64_t* barrier, Operation operation, Place place);
  void EndPhaseIfComplete(SharedBarrier* barrier);
  // Lands one copy, chosen at random.
  void LandOne(SharedBarrier* barrier);
  void LandSomeCopy();
  // Lands a copy for which threads wait. Returns whether there was one.
  bool LandForWaiting();
  void ReportWorkInFlight();

  // Counts an operation of the running thread and ends the launch if there are too many.
  void CountOperation(Place place);
  // Ends the launch from inside a thread.
  void Abandon();
  void ReportStuck();
  std::string DescribeWarp(int warp) const;

  int num_warps() const { return config_.num_threads / kWarpSize; }
  Accessor Self(Place place) const { return {thread_, false, place}; }
  uint64_t Random(uint64_t below) { return random_() % below; }

  static inline constinit thread_local GridEmulator* current_ = nullptr;

  const LaunchConfig& config_;
  const std::function<void()>& body_;
  std::mt19937_64 random_;
  ProblemLog log_;
  LaunchCounters counters_;
  BarrierClock clock_;
  SharedMemoryChecker shared_;
  GlobalMemoryChecker global_;
  BankConflicts bank_conflicts_;

  // State of the running block.
  int block_ = 0;
  int thread_ = 0;  // Index of the running thread.
  int num_live_ = 0;
  int num_at_barrier_ = 0;
  int64_t num_operations_ = 0;
  bool is_abandoned_ = false;
  std::vector<int> ready_;
  std::vector<Thread> threads_;
  std::vector<Meeting> meetings_;    // One per warp.
  std::vector<WarpGroup> groups_;    // One per warp group.
  std::vector<AsyncCopies> copies_;  // One per thread.
  SharedBarriers barriers_;
  FiberSet fibers_;
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_GRID_EMULATOR_H_
