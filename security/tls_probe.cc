// SPDX-License-Identifier: Apache-2.0

#include "security/tls_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "openssl/err.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"
#include "openssl/x509v3.h"
#include "security/certificate_expiry.h"

namespace quire {
namespace {

// The protocol that a client offers. gRPC servers refuse clients that do not offer HTTP/2.
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

std::string LastError() {
  const unsigned long code = ERR_get_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "the connection was closed" : reason;
}

// Blocks SIGPIPE while it exists, so that a write to a connection that the server has closed does not end the process.
// OpenSSL has no option for that.
class PipeSignalBlock {
 public:
  PipeSignalBlock() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalBlock() {
    const timespec at_once = {};
    while (sigismember(&before_, SIGPIPE) == 0 && sigtimedwait(&pipe_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
};

// Repeats `call`, a function of OpenSSL, until it need not wait for the other side any more. Returns OK when it has
// succeeded, DEADLINE_EXCEEDED when the time is up, and ABORTED with the reason when it has failed.
template <typename Call>
absl::Status Complete(SSL* tls, absl::Time deadline, Call call) {
  while (true) {
    const int result = call();
    if (result > 0) return absl::OkStatus();
    const int error = SSL_get_error(tls, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return absl::AbortedError(LastError());
    pollfd socket = {SSL_get_fd(tls), static_cast<short>(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT), 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    const int num_ready = left_ms > 0 ? poll(&socket, 1, static_cast<int>(std::min<int64_t>(left_ms, INT_MAX))) : 0;
    if (num_ready == 0) return absl::DeadlineExceededError("no answer in time");
    if (num_ready < 0 && errno != EINTR) return absl::AbortedError(std::strerror(errno));
  }
}

// Does the handshake of a client that speaks HTTP/2. Fails like Complete.
absl::Status Shake(SSL* tls, int socket, absl::Time deadline) {
  SSL_set_alpn_protos(tls, kHttp2, sizeof(kHttp2));
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  SSL_set_fd(tls, socket);
  return Complete(tls, deadline, [tls] { return SSL_connect(tls); });
}

}  // namespace

absl::StatusOr<absl::Time> ProbeTls(int socket, const TlsFiles& files, const std::string& name,
                                    absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const PipeSignalBlock block;
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
  // The certificate is verified below, so that the error names the certificate instead of the handshake.
  SSL_set_verify(tls.get(), SSL_VERIFY_NONE, nullptr);
  if (!name.empty() && X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls.get()), name.c_str()) != 1) {
    ERR_clear_error();
    SSL_set_tlsext_host_name(tls.get(), name.c_str());
    SSL_set1_host(tls.get(), name.c_str());
  }
  const absl::Status shaken = Shake(tls.get(), socket, deadline);
  if (!shaken.ok()) return absl::UnavailableError(shaken.message());
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(tls.get()), &X509_free);
  if (certificate == nullptr) return absl::UnavailableError("the server shows no certificate");
  if (const long result = SSL_get_verify_result(tls.get()); result != X509_V_OK) {
    return absl::UnauthenticatedError(X509_verify_cert_error_string(result));
  }
  // In TLS 1.3 the handshake is over for the client before the server has checked the client's certificate. A server
  // that accepts it sends the first HTTP/2 frame, and a server that refuses it sends an alert.
  char byte = 0;
  const absl::Status taken = Complete(tls.get(), deadline, [&] { return SSL_peek(tls.get(), &byte, 1); });
  if (absl::IsAborted(taken))
    return absl::PermissionDeniedError(absl::StrCat("the server refuses us: ", taken.message()));
  if (!taken.ok()) return absl::UnavailableError("the server says nothing after the handshake");
  const std::optional<absl::Time> expiry = ExpiryOf(*certificate);
  if (!expiry.has_value()) {
    return absl::InvalidArgumentError("the end of validity of the server's certificate is malformed");
  }
  return *expiry;
}

bool SpeaksTls(int socket, absl::Duration timeout) {
  const PipeSignalBlock block;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context.get()), &SSL_free);
  return Shake(tls.get(), socket, absl::Now() + timeout).ok();
}

bool IsAnswerInPlainText(absl::string_view message) {
  return absl::StrContains(message, "wrong version number");
}

}  // namespace quire
