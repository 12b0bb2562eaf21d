// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/problem.h"

#include <algorithm>
#include <string_view>

namespace quire::simt {

std::string ToString(const Place& place) {
  std::string_view file = place.file_name();
  const size_t slash = file.find_last_of('/');
  if (slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return std::string(file) + ":" + std::to_string(place.line());
}

const char* Name(Operation operation) {
  switch (operation) {
    case Operation::kSyncBlock:
      return "SyncBlock";
    case Operation::kSyncWarp:
      return "SyncWarp";
    case Operation::kShuffle:
      return "Shuffle";
    case Operation::kShuffleXor:
      return "ShuffleXor";
    case Operation::kShuffleUp:
      return "ShuffleUp";
    case Operation::kShuffleDown:
      return "ShuffleDown";
    case Operation::kBallot:
      return "Ballot";
    case Operation::kLoadMatrix4:
      return "LoadMatrix4";
    case Operation::kLoadMatrix4Transposed:
      return "LoadMatrix4Transposed";
    case Operation::kMmaBf16:
      return "MmaBf16";
    case Operation::kMmaF16:
      return "MmaF16";
    case Operation::kMmaS8:
      return "MmaS8";
    case Operation::kLoadShared:
      return "LoadShared";
    case Operation::kStoreShared:
      return "StoreShared";
    case Operation::kLoadGlobal:
      return "LoadGlobal";
    case Operation::kLoadReadOnly:
      return "LoadReadOnly";
    case Operation::kStoreGlobal:
      return "StoreGlobal";
    case Operation::kAtomic:
      return "an atomic";
    case Operation::kCopyAsync16:
      return "CopyAsync16";
    case Operation::kSyncWarpGroup:
      return "SyncWarpGroup";
    case Operation::kInitBarrier:
      return "InitBarrier";
    case Operation::kArriveAtBarrier:
      return "ArriveAtBarrier";
    case Operation::kWaitForBarrier:
      return "WaitForBarrier";
    case Operation::kCopyBulk:
      return "CopyBulk";
    case Operation::kBeginProducts:
      return "BeginProducts";
    case Operation::kMultiply:
      return "Multiply";
    case Operation::kMultiplyRows:
      return "MultiplyRows";
    case Operation::kCommitProducts:
      return "CommitProducts";
    case Operation::kWaitForProducts:
      return "WaitForProducts";
  }
  return "?";
}

const char* Name(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::kDivergence:
      return "divergence";
    case ProblemKind::kDeadlock:
      return "deadlock";
    case ProblemKind::kRunaway:
      return "runaway";
    case ProblemKind::kSharedRace:
      return "race in shared memory";
    case ProblemKind::kSharedOutOfBounds:
      return "out of shared memory";
    case ProblemKind::kGlobalOutOfBounds:
      return "out of global memory";
    case ProblemKind::kReadOnlyViolation:
      return "read-only violation";
    case ProblemKind::kMisaligned:
      return "misaligned";
    case ProblemKind::kUninitializedRead:
      return "read of uninitialised shared memory";
    case ProblemKind::kUnwaitedCopies:
      return "copies not waited for";
    case ProblemKind::kBeforePriorGrid:
      return "access before the prior grid is done";
    case ProblemKind::kGlobalRace:
      return "race in global memory";
    case ProblemKind::kMissingFence:
      return "missing fence";
    case ProblemKind::kBarrierMisuse:
      return "misuse of a barrier";
  }
  return "?";
}

Problem* ProblemLog::Add(ProblemKind kind, const Origin& origin) {
  const auto line = [](const Place& place) { return Line(place.file_name(), place.line()); };
  const auto lines = std::minmax({line(origin.place), line(origin.other)});
  const Key key = {kind, lines.first, lines.second};
  const auto [known, is_new] = index_.try_emplace(key, problems_.size());
  if (!is_new) {
    if (known->second < problems_.size()) ++problems_[known->second].count;
    return nullptr;
  }
  if (problems_.size() >= kMaxProblems) return nullptr;
  problems_.push_back(
      {.kind = kind, .text = "", .place = origin.place, .block = origin.block, .thread = origin.thread});
  return &problems_.back();
}

}  // namespace quire::simt
