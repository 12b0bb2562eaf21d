#ifndef QUIRE_SECURITY_AUTHORIZER_H_
#define QUIRE_SECURITY_AUTHORIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"
#include "security/token_file.h"

namespace quire {

// What a port asks of a call, beyond TLS itself: a certificate and a token, each of them if it is asked for at all,
// that open the method (method_access.h).
struct AccessRules {
  // Whether clients show certificates; then one of these DNS names or URIs must be in it. "*" is any name.
  bool has_certificates = false;
  std::vector<std::string> client_names = {};  // Open what is for tenants.
  std::vector<std::string> admin_names = {};   // Open that and what is for operators.
  std::vector<std::string> manager_names = {};
  std::shared_ptr<TokenFile> tokens = nullptr;  // Null: no token is asked for.

  bool ask_for_anything() const { return has_certificates || tokens != nullptr; }
};

// OK when the rules let a caller with these names in its certificate, and with this `authorization` ("Bearer ...";
// empty: none), call the method at `path`. UNAUTHENTICATED without a known token, else PERMISSION_DENIED.
absl::Status Authorize(const AccessRules& rules, absl::string_view path, const std::vector<std::string>& names,
                       absl::string_view authorization);

// Asks Authorize before every call of a port, those of health and reflection included. Thread-safe.
std::shared_ptr<grpc::AuthMetadataProcessor> MakeAuthorizer(AccessRules rules);

// Who makes a call that was let in; nothing when `tokens` is null. A token that was withdrawn in this very moment gives
// a caller of no tenant, to whom nothing belongs.
std::optional<Caller> CallerOf(const grpc::ServerContextBase& context, TokenFile* tokens);

}  // namespace quire

#endif  // QUIRE_SECURITY_AUTHORIZER_H_
