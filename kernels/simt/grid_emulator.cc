// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/grid_emulator.h"

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/simt/warp_operations.h"

namespace quire::simt {
namespace {

constexpr int kPoison = 0xff;
constexpr size_t kRowBytes = 16;  // Bytes of a row of an 8x8 matrix, and of an asynchronous copy.

bool IsSamePlace(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

// ldmatrix and mma are "aligned": all lanes must be at the same instruction, not only in the same operation.
bool IsAligned(Operation operation) {
  return operation == Operation::kLoadMatrix4 || operation == Operation::kLoadMatrix4Transposed ||
         operation == Operation::kMmaBf16 || operation == Operation::kMmaF16 || operation == Operation::kMmaS8;
}

template <typename To, typename From>
std::array<To, kWarpSize> CastAll(const std::array<From, kWarpSize>& from) {
  std::array<To, kWarpSize> to;
  for (int lane = 0; lane < kWarpSize; ++lane) to[lane] = static_cast<To>(from[lane]);
  return to;
}

}  // namespace

GridEmulator::GridEmulator(const LaunchConfig& config, const std::function<void()>& body)
    : config_(config),
      body_(body),
      random_(config.seed),
      clock_(config.num_threads / kWarpSize),
      shared_(config.shared_bytes, &clock_, &log_),
      global_(config.buffers, &clock_, &log_),
      bank_conflicts_(config.num_threads / kWarpSize),
      threads_(config.num_threads),
      meetings_(config.num_threads / kWarpSize),
      groups_(config.num_threads / kWarpGroupThreads),
      copies_(config.num_threads),
      fibers_(config.num_threads, &GridEmulator::ThreadMain, this) {}

LaunchReport GridEmulator::Run() {
  current_ = this;
  std::vector<int> blocks(config_.num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  bool is_complete = true;
  while (is_complete && !blocks.empty()) {
    std::swap(blocks[Random(blocks.size())], blocks.back());
    is_complete = RunBlock(blocks.back());
    blocks.pop_back();
  }
  current_ = nullptr;
  counters_.shared_conflicts = bank_conflicts_.count();
  return {.problems = log_.problems(), .counters = counters_, .is_complete = is_complete};
}

// --- The turns of the threads

void GridEmulator::ThreadMain(void* self) {
  auto* const grid = static_cast<GridEmulator*>(self);
  // A fiber runs the same thread index of one block after another.
  while (true) {
    grid->body_();
    grid->OnThreadExit();
    grid->fibers_.Suspend();
  }
}

void GridEmulator::BeginBlock(int block) {
  block_ = block;
  num_live_ = config_.num_threads;
  num_at_barrier_ = 0;
  num_operations_ = 0;
  clock_.Reset();
  shared_.Reset(block);
  global_.BeginBlock(block);
  for (AsyncCopies& copies : copies_) copies.Reset();
  barriers_.clear();
  for (WarpGroup& group : groups_) group = WarpGroup();
  ready_.clear();
  for (int thread = 0; thread < config_.num_threads; ++thread) WakeUp(thread);
}

bool GridEmulator::RunBlock(int block) {
  BeginBlock(block);
  while (num_live_ > 0 && !is_abandoned_) {
    if (ready_.empty()) {
      if (LandForWaiting()) continue;
      ReportStuck();
      return false;
    }
    thread_ = TakeReadyThread();
    fibers_.Resume(thread_);
    if (config_.landing == CopyLanding::kRandom) {
      copies_[Random(copies_.size())].LandOne(random_());
      LandSomeCopy();
    }
  }
  if (!is_abandoned_) ReportWorkInFlight();
  for (int warp = 0; warp < num_warps(); ++warp) bank_conflicts_.OnMeeting(warp);
  return !is_abandoned_;
}

int GridEmulator::TakeReadyThread() {
  std::swap(ready_[Random(ready_.size())], ready_.back());
  const int thread = ready_.back();
  ready_.pop_back();
  return thread;
}

void GridEmulator::OnThreadExit() {
  threads_[thread_].state = State::kExited;
  if (!copies_[thread_].copies().empty()) {
    log_.Report(ProblemKind::kUnwaitedCopies, {copies_[thread_].copies().front().place, block_, thread_},
                [] { return std::string("the thread exits with copies in flight"); });
  }
  --num_live_;
  // Barriers do not wait for threads that have exited.
  if (num_live_ > 0 && num_at_barrier_ == num_live_) CompleteBarrier();
}

void GridEmulator::WakeUp(int thread) {
  threads_[thread].state = State::kReady;
  ready_.push_back(thread);
}

void GridEmulator::Abandon() {
  is_abandoned_ = true;
  fibers_.Suspend();
}

void GridEmulator::CountOperation(Place place) {
  if (++num_operations_ <= config_.max_operations_per_block) return;
  log_.Report(ProblemKind::kRunaway, {place, block_, thread_}, [&] {
    return "more than " + std::to_string(config_.max_operations_per_block) + " operations in one block";
  });
  Abandon();
}

// --- Barriers and collectives

void GridEmulator::SyncBlock(Place place) {
  CountOperation(place);
  threads_[thread_] = {State::kAtBarrier, Operation::kSyncBlock, place};
  if (++num_at_barrier_ == num_live_) CompleteBarrier();
  fibers_.Suspend();
}

void GridEmulator::CompleteBarrier() {
  for (int warp = 0; warp < num_warps(); ++warp) {
    CheckBarrierIsUniform(warp);
    bank_conflicts_.OnMeeting(warp);
  }
  ++counters_.block_barriers;
  num_at_barrier_ = 0;
  clock_.OnBlockBarrier();
  for (int thread = 0; thread < config_.num_threads; ++thread) {
    if (threads_[thread].state == State::kAtBarrier) WakeUp(thread);
  }
}

// A warp must arrive at a block barrier completely and at one place, unless all its lanes have exited.
void GridEmulator::CheckBarrierIsUniform(int warp) {
  const Thread& first = threads_[warp * kWarpSize];
  for (int thread = warp * kWarpSize; thread < (warp + 1) * kWarpSize; ++thread) {
    const Thread& other = threads_[thread];
    if (other.state == first.state && (first.state == State::kExited || IsSamePlace(first.place, other.place)))
      continue;
    const Thread& waiting = other.state == State::kAtBarrier ? other : first;
    log_.Report(ProblemKind::kDivergence, {waiting.place, block_, thread}, [&] { return DescribeWarp(warp); });
    return;
  }
}

void GridEmulator::Collective(Operation operation, const void* in, void* out, Place place) {
  CountOperation(place);
  const int warp = thread_ / kWarpSize;
  Meeting& meeting = meetings_[warp];
  meeting.in[thread_ % kWarpSize] = in;
  meeting.out[thread_ % kWarpSize] = out;
  threads_[thread_] = {State::kInCollective, operation, place};
  if (++meeting.num_arrived == kWarpSize) CompleteMeeting(warp);
  fibers_.Suspend();
}

bool GridEmulator::LanesAgree(int warp) {
  const Thread& first = threads_[warp * kWarpSize];
  bool same_operation = true;
  bool same_place = true;
  for (int lane = 1; lane < kWarpSize; ++lane) {
    const Thread& other = threads_[warp * kWarpSize + lane];
    same_operation = same_operation && other.operation == first.operation;
    same_place = same_place && IsSamePlace(other.place, first.place);
  }
  if (!same_operation || (IsAligned(first.operation) && !same_place)) {
    log_.Report(ProblemKind::kDivergence, {first.place, block_, thread_}, [&] { return DescribeWarp(warp); });
  }
  return same_operation;
}

void GridEmulator::CompleteMeeting(int warp) {
  if (!LanesAgree(warp)) {
    is_abandoned_ = true;
    return;
  }
  bank_conflicts_.OnMeeting(warp);
  RunCollective(warp, threads_[warp * kWarpSize].operation);
  meetings_[warp].num_arrived = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) WakeUp(warp * kWarpSize + lane);
}

void GridEmulator::RunCollective(int warp, Operation operation) {
  const Meeting& meeting = meetings_[warp];
  switch (operation) {
    case Operation::kSyncWarp:
      ++counters_.warp_barriers;
      clock_.OnWarpBarrier(warp);
      return;
    case Operation::kShuffle:
    case Operation::kShuffleXor:
    case Operation::kShuffleUp:
    case Operation::kShuffleDown:
      ++counters_.shuffles;
      return ExecuteShuffle(CastAll<const ShuffleInput*>(meeting.in), CastAll<uint64_t*>(meeting.out));
    case Operation::kBallot:
      ++counters_.shuffles;
      return ExecuteBallot(CastAll<const bool*>(meeting.in), CastAll<uint32_t*>(meeting.out));
    case Operation::kLoadMatrix4:
    case Operation::kLoadMatrix4Transposed:
      return RunLoadMatrix(warp, operation);
    case Operation::kMmaBf16:
    case Operation::kMmaF16:
      ++counters_.mma;
      return ExecuteMma(CastAll<const MmaInput*>(meeting.in),
                        operation == Operation::kMmaBf16 ? MmaType::kBf16 : MmaType::kF16,
                        CastAll<float*>(meeting.out));
    case Operation::kMmaS8:
      ++counters_.mma;
      return ExecuteMmaS8(CastAll<const MmaInput*>(meeting.in), CastAll<int32_t*>(meeting.out));
    default:
      std::abort();  // This operation is not a collective.
  }
}

void GridEmulator::RunLoadMatrix(int warp, Operation operation) {
  static const auto poison_row = [] {
    std::array<uint8_t, kRowBytes> row;
    row.fill(kPoison);
    return row;
  }();
  ++counters_.load_matrix;
  counters_.shared_bytes_read += kWarpSize * kRowBytes;
  std::array<const void*, kWarpSize> rows = meetings_[warp].in;
  counters_.load_matrix_conflicts += CountMatrixConflicts(rows);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int thread = warp * kWarpSize + lane;
    const Accessor by = {thread, /*whole_warp=*/true, threads_[thread].place};
    if (!shared_.CheckRead(rows[lane], kRowBytes, operation, by)) rows[lane] = poison_row.data();
  }
  ExecuteLoadMatrix4(rows, operation == Operation::kLoadMatrix4Transposed, CastAll<uint32_t*>(meetings_[warp].out));
}

// --- Memory

void GridEmulator::LoadShared(const void* p, void* value, size_t bytes, Place place) {
  CountOperation(place);
  counters_.shared_bytes_read += bytes;
  if (shared_.CheckRead(p, bytes, Operation::kLoadShared, Self(place))) {
    bank_conflicts_.OnAccess(thread_, shared_.OffsetOf(p), bytes, place);
    std::memcpy(value, p, bytes);
  } else {
    std::memset(value, kPoison, bytes);
  }
}

void GridEmulator::StoreShared(void* p, const void* value, size_t bytes, Place place) {
  CountOperation(place);
  counters_.shared_bytes_written += bytes;
  if (!shared_.CheckWrite(p, bytes, Operation::kStoreShared, Self(place))) return;
  bank_conflicts_.OnAccess(thread_, shared_.OffsetOf(p), bytes, place);
  std::memcpy(p, value, bytes);
}

void GridEmulator::LoadGlobal(const void* p, void* value, size_t bytes, Operation operation, Place place) {
  CountOperation(place);
  counters_.global_bytes_read += bytes;
  if (global_.CheckRead(p, bytes, operation, Self(place))) {
    std::memcpy(value, p, bytes);
  } else {
    std::memset(value, kPoison, bytes);
  }
}

void GridEmulator::StoreGlobal(void* p, const void* value, size_t bytes, Place place) {
  CountOperation(place);
  counters_.global_bytes_written += bytes;
  if (global_.CheckWrite(p, bytes, Operation::kStoreGlobal, Self(place))) std::memcpy(p, value, bytes);
}

bool GridEmulator::CheckAtomic(void* p, size_t bytes, Place place) {
  CountOperation(place);
  ++counters_.atomics;
  if (shared_.Contains(p)) return shared_.CheckAtomic(p, bytes, Self(place));
  return global_.CheckAtomic(p, bytes, Self(place));
}

void GridEmulator::CopyAsync16(void* shared, const void* global, bool predicate, Place place) {
  CountOperation(place);
  ++counters_.async_copies;
  counters_.shared_bytes_written += kRowBytes;
  const Accessor by = Self(place);
  if (predicate) {
    counters_.global_bytes_read += kRowBytes;
    predicate = global_.CheckRead(global, kRowBytes, Operation::kCopyAsync16, by);
  }
  if (!shared_.BeginCopy(shared, by)) return;
  AsyncCopy copy = {
      .to = static_cast<char*>(shared), .from = predicate ? static_cast<const char*>(global) : nullptr, .place = place};
  if (config_.landing == CopyLanding::kImmediate) copy.Land();
  copies_[thread_].Issue(copy);
}

void GridEmulator::WaitCopies(int groups_in_flight, Place place) {
  CountOperation(place);
  copies_[thread_].Wait(groups_in_flight, [&](const AsyncCopy& copy) { shared_.EndCopy(copy.to, Self(copy.place)); });
}

// --- Reports of threads that wait

std::string GridEmulator::DescribeWarp(int warp) const {
  const auto describe = [](const Thread& thread) -> std::string {
    if (thread.state == State::kExited) return "exited";
    if (thread.state == State::kReady) return "not there yet";
    return std::string("in ") + Name(thread.operation) + " at " + simt::ToString(thread.place);
  };
  std::string text = "warp " + std::to_string(warp) + ":";
  for (int first = 0; first < kWarpSize;) {
    const std::string state = describe(threads_[warp * kWarpSize + first]);
    int last = first;
    while (last + 1 < kWarpSize && describe(threads_[warp * kWarpSize + last + 1]) == state) ++last;
    text += first == 0 ? " " : ", ";
    text += "lanes " + std::to_string(first) + "-" + std::to_string(last) + " " + state;
    first = last + 1;
  }
  return text;
}

// No thread is ready. If lanes wait in a collective for lanes that have exited, the problem is divergence. Otherwise
// some lanes of a warp wait in a collective while others wait at a barrier, so they wait for each other, or threads
// wait at a barrier in shared memory for arrivals that do not come.
void GridEmulator::ReportStuck() {
  std::string text;
  ProblemKind kind = ProblemKind::kDeadlock;
  const Thread* waiting = nullptr;
  for (int warp = 0; warp < num_warps(); ++warp) {
    bool has_waiting = false;
    bool has_exited = false;
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const Thread& thread = threads_[warp * kWarpSize + lane];
      has_exited = has_exited || thread.state == State::kExited;
      if (thread.state == State::kExited) continue;
      has_waiting = has_waiting || thread.state == State::kInCollective;
      if (waiting == nullptr || thread.state == State::kInCollective) waiting = &thread;
    }
    if (has_waiting && has_exited) kind = ProblemKind::kDivergence;
    text += (text.empty() ? "" : "; ") + DescribeWarp(warp);
  }
  log_.Report(kind, {waiting->place, block_, static_cast<int>(waiting - threads_.data())}, [&] { return text; });
}

}  // namespace quire::simt
