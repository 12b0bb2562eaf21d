#include "kv_manager/requests/request_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {

absl::Status RequestRegistry::Add(const std::string& owner, const std::string& name,
                                  std::shared_ptr<TokenStream> stream) {
  std::lock_guard lock(mutex_);
  if (streams_.contains({owner, name})) {
    return WithReason(absl::AlreadyExistsError(absl::StrCat("request_id: a request ", Quoted(name), " is running")),
                      "REQUEST_RUNNING");
  }
  if (streams_.size() >= max_requests_) {
    return WithRetryDelay(
        WithReason(absl::ResourceExhaustedError(absl::StrCat(max_requests_, " requests run, the limit")),
                   "TOO_MANY_REQUESTS", {{"max_requests", absl::StrCat(max_requests_)}}),
        /*delay_ms=*/500);
  }
  streams_.emplace(std::pair(owner, name), std::move(stream));
  return absl::OkStatus();
}

void RequestRegistry::Remove(const std::string& owner, const std::string& name) {
  std::lock_guard lock(mutex_);
  streams_.erase({owner, name});
}

absl::flat_hash_map<RequestId, std::string> RequestRegistry::Names() const {
  absl::flat_hash_map<RequestId, std::string> names;
  std::lock_guard lock(mutex_);
  names.reserve(streams_.size());
  for (const auto& [owner_and_name, stream] : streams_) names.emplace(stream->id(), owner_and_name.second);
  return names;
}

std::shared_ptr<TokenStream> RequestRegistry::Find(const std::string& owner, const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = streams_.find({owner, name});
  return it == streams_.end() ? nullptr : it->second;
}

absl::StatusOr<std::shared_ptr<TokenStream>> RequestRegistry::FindOfAnybody(const std::string& name) const {
  std::shared_ptr<TokenStream> found;
  std::lock_guard lock(mutex_);
  for (const auto& [owner_and_name, stream] : streams_) {
    if (owner_and_name.second != name) continue;
    if (found != nullptr) {
      return WithReason(absl::FailedPreconditionError(absl::StrCat("request_id: several tenants run a request ",
                                                                   Quoted(name), "; use the token of the one meant")),
                        "AMBIGUOUS_REQUEST");
    }
    found = stream;
  }
  return found;
}

}  // namespace quire
