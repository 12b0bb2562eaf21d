// SPDX-License-Identifier: Apache-2.0

#include "client/quirectl/global_options.h"

#include "absl/strings/str_cat.h"
#include "base/local_address.h"
#include "base/status.h"
#include "client/commands/option_range.h"
#include "client/library/bearer_token.h"
#include "client/library/endpoint.h"
#include "security/tls_files.h"

namespace quire {

GlobalOptions::GlobalOptions(CLI::App* app) {
  app->add_option(
         "-e,--endpoint", client_.endpoint,
         "The manager: host:port or unix:path; several managers of which one leads are separated by commas; also "
         "$QUIRE_ENDPOINT")
      ->envname("QUIRE_ENDPOINT")
      ->option_text(absl::StrCat("ENDPOINT [", client_.endpoint, "]"));
  app->add_option("--tls-ca", client_.tls.authority,
                  "Use TLS; the manager's certificate must come from an authority in this PEM file; also $QUIRE_TLS_CA")
      ->envname("QUIRE_TLS_CA")
      ->option_text("FILE");
  app->add_option("--tls-cert", client_.tls.certificate, "The client's certificate; also $QUIRE_TLS_CERT")
      ->envname("QUIRE_TLS_CERT")
      ->option_text("FILE");
  app->add_option("--tls-key", client_.tls.key, "The private key of --tls-cert; also $QUIRE_TLS_KEY")
      ->envname("QUIRE_TLS_KEY")
      ->option_text("FILE");
  app->add_option("--tls-name", client_.server_name,
                  "The DNS name that the manager's certificate must have; also $QUIRE_TLS_NAME")
      ->envname("QUIRE_TLS_NAME")
      ->option_text("NAME [the endpoint's host]");
  app->add_option("--token", client_.token,
                  "Bearer token of the caller. Other users of this machine see it on the command line but not in "
                  "$QUIRE_TOKEN")
      ->envname("QUIRE_TOKEN")
      ->option_text("TOKEN");
  app->add_option("-o,--output", format_name_, "json prints one line per message; text and table are the same")
      ->check(CLI::IsMember({"text", "table", "json"}))
      ->option_text("text|table|json [text]");
  app->add_option("--rpc-timeout", rpc_timeout_s_, "Time limit of every call except generate")
      ->transform(InSeconds<double>(0.001, 1e6))
      ->option_text("SECONDS [10]");
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
