// SPDX-License-Identifier: Apache-2.0

#include "kernels/ucx/ucx_group.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>

namespace quire::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kLookTime(30);
constexpr std::chrono::milliseconds kFlushTime(100);
// A thread that sleeps looks again after this time at the latest.
constexpr int kLongestSleepMs = 50;
constexpr int kLooksBetweenClocks = 64;

// Values of UCX_TLS.
constexpr char kSharedTransports[] = "posix,cma,self";
// Everything but memory, which does not report a lost peer and would hide that there is no device.
constexpr char kNetworkTransports[] = "^sm,self";

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
  // UCX calls it with a Peer when a connection has ended.
  static void OnPeerLost(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  // Waits for a request, and frees it. `rank` is the peer.
  bool Finish(ucs_status_ptr_t request, int rank);
  // Sleeps until UCX has something to do, or Abort.
  void Sleep();
  bool Fail(int rank, const char* what, ucs_status_t status);

  struct Peer {
    ucp_ep_h endpoint = nullptr;  // Null for this rank.
    ucs_status_t loss = UCS_OK;   // Why its connection has ended.
  };

  GroupTransport::Kind kind_ = GroupTransport::Kind::kShared;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int worker_event_ = -1;  // Of UCX; -1 where its transports have no events.
  int abort_event_ = -1;
  std::string address_;
  int rank_ = 0;
  std::vector<Peer> peers_;  // [ranks]
  uint64_t num_calls_ = 0;
  std::vector<ucs_status_ptr_t> requests_;  // [2 * ranks], of a call.

  std::atomic<bool> has_ended_ = false;
  mutable std::mutex mutex_;
  BackendStatus reason_ = BackendStatus::Ok();  // Guarded by the mutex.
};

UcpGroup::~UcpGroup() {
  // What this rank has sent last may still be on its way to a peer that waits for it.
  if (worker_ != nullptr && !has_ended_) {
    const ucp_request_param_t none{};
    const ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker_, &none);
    const auto end = Clock::now() + kFlushTime;
    while (UCS_PTR_IS_PTR(flush) && ucp_request_check_status(flush) == UCS_INPROGRESS && Clock::now() < end) {
      ucp_worker_progress(worker_);
    }
    if (UCS_PTR_IS_PTR(flush)) ucp_request_free(flush);
  }
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
  if (abort_event_ >= 0) close(abort_event_);
}

std::string UcpGroup::Start(const GroupTransport& transport) {
  kind_ = transport.kind;
  const bool is_shared = kind_ == GroupTransport::Kind::kShared;
  const std::string use = is_shared ? "use shared memory" : "use the network devices '" + transport.devices + "'";
  const auto why = [](const std::string& what, ucs_status_t status) {
    return "UCX cannot " + what + ": " + ucs_status_string(status);
  };
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return why("read its configuration", status);
  }
  ucs_status_t status = ucp_config_modify(config, "TLS", is_shared ? kSharedTransports : kNetworkTransports);
  if (status == UCS_OK && !transport.devices.empty()) {
    status = ucp_config_modify(config, "NET_DEVICES", transport.devices.c_str());
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK) status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) return why(use, status);
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(context_, &worker, &worker_);
  if (status != UCS_OK) return why(use, status);
  if (ucp_worker_get_efd(worker_, &worker_event_) != UCS_OK) worker_event_ = -1;
  abort_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ucp_address_t* address = nullptr;
  size_t length = 0;
  status = ucp_worker_get_address(worker_, &address, &length);
  if (status != UCS_OK) return why("tell its address", status);
  address_.assign(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_, address);
  return "";
}

bool UcpGroup::Fail(int rank, const char* what, ucs_status_t status) {
  Abort(BackendStatus::Error("rank " + std::to_string(rank) + " " + what + ": " + ucs_status_string(status)));
  return false;
}

// A peer that has left at the end of the session has sent all that this rank needs of it. So a loss counts only where
// something is missing.
void UcpGroup::OnPeerLost(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<Peer*>(peer)->loss = status;
}

bool UcpGroup::Join(int rank, const std::vector<std::string>& addresses, const GroupKey& key) {
  rank_ = rank;
  peers_.resize(addresses.size());
  requests_.resize(2 * addresses.size());
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(addresses[r].data());
    if (kind_ == GroupTransport::Kind::kNetwork) {
      params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      params.err_handler = {.cb = &OnPeerLost, .arg = &peers_[r]};
    }
    const ucs_status_t status = ucp_ep_create(worker_, &params, &peers_[r].endpoint);
    if (status != UCS_OK) return Fail(r, "cannot be reached", status);
  }
  std::vector<GroupKey> keys(addresses.size());
  if (!AllGather(key.data(), sizeof(key), keys.data())) return false;
  for (int r = 0; r < size(); ++r) {
    if (keys[r] == key) continue;
    Abort(BackendStatus::Error("rank " + std::to_string(r) + " has another key of the group"));
    return false;
  }
  return true;
}

bool UcpGroup::Move(const void* from, size_t bytes, size_t step, void* to) {
  if (has_ended_) return false;
  const uint64_t call = ++num_calls_;
  const auto tag = [call](int sender) { return call << 8 | static_cast<uint64_t>(sender); };
  const ucp_request_param_t none{};
  const auto* const source = static_cast<const char*>(from);
  auto* const target = static_cast<char*>(to);
  std::fill(requests_.begin(), requests_.end(), nullptr);
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    requests_[2 * r] = ucp_tag_recv_nbx(worker_, target + r * bytes, bytes, tag(r), ~uint64_t{0}, &none);
  }
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    requests_[2 * r + 1] = ucp_tag_send_nbx(peers_[r].endpoint, source + r * step, bytes, tag(rank_), &none);
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
    if (peers_[rank].loss != UCS_OK) return Fail(rank, "is lost", peers_[rank].loss);
    if (ucp_worker_progress(worker_) > 0 || looks % kLooksBetweenClocks != 0) continue;
    const auto now = Clock::now();
    if (looks == kLooksBetweenClocks) end = now + kLookTime;
    if (now >= end) Sleep();
  }
  const ucs_status_t status = ucp_request_check_status(request);
  ucp_request_free(request);
  return status == UCS_OK ? !has_ended_ : Fail(rank, "has not sent or received", status);
}

void UcpGroup::Sleep() {
  if (worker_event_ < 0 || ucp_worker_arm(worker_) != UCS_OK) return;
  pollfd events[] = {{.fd = worker_event_, .events = POLLIN, .revents = 0},
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
