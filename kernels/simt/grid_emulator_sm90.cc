// SPDX-License-Identifier: Apache-2.0

// The operations of simt_sm90.h.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "kernels/simt/grid_emulator.h"

namespace quire::simt {

// --- Barriers in shared memory

SharedBarrier* GridEmulator::FindBarrier(uint64_t* barrier, Operation operation, Place place) {
  if (!shared_.CheckAtomic(barrier, sizeof(uint64_t), Self(place))) return nullptr;
  const auto found = barriers_.find(shared_.OffsetOf(barrier));
  if (found != barriers_.end()) return &found->second;
  log_.Report(ProblemKind::kBarrierMisuse, {place, block_, thread_}, [&] {
    return std::string(Name(operation)) + " at offset " + std::to_string(shared_.OffsetOf(barrier)) +
           ", where no barrier was initialised";
  });
  return nullptr;
}

void GridEmulator::InitBarrier(uint64_t* barrier, uint32_t count, Place place) {
  CountOperation(place);
  if (!shared_.CheckWrite(barrier, sizeof(uint64_t), Operation::kInitBarrier, Self(place))) return;
  SharedBarrier& made = barriers_[shared_.OffsetOf(barrier)] = SharedBarrier();
  made.count = count;
  made.pending = count;
}

void GridEmulator::ArriveAtBarrier(uint64_t* barrier, uint32_t bytes, Place place) {
  CountOperation(place);
  SharedBarrier* const found = FindBarrier(barrier, Operation::kArriveAtBarrier, place);
  if (found == nullptr) return;
  clock_.Publish(thread_ / kWarpSize, &found->published);
  found->bytes += bytes;
  if (found->pending == 0) {
    log_.Report(ProblemKind::kBarrierMisuse, {place, block_, thread_}, [&] {
      return "more than " + std::to_string(found->count) + " arrivals in a phase of the barrier at offset " +
             std::to_string(shared_.OffsetOf(barrier));
    });
    return;
  }
  --found->pending;
  EndPhaseIfComplete(found);
}

void GridEmulator::EndPhaseIfComplete(SharedBarrier* barrier) {
  if (!barrier->EndPhaseIfComplete()) return;
  for (const int thread : barrier->waiting) WakeUp(thread);
  barrier->waiting.clear();
}

// With CopyLanding::kLate, copies land only when no thread can continue without them (LandForWaiting).
void GridEmulator::WaitForBarrier(uint64_t* barrier, uint32_t parity, Place place) {
  CountOperation(place);
  SharedBarrier* const found = FindBarrier(barrier, Operation::kWaitForBarrier, place);
  if (found == nullptr) return;
  while (!found->HasEnded(parity)) {
    threads_[thread_] = {State::kAtSharedBarrier, Operation::kWaitForBarrier, place};
    found->waiting.push_back(thread_);
    fibers_.Suspend();
  }
  clock_.Acquire(thread_ / kWarpSize, found->of_ended);
}

// --- Bulk copies

void GridEmulator::CopyBulk(void* shared, const void* global, size_t bytes, uint64_t* barrier, Place place) {
  constexpr size_t kUnit = 16;
  CountOperation(place);
  ++counters_.bulk_copies;
  counters_.global_bytes_read += bytes;
  counters_.shared_bytes_written += bytes;
  const Accessor by = Self(place);
  SharedBarrier* const found = FindBarrier(barrier, Operation::kCopyBulk, place);
  if (found == nullptr) return;
  if (bytes == 0 || bytes % kUnit != 0) {
    log_.Report(ProblemKind::kMisaligned, {place, block_, thread_},
                [&] { return "CopyBulk of " + std::to_string(bytes) + " bytes"; });
    return;
  }
  for (size_t at = 0; at < bytes; at += kUnit) {
    if (!global_.CheckRead(static_cast<const char*>(global) + at, kUnit, Operation::kCopyBulk, by)) return;
  }
  if (!shared_.BeginBulkCopy(shared, bytes, by)) return;
  found->in_flight.push_back({static_cast<char*>(shared), static_cast<const char*>(global), bytes, place});
  if (config_.landing == CopyLanding::kImmediate) LandOne(found);
}

void GridEmulator::LandOne(SharedBarrier* barrier) {
  std::swap(barrier->in_flight[Random(barrier->in_flight.size())], barrier->in_flight.back());
  const BulkCopy copy = barrier->in_flight.back();
  barrier->in_flight.pop_back();
  std::memcpy(copy.to, copy.from, copy.bytes);
  shared_.EndBulkCopy(copy.to, copy.bytes, copy.place);
  clock_.OnLanding(&barrier->published);
  barrier->bytes -= static_cast<int64_t>(copy.bytes);
  EndPhaseIfComplete(barrier);
}

void GridEmulator::LandSomeCopy() {
  for (auto& [offset, barrier] : barriers_) {
    if (barrier.in_flight.empty() || Random(2) == 0) continue;
    LandOne(&barrier);
    return;
  }
}

bool GridEmulator::LandForWaiting() {
  for (auto& [offset, barrier] : barriers_) {
    if (barrier.in_flight.empty() || barrier.waiting.empty()) continue;
    LandOne(&barrier);
    return true;
  }
  return false;
}

void GridEmulator::FenceAsyncProxy(Place place) {
  CountOperation(place);
  clock_.OnFence();
  shared_.OnAsyncFence(thread_);
}

// --- Warp groups

void GridEmulator::GroupOperation(Operation operation, const void* in, Place place) {
  CountOperation(place);
  const size_t index = thread_ / kWarpGroupThreads;
  if (index >= groups_.size()) {
    log_.Report(ProblemKind::kDivergence, {place, block_, thread_},
                [] { return std::string("the warp group has fewer than 128 threads"); });
    Abandon();
  }
  WarpGroup& group = groups_[index];
  group.in[thread_ % kWarpGroupThreads] = in;
  threads_[thread_] = {State::kInCollective, operation, place};
  if (++group.num_arrived == kWarpGroupThreads) CompleteGroupOperation(static_cast<int>(index));
  fibers_.Suspend();
}

bool GridEmulator::GroupAgrees(int group) {
  const Thread& first = threads_[group * kWarpGroupThreads];
  for (int i = 1; i < kWarpGroupThreads; ++i) {
    const Thread& other = threads_[group * kWarpGroupThreads + i];
    if (other.operation == first.operation && other.place.line() == first.place.line()) continue;
    log_.Report(ProblemKind::kDivergence, {first.place, block_, thread_}, [&] {
      return DescribeWarp(group * kWarpsPerGroup) + "; " + DescribeWarp((group * kWarpGroupThreads + i) / kWarpSize);
    });
    return false;
  }
  return true;
}

void GridEmulator::CompleteGroupOperation(int index) {
  if (!GroupAgrees(index)) {
    is_abandoned_ = true;
    return;
  }
  WarpGroup& group = groups_[index];
  const Thread& first = threads_[index * kWarpGroupThreads];
  for (int i = 0; i < kWarpsPerGroup; ++i) bank_conflicts_.OnMeeting(index * kWarpsPerGroup + i);
  group.num_arrived = 0;
  switch (first.operation) {
    case Operation::kSyncWarpGroup:
      clock_.OnBarrier(index * kWarpsPerGroup, kWarpsPerGroup);
      break;
    case Operation::kBeginProducts:
      group.has_begun = true;
      break;
    case Operation::kMultiply:
    case Operation::kMultiplyRows:
      Multiply(index, first.operation, first.place);
      break;
    case Operation::kCommitProducts:
      group.in_flight.push_back(std::exchange(group.open, {}));
      break;
    case Operation::kWaitForProducts:
      WaitForProducts(index, first.place);
      break;
    default:
      std::abort();  // This is not an operation of a warp group.
  }
  for (int i = 0; i < kWarpGroupThreads; ++i) WakeUp(index * kWarpGroupThreads + i);
}

// The product is computed at once. Its accumulators get their values when the warp group waits for it, or at once if
// copies land at once, and are NaN until then. Its reads last until the warp group waits.
void GridEmulator::Multiply(int index, Operation operation, Place place) {
  WarpGroup& group = groups_[index];
  counters_.group_products += 1;
  const int first_thread = index * kWarpGroupThreads;
  PerGroupThread<const ProductInput*> in;
  for (int i = 0; i < kWarpGroupThreads; ++i) in[i] = static_cast<const ProductInput*>(group.in[i]);
  for (int i = 1; i < kWarpGroupThreads; ++i) {
    if (in[i]->b == in[0]->b && in[i]->adds == in[0]->adds && (in[0]->a_rows != nullptr || in[i]->a == in[0]->a))
      continue;
    log_.Report(ProblemKind::kDivergence, {place, block_, first_thread + i},
                [] { return std::string("the threads of a warp group multiply different matrices"); });
  }
  if (!group.has_begun) {
    log_.Report(ProblemKind::kMissingFence, {place, block_, first_thread},
                [] { return std::string("a product without BeginProducts after the last wait"); });
  }
  bool is_valid = true;
  ForEachChunk(*in[0], [&](size_t offset) {
    if (!is_valid) return;
    is_valid = shared_.BeginProductRead(offset, index, operation, place);
    if (is_valid) group.open.reads.push_back(offset);
  });
  const size_t count = in[0]->num_columns / 2;
  Accumulators* const found = FindAccumulators(&group, in);
  if (is_valid) {
    ExecuteProduct(in, shared_.data(), &found->values);
  } else {
    std::fill(found->values.begin(), found->values.end(), std::numeric_limits<float>::quiet_NaN());
  }
  if (config_.landing == CopyLanding::kImmediate) return WriteAccumulators(found);
  for (float* d : found->d) std::fill(d, d + count, std::numeric_limits<float>::quiet_NaN());
}

GridEmulator::Accumulators* GridEmulator::FindAccumulators(WarpGroup* group,
                                                           const PerGroupThread<const ProductInput*>& in) {
  std::vector<Accumulators>& open = group->open.accumulators;
  const auto find_in = [&](std::vector<Accumulators>& all) {
    return std::find_if(all.begin(), all.end(), [&](const Accumulators& known) { return known.d[0] == in[0]->d; });
  };
  if (const auto found = find_in(open); found != open.end()) return &*found;
  for (ProductGroup& earlier : group->in_flight) {
    const auto found = find_in(earlier.accumulators);
    if (found == earlier.accumulators.end()) continue;
    open.push_back(std::move(*found));
    earlier.accumulators.erase(found);
    return &open.back();
  }
  Accumulators& made = open.emplace_back();
  for (int i = 0; i < kWarpGroupThreads; ++i) {
    made.d[i] = in[i]->d;
    made.values.insert(made.values.end(), in[i]->d, in[i]->d + in[0]->num_columns / 2);
  }
  return &made;
}

void GridEmulator::WriteAccumulators(Accumulators* accumulators) {
  const size_t count = accumulators->values.size() / kWarpGroupThreads;
  for (int i = 0; i < kWarpGroupThreads; ++i) {
    std::copy_n(accumulators->values.begin() + i * count, count, accumulators->d[i]);
  }
}

void GridEmulator::WaitForProducts(int index, Place place) {
  WarpGroup& group = groups_[index];
  if (!group.open.accumulators.empty()) {
    log_.Report(ProblemKind::kUnwaitedCopies, {place, block_, index * kWarpGroupThreads},
                [] { return std::string("products are not committed when the group waits for them"); });
    return;
  }
  const auto num_in_flight = static_cast<size_t>(*static_cast<const int*>(group.in[0]));
  while (group.in_flight.size() > num_in_flight) {
    ProductGroup& done = group.in_flight.front();
    for (Accumulators& accumulators : done.accumulators) WriteAccumulators(&accumulators);
    for (const size_t offset : done.reads) shared_.EndProductRead(offset, index);
    group.in_flight.pop_front();
  }
  group.has_begun = false;
}

// --- The end of a block

void GridEmulator::ReportWorkInFlight() {
  for (const auto& [offset, barrier] : barriers_) {
    if (barrier.in_flight.empty()) continue;
    log_.Report(ProblemKind::kUnwaitedCopies, {barrier.in_flight[0].place, block_, 0},
                [] { return std::string("the block ends with bulk copies in flight"); });
  }
  for (int group = 0; group < num_groups(); ++group) {
    const WarpGroup& left = groups_[group];
    if (left.open.accumulators.empty() && left.in_flight.empty()) continue;
    log_.Report(ProblemKind::kUnwaitedCopies, {threads_[group * kWarpGroupThreads].place, block_, 0},
                [] { return std::string("the block ends before products are waited for"); });
  }
}

}  // namespace quire::simt
