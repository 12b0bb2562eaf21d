// SPDX-License-Identifier: Apache-2.0

#include "client/library/manager_links.h"

#include <algorithm>
#include <string>

#include "absl/time/clock.h"
#include "client/library/client.h"
#include "client/library/endpoint.h"

namespace quire {
namespace {

// Interval for asking whether a call was stopped.
constexpr absl::Duration kStopCheckInterval = absl::Milliseconds(50);

bool IsConnected(grpc::Channel* channel, absl::Time deadline, const std::function<bool()>& is_stopped) {
  grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
  while (state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING) {
    const absl::Time now = absl::Now();
    if (now >= deadline || is_stopped()) return false;
    channel->WaitForStateChange(state, absl::ToChronoTime(std::min(deadline, now + kStopCheckInterval)));
    state = channel->GetState(/*try_to_connect=*/true);
  }
  return state == GRPC_CHANNEL_READY;
}

}  // namespace

ManagerLinks::ManagerLinks(const ClientOptions& options) {
  for (const std::string& endpoint : SplitEndpoints(options.endpoint)) {
    ClientOptions one = options;
    one.endpoint = endpoint;
    Link& link = links_.emplace_back();
    link.channel = MakeChannel(one);
    link.inference = v1::InferenceService::NewStub(link.channel);
    link.admin = v1::AdminService::NewStub(link.channel);
    link.health = grpc::health::v1::Health::NewStub(link.channel);
  }
}

void ManagerLinks::Leave(const Link& link) {
  size_t index = static_cast<size_t>(&link - links_.data());
  current_.compare_exchange_strong(index, (index + 1) % links_.size());
}

const ManagerLinks::Link& ManagerLinks::Connect(absl::Time deadline, const std::function<bool()>& is_stopped) {
  for (size_t i = 0; i < links_.size() && links_.size() > 1; ++i) {
    const Link& link = current();
    if (IsConnected(link.channel.get(), std::min(deadline, absl::Now() + kConnectPatience), is_stopped)) return link;
    Leave(link);
  }
  return current();
}

}  // namespace quire
