#include "client/connection_options.h"

#include "absl/strings/str_cat.h"
#include "base/local_address.h"
#include "base/status.h"
#include "client/endpoint.h"
#include "client/token.h"
#include "security/tls_files.h"

namespace quire {

void AddConnectionOptions(CLI::App* app, ClientOptions* options) {
  app->add_option("-e,--endpoint", options->endpoint, "The manager: host:port or unix:path; also $QUIRE_ENDPOINT")
      ->envname("QUIRE_ENDPOINT")
      ->option_text(absl::StrCat("ENDPOINT [", options->endpoint, "]"));
  app->add_option("--tls-ca", options->tls.authority,
                  "Speak TLS; the manager's certificate must be from an authority in this PEM file; also $QUIRE_TLS_CA")
      ->envname("QUIRE_TLS_CA")
      ->option_text("FILE");
  app->add_option("--tls-cert", options->tls.certificate, "The certificate to show; also $QUIRE_TLS_CERT")
      ->envname("QUIRE_TLS_CERT")
      ->option_text("FILE");
  app->add_option("--tls-key", options->tls.key, "Its private key; also $QUIRE_TLS_KEY")
      ->envname("QUIRE_TLS_KEY")
      ->option_text("FILE");
  app->add_option("--tls-name", options->server_name,
                  "The DNS name that the manager's certificate must have; also $QUIRE_TLS_NAME")
      ->envname("QUIRE_TLS_NAME")
      ->option_text("NAME [the endpoint's host]");
  app->add_option("--token", options->token,
                  "Bearer token that says who calls; better in $QUIRE_TOKEN, which other users cannot see")
      ->envname("QUIRE_TOKEN")
      ->option_text("TOKEN");
}

absl::Status CheckConnection(const ClientOptions& options) {
  QUIRE_RETURN_IF_ERROR(CheckEndpoint(options.endpoint));
  QUIRE_RETURN_IF_ERROR(CheckTlsFiles(options.tls, "--tls-"));
  if (!options.tls.certificate.empty() && options.tls.authority.empty()) {
    return absl::InvalidArgumentError("--tls-ca is missing: --tls-cert and --tls-key mean nothing without it");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string token, HeaderToken(options.token));
  if (!token.empty() && options.tls.authority.empty() && !IsLocalAddress(options.endpoint)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-ca is missing: a token is not sent to ", options.endpoint, " in plain text"));
  }
  return absl::OkStatus();
}

}  // namespace quire
