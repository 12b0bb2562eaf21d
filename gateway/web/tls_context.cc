// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/tls_context.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace quire {
namespace {

namespace ssl = boost::asio::ssl;

}  // namespace

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Open(const TlsFiles& files) {
  std::unique_ptr<TlsContext> context(new TlsContext(files));
  context->version_ = context->Version();
  QUIRE_RETURN_IF_ERROR(context->Read());
  return context;
}

std::string TlsContext::Version() const {
  std::string version;
  for (const std::string& path : {files_.certificate, files_.key, files_.authority}) {
    struct stat state = {};
    if (!path.empty()) stat(path.c_str(), &state);
    absl::StrAppend(&version, state.st_ino, ".", state.st_size, ".", state.st_mtim.tv_sec, ".", state.st_mtim.tv_nsec,
                    ";");
  }
  return version;
}

absl::Status TlsContext::Read() {
  QUIRE_RETURN_IF_ERROR(CheckTlsFiles(files_, "--tls-"));
  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                       ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION);
  boost::system::error_code error;
  context->use_certificate_chain_file(files_.certificate, error);
  if (!error) context->use_private_key_file(files_.key, ssl::context::pem, error);
  if (!error && !files_.authority.empty()) {
    context->load_verify_file(files_.authority, error);
    if (!error) context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, error);
  }
  if (error) return absl::InvalidArgumentError(absl::StrCat("--tls-cert: ", error.message()));
  context_ = std::move(context);
  return absl::OkStatus();
}

ssl::context& TlsContext::current() {
  const auto now = std::chrono::steady_clock::now();
  if (now >= next_look_) {
    next_look_ = now + std::chrono::seconds(1);
    if (std::string version = Version(); version != version_) {
      version_ = std::move(version);
      const absl::Status status = Read();
      if (status.ok()) {
        QUIRE_LOG(kInfo) << "the TLS files were read again";
      } else {
        QUIRE_LOG(kError) << "the TLS files have changed and cannot be used: " << status.message();
      }
    }
  }
  return *context_;
}

}  // namespace quire
