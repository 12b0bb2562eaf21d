// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_UCX_BEATS_H_
#define QUIRE_KERNELS_UCX_BEATS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/ucx/ucp_channel.h"

namespace quire::ucx {

// Tells the other ranks ten times a second that this process lives, and notices a rank that has been silent for a
// second: its process was killed or stopped, or the network does not reach it. A step may take longer, because beats
// have a thread of their own.
//
// Silence is counted in beats of this process. So a machine that is too busy for them, or that was suspended, does not
// find others silent.
class Beats {
 public:
  // Called by the thread of the beats, once for each rank that is silent.
  using OnSilent = std::function<void(int rank)>;

  Beats() = default;
  ~Beats();

  Beats(const Beats&) = delete;
  Beats& operator=(const Beats&) = delete;

  // Returns why there are no beats, or an empty string.
  std::string Start(const GroupTransport& transport);
  const std::string& address() const { return channel_.address(); }

  // Begins to beat for the ranks at `addresses`, of which this is number `rank`. Call it once.
  void Begin(int rank, const std::vector<std::string>& addresses, OnSilent on_silent);
  // All ranks are there: from now on, also one that is never heard is silent.
  void ExpectAll() { expects_all_ = true; }
  // Ends the thread. Does nothing if there is none.
  void End();

 private:
  struct Peer {
    int rank = 0;
    UcpChannel::Peer connection = {};
    ucs_status_ptr_t sending = nullptr;
    bool is_receiving = false;
    ucs_status_ptr_t receiving = nullptr;
    int64_t last_beat = 0;  // The number of the own beat at which this peer was heard last; 0: not yet.
    bool is_watched = true;
  };

  void Run();
  // Sends beats and receives those that have come.
  void Beat();
  // Returns whether a beat of the peer has come since the last call.
  bool HasCome(Peer* peer);

  UcpChannel channel_;
  int rank_ = 0;
  OnSilent on_silent_;
  std::deque<Peer> peers_;  // Does not move them.
  int64_t num_beats_ = 0;
  std::atomic<bool> expects_all_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;  // Guarded by the mutex.
  std::thread thread_;
};

}  // namespace quire::ucx

#endif  // QUIRE_KERNELS_UCX_BEATS_H_
