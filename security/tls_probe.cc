#include "security/tls_probe.h"

#include <ctime>
#include <memory>

#include "absl/strings/str_cat.h"
#include "openssl/err.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"
#include "openssl/x509v3.h"

namespace quire {
namespace {

// What gRPC speaks inside of TLS; its servers refuse a client that does not offer it.
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

absl::StatusOr<absl::Time> EndOf(const X509* certificate) {
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) {
    return absl::InvalidArgumentError("the certificate's end cannot be read");
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

std::string LastError() {
  const unsigned long code = ERR_get_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "the connection was closed or timed out" : reason;
}

}  // namespace

absl::StatusOr<absl::Time> ProbeTls(int socket, const TlsFiles& files, const std::string& name) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  if (context == nullptr || SSL_CTX_load_verify_locations(context.get(), files.authority.c_str(), nullptr) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot use ", files.authority, ": ", LastError()));
  }
  if (!files.certificate.empty() &&
      (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1 ||
       SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot use ", files.certificate, ": ", LastError()));
  }
  const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context.get()), &SSL_free);
  // Verified below, so that a certificate which is refused is named, not the handshake.
  SSL_set_verify(tls.get(), SSL_VERIFY_NONE, nullptr);
  SSL_set_alpn_protos(tls.get(), kHttp2, sizeof(kHttp2));
  if (!name.empty() && X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls.get()), name.c_str()) != 1) {
    ERR_clear_error();
    SSL_set_tlsext_host_name(tls.get(), name.c_str());
    SSL_set1_host(tls.get(), name.c_str());
  }
  SSL_set_fd(tls.get(), socket);
  if (SSL_connect(tls.get()) != 1) return absl::UnavailableError(LastError());
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(tls.get()), &X509_free);
  if (certificate == nullptr) return absl::UnavailableError("the server shows no certificate");
  if (const long result = SSL_get_verify_result(tls.get()); result != X509_V_OK) {
    return absl::UnauthenticatedError(X509_verify_cert_error_string(result));
  }
  return EndOf(certificate.get());
}

}  // namespace quire
