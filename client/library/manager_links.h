// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_MANAGER_LINKS_H_
#define QUIRE_CLIENT_LIBRARY_MANAGER_LINKS_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/channel.h"
#include "quire/v1/admin.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire {

struct ClientOptions;

// How long a manager that does not answer at all keeps a call from the next one, if there are several.
inline constexpr absl::Duration kConnectPatience = absl::Seconds(1);

// The connections of a client: one for each address of its endpoint. One of the managers leads, and calls go to the
// current one, which is left when it stands by or cannot be reached. Thread-safe.
class ManagerLinks {
 public:
  struct Link {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::InferenceService::Stub> inference;
    std::unique_ptr<v1::AdminService::Stub> admin;
    std::unique_ptr<grpc::health::v1::Health::Stub> health;
  };

  // REQUIRES: as MakeChannel.
  explicit ManagerLinks(const ClientOptions& options);

  size_t size() const { return links_.size(); }
  const Link& current() const { return links_[current_]; }
  // The next one becomes current, unless another thread has left `link` already.
  void Leave(const Link& link);
  // Returns the current link when there is one address. When there are several, returns the first one from the current
  // one on that can be connected, and makes it current; or the current one when there is none. It waits at most a
  // second for each, and not beyond the deadline, nor long after `is_stopped` returns true.
  const Link& Connect(
      absl::Time deadline, const std::function<bool()>& is_stopped = [] { return false; });

 private:
  std::vector<Link> links_;  // At least one; constant.
  std::atomic<size_t> current_ = 0;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_MANAGER_LINKS_H_
