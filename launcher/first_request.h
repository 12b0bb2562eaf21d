// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_LAUNCHER_FIRST_REQUEST_H_
#define QUIRE_LAUNCHER_FIRST_REQUEST_H_

#include <string>
#include <vector>

namespace quire {

// A request that shows whether the model answers, and that a user can send as well.
struct FirstRequest {
  const char* path;
  const char* body;      // Without the end, which BodyOf adds.
  bool has_text = true;  // The answer is text, which max_tokens limits.
};

// The requests to try, in this order, until the gateway does not refuse one: a question with an instruction (only
// rerankers take it), a conversation, a text (for a model without a chat template), an embedding (for a model that
// gives nothing else), and token ids (for a model without a tokenizer).
const std::vector<FirstRequest>& FirstRequests();
// The conversation, for a gateway that cannot be asked.
const FirstRequest& UsualRequest();

// Returns the body of the request, in JSON without single quotes.
std::string BodyOf(const FirstRequest& request, int max_tokens);

// What a client of the gateway needs.
struct GatewayAccess {
  std::string url;  // Such as "http://127.0.0.1:8000".
  bool has_tls = false;
  bool needs_token = false;
  bool needs_certificate = false;
};

// Returns a command for a shell that sends the request. The name of a certificate is not checked, because the
// certificate need not name this machine's own address.
std::string CurlCommand(const FirstRequest& request, const GatewayAccess& access);

// Returns the address at which programs of this machine reach a server that listens at `address`: 127.0.0.1 instead of
// all addresses.
std::string LocalUrl(const std::string& scheme, const std::string& address);

}  // namespace quire

#endif  // QUIRE_LAUNCHER_FIRST_REQUEST_H_
