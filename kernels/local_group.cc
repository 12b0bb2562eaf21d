// SPDX-License-Identifier: Apache-2.0

#include "kernels/local_group.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

namespace quire {
namespace {

// A rank looks so often for its peers before it sleeps. That takes about 30 us.
constexpr int kLooksBeforeSleep = 300;

}  // namespace

class LocalGroup::Member : public Collective {
 public:
  Member(LocalGroup* group, int rank, int size) : group_(*group), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  bool AllGather(const void* from, size_t bytes, void* to) override {
    return Move(from, bytes, /*copied=*/bytes, /*step=*/0, to);
  }
  bool AllToAll(const void* from, size_t bytes, void* to) override {
    return Move(from, bytes * size_, bytes, /*step=*/bytes, to);
  }

  void Abort(const BackendStatus& reason) override {
    const std::lock_guard lock(group_.mutex_);
    if (has_ended_) return;
    reason_ = reason;
    has_ended_ = true;
    group_.changed_.notify_all();
  }
  BackendStatus Status() const override {
    const std::lock_guard lock(group_.mutex_);
    return reason_;
  }

 private:
  // Offers `bytes` bytes to the others, and copies from each of them the `copied` bytes that begin at rank * step.
  bool Move(const void* from, size_t bytes, size_t copied, size_t step, void* to) {
    if (has_ended_) return false;  // A peer may still copy what was offered.
    const uint64_t call = num_posted_ + 1;
    std::vector<char>& own = slots_[call % 2];
    own.assign(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    {
      const std::lock_guard lock(group_.mutex_);
      num_posted_ = call;
      group_.changed_.notify_all();
    }
    for (int r = 0; r < size_; ++r) {
      Member& peer = *group_.members_[r];
      if (!Await(peer, call)) return false;
      const std::vector<char>& offered = peer.slots_[call % 2];
      if (offered.size() != bytes) {
        Abort(BackendStatus::Error("rank " + std::to_string(r) + " sends " + std::to_string(offered.size()) +
                                   " bytes, and this rank " + std::to_string(bytes)));
        return false;
      }
      memcpy(static_cast<char*>(to) + r * copied, offered.data() + rank_ * step, copied);
    }
    return !has_ended_;
  }

  // Waits until the peer has offered the bytes of a call.
  bool Await(const Member& peer, uint64_t call) {
    for (int i = 0; i < kLooksBeforeSleep; ++i) {
      if (has_ended_) return false;
      if (peer.num_posted_ >= call) return true;
      std::this_thread::yield();
    }
    std::unique_lock lock(group_.mutex_);
    group_.changed_.wait(lock, [&] { return has_ended_ || peer.num_posted_ >= call; });
    return !has_ended_;
  }

  LocalGroup& group_;
  const int rank_;
  const int size_;
  // Both are written under the mutex.
  std::atomic<uint64_t> num_posted_ = 0;
  std::atomic<bool> has_ended_ = false;
  BackendStatus reason_ = BackendStatus::Ok();  // Guarded by the mutex.
  // What was offered in the last two calls. A rank that makes call n + 2 knows that all have made call n + 1, and so
  // have copied what it had offered in call n.
  std::array<std::vector<char>, 2> slots_;
};

LocalGroup::LocalGroup(int size) {
  for (int rank = 0; rank < size; ++rank) members_.push_back(std::make_unique<Member>(this, rank, size));
}

LocalGroup::~LocalGroup() = default;

Collective* LocalGroup::collective(int rank) {
  return members_[rank].get();
}

bool LoopbackCollective::AllGather(const void* from, size_t bytes, void* to) {
  for (int r = 0; r < size_; ++r) memcpy(static_cast<char*>(to) + r * bytes, from, bytes);
  return true;
}

bool LoopbackCollective::AllToAll(const void* from, size_t bytes, void* to) {
  return AllGather(static_cast<const char*>(from) + rank_ * bytes, bytes, to);
}

}  // namespace quire
