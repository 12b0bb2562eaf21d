// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_MAKER_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_MAKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/trace_context.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/guide_cache.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/token_stream.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/request.h"

namespace quire {

// Limit of how often texts are tokenized again because another generation is served by then.
inline constexpr int kMaxTokenizedAgain = 3;

// A request and the model that it was validated for.
struct MadeRequest {
  ValidRequest valid;  // The caller sets tenant, salt, times and record of the request.
  std::shared_ptr<const ServedModel> model;

  // Finds the stop strings of the request. Null: it has none.
  std::shared_ptr<const StopCondition> StopStrings() const;
};

// What differs between the streams of new requests and of those that an earlier manager has begun.
struct StreamOrigin {
  std::string name;                                // GenerateResponse.request_id.
  StreamReader reader = {};                        // Its first client, if it has one.
  std::shared_ptr<StreamKeeper> keeper = nullptr;  // See TokenStream::Environment.
  bool is_reachable = true;                        // See TokenStream::Environment.
  bool is_restored = false;                        // An earlier manager may have sent any of its tokens.
  std::optional<TraceSpan> span;                   // Set: its end is logged and traced under this, if that is on.
  const v1::GenerateRequest* message = nullptr;    // What the client has sent. Set with `span`, during the call.
  std::function<void()> on_end = [] {};            // The request is over, and its client is told next.
};

// Makes every request and its stream, new ones and those that are restored from what a worker has kept. So both get the
// same checks, defaults and limits. Borrows the environment. Thread-safe.
class RequestMaker {
 public:
  explicit RequestMaker(RequestEnvironment* environment) : environment_(environment) {}

  // Validates the message of a client for this model. Errors as for ValidateGenerate. `has_left` is that of
  // RequestLimits.
  absl::StatusOr<MadeRequest> Make(const v1::GenerateRequest& message, std::shared_ptr<const ServedModel> model,
                                   uint64_t drawn_seed, const GuideUser& user,
                                   const std::function<bool()>* has_left = nullptr) const;

  // Nobody else knows the stream yet.
  std::shared_ptr<TokenStream> MakeStream(const MadeRequest& made, StreamOrigin origin) const;

 private:
  RequestEnvironment* const environment_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_MAKER_H_
