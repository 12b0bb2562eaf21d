// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/cache_breakpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

const char* TextOf(uint32_t ttl_seconds) {
  return ttl_seconds == kLongCacheSeconds ? "1h" : "5m";
}

bool IsSamePlace(v1::PrefixPin a, v1::PrefixPin b) {
  a.clear_ttl_seconds();
  b.clear_ttl_seconds();
  return a.SerializeAsString() == b.SerializeAsString();
}

}  // namespace

std::optional<uint32_t> ReadCacheControl(const std::string& path, FieldReader* fields) {
  const Json* const control = fields->Object("cache_control");
  if (control == nullptr) return std::nullopt;
  FieldReader reader(*control, path + "cache_control.", fields);
  const std::optional<std::string> type = reader.String("type");
  if (type != "ephemeral") {
    reader.Fail("type", type.has_value() ? absl::StrCat("is ", Dump(*type), ", it must be ephemeral") : "is missing");
  }
  const std::string ttl = reader.String("ttl").value_or("5m");
  if (ttl != "5m" && ttl != "1h") reader.Fail("ttl", absl::StrCat("is ", Dump(ttl), ", it must be 5m or 1h"));
  reader.RefuseOthers();
  if (reader.error().has_value()) return std::nullopt;
  return ttl == "1h" ? kLongCacheSeconds : kShortCacheSeconds;
}

v1::PrefixPin PinBehind(int num_messages, const v1::ChatMessage& last) {
  v1::PrefixPin pin;
  pin.set_num_messages(static_cast<uint32_t>(num_messages));
  const int num_parts = last.content_parts().empty() ? last.has_content() : last.content_parts_size();
  if (!last.tool_calls().empty()) {
    pin.set_num_tool_calls(static_cast<uint32_t>(last.tool_calls_size()));
  } else if (num_parts > 0) {
    pin.set_num_parts(static_cast<uint32_t>(num_parts));
  }
  return pin;
}

void AddCacheBreakpoints(const CacheBreakpoints& blocks, FieldReader* fields, v1::GenerateRequest* request) {
  CacheBreakpoints all = blocks;
  if (const auto seconds = ReadCacheControl("", fields); seconds.has_value() && !request->chat().messages().empty()) {
    CacheBreakpoint last{"cache_control",
                         PinBehind(request->chat().messages_size(), *request->chat().messages().rbegin())};
    last.pin.set_ttl_seconds(*seconds);
    if (all.empty() || !IsSamePlace(all.back().pin, last.pin)) {
      all.push_back(std::move(last));
    } else if (const uint32_t other = all.back().pin.ttl_seconds(); other != *seconds) {
      fields->Fail("cache_control.ttl", absl::StrCat("is ", TextOf(*seconds), ", and ", all.back().path,
                                                     ".ttl of the last block is ", TextOf(other)));
    }
  }
  uint32_t least_seconds = kLongCacheSeconds;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [path, pin] = all[i];
    if (i >= kMaxCacheBreakpoints) {
      fields->Fail(FieldError(path, absl::StrCat("is one of ", all.size(), " breakpoints, at most ",
                                                 kMaxCacheBreakpoints, " are allowed")));
    }
    if (pin.ttl_seconds() > least_seconds) {
      fields->Fail(FieldError(
          path + ".ttl",
          "is 1h behind a breakpoint of 5m; those of 1h must come first in the order tools, system, messages"));
    }
    least_seconds = std::min(least_seconds, pin.ttl_seconds());
    *request->add_pins() = pin;
  }
}

}  // namespace quire
