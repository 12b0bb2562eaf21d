// SPDX-License-Identifier: Apache-2.0

#include "security/authorizer.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"
#include "security/method_access.h"
#include "security/peer_names.h"

namespace quire {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr absl::string_view kBearer = "bearer ";

absl::string_view View(grpc::string_ref text) {
  return {text.data(), text.size()};
}

absl::string_view TokenOf(absl::string_view authorization) {
  return absl::StartsWithIgnoreCase(authorization, kBearer) ? authorization.substr(kBearer.size()) : "";
}

bool DoesCertificateOpen(const AccessRules& rules, Access access, const std::vector<std::string>& names) {
  switch (access) {
    case Access::kAnyone:
      return true;
    case Access::kTenant:
      return IsOneOf(names, rules.client_names) || IsOneOf(names, rules.admin_names);
    case Access::kAdmin:
      return IsOneOf(names, rules.admin_names);
    case Access::kManager:
      return IsOneOf(names, rules.manager_names);
  }
  return false;
}

absl::Status CheckToken(TokenFile* tokens, Access access, absl::string_view authorization) {
  const absl::string_view token = TokenOf(authorization);
  if (token.empty())
    return absl::UnauthenticatedError("the call has no bearer token; send the metadata authorization: Bearer TOKEN");
  const std::optional<Caller> caller = tokens->Find(token);
  if (!caller.has_value()) return absl::UnauthenticatedError("the bearer token is not known");
  if (access == Access::kTenant || (access == Access::kAdmin && caller->is_admin)) return absl::OkStatus();
  return absl::PermissionDeniedError("the method is for operators, and the token does not belong to one");
}

class Authorizer : public grpc::AuthMetadataProcessor {
 public:
  explicit Authorizer(AccessRules rules) : rules_(std::move(rules)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata* /*consumed*/,
                       OutputMetadata* /*response*/) override {
    std::vector<std::string> names;
    for (const char* property : {GRPC_PEER_DNS_PROPERTY_NAME, GRPC_PEER_URI_PROPERTY_NAME}) {
      for (const grpc::string_ref& name : context->FindPropertyValues(property)) names.emplace_back(View(name));
    }
    const absl::Status status = Authorize(rules_, Value(metadata, ":path"), names, Value(metadata, kAuthorization));
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
  }

 private:
  // Returns the value of a key that occurs exactly once, otherwise an empty string.
  static absl::string_view Value(const InputMetadata& metadata, const char* key) {
    return metadata.count(key) == 1 ? View(metadata.find(key)->second) : absl::string_view();
  }

  const AccessRules rules_;
};

}  // namespace

absl::Status Authorize(const AccessRules& rules, absl::string_view path, const std::vector<std::string>& names,
                       absl::string_view authorization) {
  const std::optional<Access> access = MethodAccess(path);
  if (!access.has_value()) return absl::PermissionDeniedError("there is no such method, or nobody may call it");
  if (*access == Access::kAnyone) return absl::OkStatus();
  if (rules.has_certificates && !DoesCertificateOpen(rules, *access, names)) {
    return absl::PermissionDeniedError("no name in the certificate permits this method");
  }
  if (rules.tokens == nullptr) return absl::OkStatus();
  return CheckToken(rules.tokens.get(), *access, authorization);
}

std::shared_ptr<grpc::AuthMetadataProcessor> MakeAuthorizer(AccessRules rules) {
  return std::make_shared<Authorizer>(std::move(rules));
}

absl::StatusOr<std::optional<Caller>> CallerOf(const grpc::ServerContextBase& context, const TokenFile* tokens) {
  if (tokens == nullptr) return std::optional<Caller>();
  const auto& metadata = context.client_metadata();
  const auto entry = metadata.find(kAuthorization);
  std::optional<Caller> caller;
  if (entry != metadata.end()) caller = tokens->Find(TokenOf(View(entry->second)));
  if (!caller.has_value()) return absl::UnauthenticatedError("the bearer token of the call is not known any more");
  return caller;
}

}  // namespace quire
