// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_RESTORER_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_RESTORER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kv_manager/engine/restore_request.h"
#include "kv_manager/requests/request_environment.h"

namespace quire {

// Makes the request and the stream of a RequestRecord that a worker has kept. The stream has no client until one
// resumes it, or until the grace for clients has passed. Without a key in the options no record can be trusted, so no
// request is restored. Borrows the environment. Thread-safe.
class RequestRestorer {
 public:
  explicit RequestRestorer(RequestEnvironment* environment) : environment_(environment) {}

  // The result has a hook `keep`, which returns the errors of ResumableRequests::Restore.
  absl::StatusOr<RequestRestored> Restore(const RequestToRestore& found) const;

 private:
  RequestEnvironment* const environment_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_RESTORER_H_
