// SPDX-License-Identifier: Apache-2.0

#include "client/quirectl/global_options.h"

#include "absl/strings/str_cat.h"
#include "base/local_address.h"
#include "base/status.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"
#include "client/library/bearer_token.h"
#include "client/library/endpoint.h"
#include "security/tls_files.h"

namespace quire {

GlobalOptions::GlobalOptions(CLI::App* app) {
  const auto add = [app](const char* flags, std::string* value, const char* environment, const std::string& text,
                         const char* help) { AddOption(app, flags, value, text, help)->envname(environment); };
  add("-e,--endpoint", &client_.endpoint, "QUIRE_ENDPOINT", absl::StrCat("ENDPOINT [", client_.endpoint, "]"),
      "The manager: host:port or unix:path; several managers of which one leads are separated by commas; also "
      "$QUIRE_ENDPOINT");
  add("--tls-ca", &client_.tls.authority, "QUIRE_TLS_CA", "FILE",
      "Use TLS; the manager's certificate must come from an authority in this PEM file; also $QUIRE_TLS_CA");
  add("--tls-cert", &client_.tls.certificate, "QUIRE_TLS_CERT", "FILE",
      "The client's certificate; also $QUIRE_TLS_CERT");
  add("--tls-key", &client_.tls.key, "QUIRE_TLS_KEY", "FILE", "The private key of --tls-cert; also $QUIRE_TLS_KEY");
  add("--tls-name", &client_.server_name, "QUIRE_TLS_NAME", "NAME [the endpoint's host]",
      "The DNS name that the manager's certificate must have; also $QUIRE_TLS_NAME");
  add("--token", &client_.token, "QUIRE_TOKEN", "TOKEN",
      "Bearer token of the caller. Other users of this machine see it on the command line but not in $QUIRE_TOKEN");
  AddOption(app, "-o,--output", &format_name_, "text|table|json [text]",
            "json prints one line per message; text and table are the same")
      ->check(CLI::IsMember({"text", "table", "json"}));
  AddOption(app, "--rpc-timeout", &rpc_timeout_s_, "SECONDS [10]", "Time limit of every call except generate")
      ->transform(InSeconds<double>(0.001, 1e6));
}

absl::Status GlobalOptions::CheckConnection() const {
  QUIRE_RETURN_IF_ERROR(CheckEndpoints(client_.endpoint));
  QUIRE_RETURN_IF_ERROR(CheckTlsFiles(client_.tls, "--tls-"));
  if (!client_.tls.certificate.empty() && client_.tls.authority.empty()) {
    return absl::InvalidArgumentError("--tls-ca is missing: --tls-cert and --tls-key mean nothing without it");
  }
  if (!client_.server_name.empty() && client_.tls.authority.empty()) {
    return absl::InvalidArgumentError("--tls-ca is missing: --tls-name means nothing without it");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string token, HeaderToken(client_.token));
  for (const std::string& endpoint : SplitEndpoints(client_.endpoint)) {
    if (token.empty() || !client_.tls.authority.empty() || IsLocalAddress(endpoint)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-ca is missing: a token is not sent to ", endpoint, " in plain text"));
  }
  return absl::OkStatus();
}

ClientOptions GlobalOptions::client() const {
  ClientOptions client = client_;
  client.timeout = absl::Seconds(rpc_timeout_s_);
  return client;
}

}  // namespace quire
