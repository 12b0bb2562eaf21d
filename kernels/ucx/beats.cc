// SPDX-License-Identifier: Apache-2.0

#include "kernels/ucx/beats.h"

#include <chrono>
#include <utility>

namespace quire::ucx {
namespace {

constexpr std::chrono::milliseconds kBeat(100);
constexpr int kSilentBeats = 10;

bool IsInProgress(ucs_status_ptr_t request) {
  return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
}

void Free(ucs_status_ptr_t request) {
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
}

}  // namespace

Beats::~Beats() {
  End();
}

std::string Beats::Start(const GroupTransport& transport) {
  // Each end takes 4 MiB, and a container may have 64 MiB at /dev/shm. These are not there.
  return channel_.Start(transport, /*in_memory=*/"sysv,self");
}

void Beats::Begin(int rank, const std::vector<std::string>& addresses, OnSilent on_silent) {
  rank_ = rank;
  on_silent_ = std::move(on_silent);
  for (int r = 0; r < static_cast<int>(addresses.size()); ++r) {
    if (r == rank) continue;
    peers_.push_back({.rank = r});
    // A peer that cannot be reached is never heard. The group itself says so.
    if (channel_.Connect(addresses[r], &peers_.back().connection) != UCS_OK) peers_.pop_back();
  }
  thread_ = std::thread([this] { Run(); });
}

void Beats::End() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Beats::Run() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    lock.unlock();
    Beat();
    for (Peer& peer : peers_) {
      if (expects_all_ && peer.last_beat == 0) peer.last_beat = num_beats_;
      if (!peer.is_watched || peer.last_beat == 0 || num_beats_ - peer.last_beat < kSilentBeats) continue;
      peer.is_watched = false;
      on_silent_(peer.rank);
    }
    lock.lock();
    changed_.wait_for(lock, kBeat, [this] { return is_ending_; });
  }
}

void Beats::Beat() {
  ++num_beats_;
  for (Peer& peer : peers_) {
    const bool is_lost = peer.connection.loss != UCS_OK || UCS_PTR_IS_ERR(peer.sending);
    if (is_lost || IsInProgress(peer.sending)) continue;
    Free(peer.sending);
    peer.sending = channel_.Send(peer.connection, nullptr, 0, static_cast<ucp_tag_t>(rank_));
  }
  constexpr int kMaxRounds = 1000;
  for (int i = 0; i < kMaxRounds && channel_.Progress(); ++i) {
  }
  for (Peer& peer : peers_) {
    while (HasCome(&peer)) peer.last_beat = num_beats_;
  }
}

bool Beats::HasCome(Peer* peer) {
  if (!peer->is_receiving) {
    peer->receiving = channel_.Receive(nullptr, 0, static_cast<ucp_tag_t>(peer->rank));
    peer->is_receiving = true;
  }
  if (UCS_PTR_IS_ERR(peer->receiving) || IsInProgress(peer->receiving)) return false;
  Free(peer->receiving);
  peer->is_receiving = false;
  return true;
}

}  // namespace quire::ucx
