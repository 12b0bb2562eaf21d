// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_AUTHORIZER_H_
#define QUIRE_SECURITY_AUTHORIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"
#include "security/token_file.h"

namespace quire {

// What a port requires of a call besides TLS. If certificates are required, the caller's must permit the method, and if
// tokens are required, so must its token. method_access.h says who may call which method.
struct AccessRules {
  // Whether clients show certificates. If they do, the certificate must contain one of the DNS names or URIs below that
  // permit the method. "*" means any name.
  bool has_certificates = false;
  std::vector<std::string> client_names = {};   // Permit the methods for tenants.
  std::vector<std::string> admin_names = {};    // Permit the methods for tenants and those for operators.
  std::vector<std::string> manager_names = {};  // Permit the methods for a worker's manager.
  std::shared_ptr<TokenFile> tokens = nullptr;  // Null when no token is required.

  bool require_anything() const { return has_certificates || tokens != nullptr; }
};

// Checks that the rules permit a call of the method at `path` by a caller with `names` in its certificate.
// `authorization` is "Bearer TOKEN", or empty when the call has no token. Returns UNAUTHENTICATED when a token is
// required and the call has no known one, and PERMISSION_DENIED when the caller may not call the method.
absl::Status Authorize(const AccessRules& rules, absl::string_view path, const std::vector<std::string>& names,
                       absl::string_view authorization);

// Makes a processor that calls Authorize before every call of a port, including health checks and reflection.
// Thread-safe.
std::shared_ptr<grpc::AuthMetadataProcessor> MakeAuthorizer(AccessRules rules);

// Returns who makes a call that was authorized, or nothing when `tokens` is null. UNAUTHENTICATED when the token was
// withdrawn since then.
absl::StatusOr<std::optional<Caller>> CallerOf(const grpc::ServerContextBase& context, const TokenFile* tokens);

}  // namespace quire

#endif  // QUIRE_SECURITY_AUTHORIZER_H_
