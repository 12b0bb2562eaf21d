// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_TLS_CONTEXT_H_
#define QUIRE_GATEWAY_WEB_TLS_CONTEXT_H_

#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "security/tls_files.h"

namespace quire {

// The settings of TLS 1.2 and 1.3 for the connections of a server, from files that are read again when they have
// changed. Not thread-safe.
class TlsContext {
 public:
  // INVALID_ARGUMENT with the flag when a file cannot be used.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Open(const TlsFiles& files);

  // The settings for a new connection. Looks at the files at most once a second. Files that cannot be used are reported
  // in the log, and the former ones stay in use. Valid until the next call.
  boost::asio::ssl::context& current();

 private:
  explicit TlsContext(TlsFiles files) : files_(std::move(files)) {}

  // Identifies the contents of the files.
  std::string Version() const;
  absl::Status Read();

  const TlsFiles files_;
  std::string version_;
  std::chrono::steady_clock::time_point next_look_;
  // A connection keeps OpenSSL's part of the context that it was made with.
  std::unique_ptr<boost::asio::ssl::context> context_;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_TLS_CONTEXT_H_
