// SPDX-License-Identifier: Apache-2.0

#include "kernels/ucx/ucx_group.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>

#include "kernels/ucx/beats.h"
#include "kernels/ucx/ucp_channel.h"

namespace quire::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kLookTime(30);
// A thread that sleeps looks again after this time at the latest.
constexpr int kLongestSleepMs = 50;
constexpr int kLooksBetweenClocks = 64;

// The address of a group is that of its channel, and then that of its beats.
std::string JoinAddresses(const std::string& group, const std::string& beats) {
  const auto size = static_cast<uint32_t>(group.size());
  std::string joined(sizeof(size), '\0');
  memcpy(joined.data(), &size, sizeof(size));
  return joined + group + beats;
}

// Returns false if `joined` is no address of a group.
bool SplitAddress(const std::string& joined, std::string* group, std::string* beats) {
  uint32_t size = 0;
  if (joined.size() < sizeof(size)) return false;
  memcpy(&size, joined.data(), sizeof(size));
  const size_t rest = joined.size() - sizeof(size);
  if (size == 0 || size >= rest) return false;
  *group = joined.substr(sizeof(size), size);
  *beats = joined.substr(sizeof(size) + size);
  return true;
}

class UcpGroup : public UcxGroup {
 public:
  ~UcpGroup() override;

  // Returns why not, or an empty string.
  std::string Start(const GroupTransport& transport);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  const std::string& address() const override { return address_; }
  bool Join(int rank, const std::vector<std::string>& addresses, const GroupKey& key) override;
  bool AllGather(const void* from, size_t bytes, void* to) override { return Move(from, bytes, /*step=*/0, to); }
  bool AllToAll(const void* from, size_t bytes, void* to) override { return Move(from, bytes, /*step=*/bytes, to); }
  void Abort(const BackendStatus& reason) override;
  BackendStatus Status() const override;

 private:
  // Sends the `bytes` bytes at `from` + r * step to rank r, and receives `bytes` bytes from it at `to` + r * bytes.
  bool Move(const void* from, size_t bytes, size_t step, void* to);
  // Waits for a request, and frees it. `rank` is the peer.
  bool Finish(ucs_status_ptr_t request, int rank);
  // Sleeps until UCX has something to do, or Abort.
  void Sleep();
  bool Fail(int rank, const char* what, ucs_status_t status);

  int abort_event_ = -1;
  std::string address_;
  int rank_ = 0;
  std::vector<UcpChannel::Peer> peers_;  // [ranks], without an endpoint for this rank.
  uint64_t num_calls_ = 0;
  std::vector<ucs_status_ptr_t> requests_;  // [2 * ranks], of a call.

  std::atomic<bool> has_ended_ = false;
  mutable std::mutex mutex_;
  BackendStatus reason_ = BackendStatus::Ok();  // Guarded by the mutex.
  UcpChannel channel_;                          // Gone before the peers.
  Beats beats_;                                 // Gone first, because it may call Abort until then.
};

UcpGroup::~UcpGroup() {
  beats_.End();
  // What this rank has sent last may still be on its way to a peer that waits for it.
  if (!peers_.empty() && !has_ended_) channel_.Flush();
  if (abort_event_ >= 0) close(abort_event_);
}

std::string UcpGroup::Start(const GroupTransport& transport) {
  if (std::string why_not = channel_.Start(transport, /*in_memory=*/"posix,cma,self"); !why_not.empty()) return why_not;
  if (std::string why_not = beats_.Start(transport); !why_not.empty()) return why_not;
  abort_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  address_ = JoinAddresses(channel_.address(), beats_.address());
  return "";
}

bool UcpGroup::Fail(int rank, const char* what, ucs_status_t status) {
  Abort(BackendStatus::Error("rank " + std::to_string(rank) + " " + what + ": " + ucs_status_string(status)));
  return false;
}

