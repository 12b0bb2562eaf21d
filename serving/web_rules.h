// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_WEB_RULES_H_
#define QUIRE_SERVING_WEB_RULES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/web_access.h"
#include "serving/http_head.h"

namespace quire {

// Returns whether a service answers to this Host, of which the port does not matter: an IP address, a name that no site
// of the internet can have, the name of this machine, or one of `names`. Otherwise the page of a site could give its
// own name the address of this service, and a browser could not tell the two apart (DNS rebinding).
bool IsHostOfService(absl::string_view host, const std::vector<std::string>& names);

// Refuses a request that a browser sends for a page of another site, unless `access` allows its origin: the browser
// says so in Sec-Fetch-Site, or at least in Origin. A person may still follow a link to a page. Without TLS, it also
// refuses a request for the host of another service; with TLS, the certificate has told the client who answers.
std::optional<HttpRefusal> CheckWebRules(const HttpHead& head, const WebAccess& access, bool has_tls);

// Returns whether a browser has sent the request for a page.
bool IsOfPage(const HttpHead& head);

}  // namespace quire

#endif  // QUIRE_SERVING_WEB_RULES_H_
