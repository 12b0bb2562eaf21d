// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_LOCAL_GROUP_H_
#define QUIRE_KERNELS_LOCAL_GROUP_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/collective.h"

namespace quire {

// A group whose ranks are threads of this process. As in a group of processes, a rank does not hear that a peer has
// ended: it waits until Abort is called for the rank itself.
class LocalGroup {
 public:
  explicit LocalGroup(int size);
  ~LocalGroup();

  // Returns what the thread of a rank calls. It is valid while this object exists.
  Collective* collective(int rank);

 private:
  class Member;

  // The members wait for each other here. It guards what they say is guarded.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Member>> members_;
};

// Stands for a group before there is one: every rank seems to send what this rank sends. With it a worker runs its
// first steps, which take memory and whose results nobody reads.
class LoopbackCollective : public Collective {
 public:
  LoopbackCollective(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool AllGather(const void* from, size_t bytes, void* to) override;
  bool AllToAll(const void* from, size_t bytes, void* to) override;
  void Abort(const BackendStatus&) override {}
  BackendStatus Status() const override { return BackendStatus::Ok(); }

 private:
  const int rank_;
  const int size_;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_LOCAL_GROUP_H_