bool UcpGroup::Join(int rank, const std::vector<std::string>& addresses, const GroupKey& key) {
  rank_ = rank;
  peers_.resize(addresses.size());
  requests_.resize(2 * addresses.size());
  std::vector<std::string> beats(addresses.size());
  for (int r = 0; r < size(); ++r) {
    std::string address;
    if (!SplitAddress(addresses[r], &address, &beats[r])) return Fail(r, "has no address", UCS_ERR_INVALID_ADDR);
    if (r == rank_) continue;
    const ucs_status_t status = channel_.Connect(address, &peers_[r]);
    if (status != UCS_OK) return Fail(r, "cannot be reached", status);
  }
  beats_.Begin(rank_, beats, [this](int silent) {
    Abort(BackendStatus::Error("rank " + std::to_string(silent) + " has been silent for a second"));
  });
  std::vector<GroupKey> keys(addresses.size());
  if (!AllGather(key.data(), sizeof(key), keys.data())) return false;
  for (int r = 0; r < size(); ++r) {
    if (keys[r] == key) continue;
    Abort(BackendStatus::Error("rank " + std::to_string(r) + " has another key of the group"));
    return false;
  }
  beats_.ExpectAll();
  return true;
}

bool UcpGroup::Move(const void* from, size_t bytes, size_t step, void* to) {
  if (has_ended_) return false;
  const uint64_t call = ++num_calls_;
  const auto tag = [call](int sender) { return call << 8 | static_cast<uint64_t>(sender); };
  const auto* const source = static_cast<const char*>(from);
  auto* const target = static_cast<char*>(to);
  std::fill(requests_.begin(), requests_.end(), nullptr);
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    requests_[2 * r] = channel_.Receive(target + r * bytes, bytes, tag(r));
  }
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    requests_[2 * r + 1] = channel_.Send(peers_[r], source + r * step, bytes, tag(rank_));
  }
  memcpy(target + rank_ * bytes, source + rank_ * step, bytes);
  bool has_moved = true;
  // After a failure, requests stay until the worker is destroyed.
  for (size_t i = 0; i < requests_.size() && has_moved; ++i) has_moved = Finish(requests_[i], static_cast<int>(i / 2));
  return has_moved;
}

bool UcpGroup::Finish(ucs_status_ptr_t request, int rank) {
  if (request == nullptr) return !has_ended_;
  if (UCS_PTR_IS_ERR(request)) return Fail(rank, "cannot be reached", UCS_PTR_STATUS(request));
  Clock::time_point end;
  for (int looks = 1; ucp_request_check_status(request) == UCS_INPROGRESS; ++looks) {
    if (has_ended_) return false;
    // A peer that has left at the end of the session has sent all that this rank needs of it. So a loss counts only
    // where something is missing.
    if (peers_[rank].loss != UCS_OK) return Fail(rank, "is lost", peers_[rank].loss);
    if (channel_.Progress() || looks % kLooksBetweenClocks != 0) continue;
    const auto now = Clock::now();
    if (looks == kLooksBetweenClocks) end = now + kLookTime;
    if (now >= end) Sleep();
  }
  const ucs_status_t status = ucp_request_check_status(request);
  ucp_request_free(request);
  return status == UCS_OK ? !has_ended_ : Fail(rank, "has not sent or received", status);
}

void UcpGroup::Sleep() {
  const int event = channel_.Arm();
  if (event < 0) return;
  pollfd events[] = {{.fd = event, .events = POLLIN, .revents = 0},
                     {.fd = abort_event_, .events = POLLIN, .revents = 0}};
  poll(events, 2, kLongestSleepMs);
}

void UcpGroup::Abort(const BackendStatus& reason) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return;
  reason_ = reason;
  has_ended_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(abort_event_, &one, sizeof(one));
}

BackendStatus UcpGroup::Status() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

}  // namespace

std::unique_ptr<UcxGroup> UcxGroup::Open(const GroupTransport& transport, std::string* why_not) {
  auto group = std::make_unique<UcpGroup>();
  *why_not = group->Start(transport);
  if (!why_not->empty()) return nullptr;
  return group;
}

}  // namespace quire::ucx
