// SPDX-License-Identifier: Apache-2.0

#include "launcher/first_request.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/listen_address.h"

namespace quire {
namespace {

constexpr int kShownTokens = 100;

}  // namespace

const std::vector<FirstRequest>& FirstRequests() {
  static const auto* const requests = new std::vector<FirstRequest>{
      {.path = "/v1/rerank",
       .body = R"({"query": "What is a fox?", "documents": ["A fox is an animal.", "It rains."], )"
               R"("instruction": "Retrieve passages that answer the question")",
       .has_text = false},
      {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Once upon a time"}])"},
      {"/v1/completions", R"({"prompt": "Once upon a time")"},
      {.path = "/v1/embeddings", .body = R"({"input": ["A fox is an animal.", "It rains."])", .has_text = false},
      {"/v1/completions", R"({"prompt": [0], "return_token_ids": true)"},
  };
  return *requests;
}

const FirstRequest& UsualRequest() {
  return FirstRequests()[1];
}

std::string BodyOf(const FirstRequest& request, int max_tokens) {
  if (!request.has_text) return absl::StrCat(request.body, "}");
  return absl::StrCat(request.body, ", \"max_tokens\": ", max_tokens, "}");
}

std::string CurlCommand(const FirstRequest& request, const GatewayAccess& access) {
  return absl::StrCat("curl -s ", access.has_tls ? "-k " : "",
                      access.needs_certificate ? "--cert CERTIFICATE --key KEY " : "",
                      access.needs_token ? "-H \"Authorization: Bearer $TOKEN\" " : "", access.url, request.path,
                      " -d '", BodyOf(request, kShownTokens), "'");
}

std::string LocalUrl(const std::string& scheme, const std::string& address) {
  const std::optional<HostPort> parts = SplitHostPort(address);
  if (!parts.has_value()) return "";
  const bool is_ipv6 = absl::StrContains(parts->host, ':');
  const std::string host = parts->host == "0.0.0.0" ? "127.0.0.1" : parts->host == "::" ? "::1" : parts->host;
  return absl::StrCat(scheme, "://", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", ":", parts->port);
}

}  // namespace quire
