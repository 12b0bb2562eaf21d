// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_ANTHROPIC_CACHE_BREAKPOINTS_H_
#define QUIRE_GATEWAY_ANTHROPIC_CACHE_BREAKPOINTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gateway/openai/field_reader.h"
#include "quire/v1/inference.pb.h"

namespace quire {

inline constexpr size_t kMaxCacheBreakpoints = 4;
// The two times for which a prefix can stay cached.
inline constexpr uint32_t kShortCacheSeconds = 5 * 60;
inline constexpr uint32_t kLongCacheSeconds = 60 * 60;

// Where a field `cache_control` says that a prefix of the prompt shall stay cached.
struct CacheBreakpoint {
  std::string path;  // Of the field.
  v1::PrefixPin pin;
};
using CacheBreakpoints = std::vector<CacheBreakpoint>;  // In the order of the prefixes.

// Reads the field `cache_control` of `fields`, which are at `path`, such as "tools[0].". Returns the time in seconds,
// or nothing when there is no such field or it is wrong.
std::optional<uint32_t> ReadCacheControl(const std::string& path, FieldReader* fields);

// Returns the pin of a conversation of `num_messages` messages, the last of which ends with what `last` has now.
v1::PrefixPin PinBehind(int num_messages, const v1::ChatMessage& last);

// Adds the breakpoints of all blocks, and the one of the request itself at the end of the conversation, to the request.
// Leaves an error when there are too many, or when one of a longer time follows one of a shorter time.
void AddCacheBreakpoints(const CacheBreakpoints& blocks, FieldReader* fields, v1::GenerateRequest* request);

}  // namespace quire

#endif  // QUIRE_GATEWAY_ANTHROPIC_CACHE_BREAKPOINTS_H_
