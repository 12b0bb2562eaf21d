// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_RECORD_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/resumable_requests.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/request.h"
#include "security/seal_key.h"

namespace quire {

// Everything about a resumable request that the next manager must know to continue it, except its tokens. Workers
// keep it with the rows of the request. It has what the client has sent, without the prompt: stop strings, bad words
// and names are in it, and the text of the prompt if the request wants an echo. The seal of the record vouches for it.
struct RequestRecord {
  ResumableRequests::Identity identity;
  uint64_t nonce = 0;      // That of its resume tokens.
  std::string cache_salt;  // With the tenant in it, see AssumeTenant.
  int64_t arrival_unix_us = 0;
  std::optional<int64_t> deadline_unix_us = std::nullopt;
  std::vector<Request::PrefixPin> pins = {};
  // The request of the client. Its text is set only if the request wants an echo, and there are no token ids. Fields
  // for which the model or the server have chosen a value have this value.
  v1::GenerateRequest request;
};

// `valid` is what `request` has become. Its prompt is left out, and its defaults are written down.
v1::GenerateRequest WithoutPrompt(const v1::GenerateRequest& request, const ValidRequest& valid);

std::string EncodeRequestRecord(const RequestRecord& record, const SealKey& key);
// Nothing when the record was not made with this key, or by another version.
std::optional<RequestRecord> DecodeRequestRecord(absl::string_view bytes, const SealKey& key);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_RECORD_H_
