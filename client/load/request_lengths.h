// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_REQUEST_LENGTHS_H_
#define QUIRE_CLIENT_LOAD_REQUEST_LENGTHS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// One request of a trace.
struct RequestLengths {
  double arrival_s = 0;  // Seconds after the first request.
  int prompt = 1;        // Tokens.
  int output = 1;        // Tokens.

  bool operator==(const RequestLengths&) const = default;
};

// The lines of the Azure LLM inference trace of 2023: TIMESTAMP,ContextTokens,GeneratedTokens. INVALID_ARGUMENT names
// the first bad line.
absl::StatusOr<std::vector<RequestLengths>> ParseAzureTrace(absl::string_view csv);

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_REQUEST_LENGTHS_H_
