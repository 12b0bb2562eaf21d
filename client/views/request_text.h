// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_VIEWS_REQUEST_TEXT_H_
#define QUIRE_CLIENT_VIEWS_REQUEST_TEXT_H_

#include <cstdint>
#include <string>

#include "quire/v1/inspect.pb.h"

namespace quire {

// "running", "swapped", "waiting" or "unknown", as the commands requests and tree print it.
const char* StateOf(v1::RequestState state);

// The age of a request for people: "1.2s" below ten seconds, else whole seconds.
std::string DescribeAge(uint64_t age_ms);

}  // namespace quire

#endif  // QUIRE_CLIENT_VIEWS_REQUEST_TEXT_H_
