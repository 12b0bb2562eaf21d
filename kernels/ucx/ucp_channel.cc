// SPDX-License-Identifier: Apache-2.0

#include "kernels/ucx/ucp_channel.h"

#include <chrono>
#include <cstdint>

namespace quire::ucx {
namespace {

constexpr std::chrono::milliseconds kFlushTime(100);

// The value of UCX_TLS for a network: everything but memory, which does not report a lost peer and would hide that
// there is no device.
constexpr char kNetworkTransports[] = "^sm,self";

std::string Why(const std::string& what, ucs_status_t status) {
  return "UCX cannot " + what + ": " + ucs_status_string(status);
}

void OnPeerLost(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<UcpChannel::Peer*>(peer)->loss = status;
}

constexpr ucp_request_param_t kNoParams{};

}  // namespace

UcpChannel::~UcpChannel() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

std::string UcpChannel::Start(const GroupTransport& transport, const char* in_memory) {
  kind_ = transport.kind;
  const bool is_shared = kind_ == GroupTransport::Kind::kShared;
  const std::string use = is_shared ? "use shared memory" : "use the network devices '" + transport.devices + "'";
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return Why("read its configuration", status);
  status = ucp_config_modify(config, "TLS", is_shared ? in_memory : kNetworkTransports);
  if (status == UCS_OK && !transport.devices.empty()) {
    status = ucp_config_modify(config, "NET_DEVICES", transport.devices.c_str());
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK) status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) return Why(use, status);
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(context_, &worker, &worker_);
  if (status != UCS_OK) return Why(use, status);
  if (ucp_worker_get_efd(worker_, &event_) != UCS_OK) event_ = -1;
  ucp_address_t* address = nullptr;
  size_t length = 0;
  status = ucp_worker_get_address(worker_, &address, &length);
  if (status != UCS_OK) return Why("tell its address", status);
  address_.assign(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_, address);
  return "";
}

ucs_status_t UcpChannel::Connect(const std::string& address, Peer* peer) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  if (kind_ == GroupTransport::Kind::kNetwork) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {.cb = &OnPeerLost, .arg = peer};
  }
  return ucp_ep_create(worker_, &params, &peer->endpoint);
}

ucs_status_ptr_t UcpChannel::Send(const Peer& peer, const void* bytes, size_t size, ucp_tag_t tag) {
  return ucp_tag_send_nbx(peer.endpoint, bytes, size, tag, &kNoParams);
}

ucs_status_ptr_t UcpChannel::Receive(void* bytes, size_t size, ucp_tag_t tag) {
  return ucp_tag_recv_nbx(worker_, bytes, size, tag, ~ucp_tag_t{0}, &kNoParams);
}

void UcpChannel::Flush() {
  const ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker_, &kNoParams);
  const auto end = std::chrono::steady_clock::now() + kFlushTime;
  while (UCS_PTR_IS_PTR(flush) && ucp_request_check_status(flush) == UCS_INPROGRESS &&
         std::chrono::steady_clock::now() < end) {
    Progress();
  }
  if (UCS_PTR_IS_PTR(flush)) ucp_request_free(flush);
}

int UcpChannel::Arm() {
  return event_ >= 0 && ucp_worker_arm(worker_) == UCS_OK ? event_ : -1;
}

}  // namespace quire::ucx
