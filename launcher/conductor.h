// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_LAUNCHER_CONDUCTOR_H_
#define QUIRE_LAUNCHER_CONDUCTOR_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/http_client.h"
#include "launcher/first_request.h"
#include "launcher/model_source.h"
#include "launcher/part.h"
#include "launcher/run_folder.h"
#include "launcher/serve_options.h"

namespace quire {

// `quire serve`: starts a manager, the gateway and a worker, in this order, so that a port that is in use is known
// before a model is downloaded. Waits until the model answers, and serves until a signal comes or one of them ends.
// Then it ends all of them: first the gateway, then the manager, and then the worker. SIGINT, SIGTERM and SIGHUP stop
// it; a second one kills what still runs. There is one per process, used by the main thread before any other one
// starts.
class Conductor {
 public:
  // The programs are in `bin`.
  Conductor(const ServeOptions& options, const std::string& bin);
  ~Conductor();

  // Returns the exit code: 0 after a signal while it served, 2 when flags or MODEL are wrong, otherwise 1. The last
  // line that it has printed says why.
  int Run();

 private:
  // These return CANCELLED after a signal, and the error of a part that has ended. An error without a message was
  // printed already.
  absl::Status Prepare();
  absl::Status StartParts();
  absl::Status Download();
  absl::Status AwaitAnswer();
  absl::Status CheckParts();
  absl::Status WaitUntil(absl::FunctionRef<bool()> is_done);
  // Makes one call of the gateway while the parts are watched.
  absl::StatusOr<HttpAnswer> Ask(const std::string& method, const std::string& path, const std::string& body,
                                 absl::Duration timeout);

  absl::Status Serve();
  void PrintAccess() const;
  // Waits until something happens, for at most `timeout_ms`, or without a limit if that is -1.
  void Watch(int timeout_ms);
  // Ends all parts. Returns whether each has ended within `limit` and what it needs for draining, if the user waited.
  bool Stop(absl::Duration limit);
  Part& part(PartId id) { return *parts_[id]; }
  const Part& part(PartId id) const { return *parts_[id]; }

  const ServeOptions options_;
  const std::string bin_;
  const absl::Time start_;
  ModelSource source_;
  std::string name_;  // The name for clients, when the gateway has said it.
  RunFolder folder_;  // For the sockets and the logs.
  std::array<std::unique_ptr<Part>, kNumParts> parts_;
  int signals_fd_ = -1;
  int num_signals_ = 0;
  const FirstRequest* request_;  // The one that the gateway took.
  GatewayAccess access_;
};

}  // namespace quire

#endif  // QUIRE_LAUNCHER_CONDUCTOR_H_
