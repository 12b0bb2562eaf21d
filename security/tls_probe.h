// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_TLS_PROBE_H_
#define QUIRE_SECURITY_TLS_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "security/tls_files.h"

namespace quire {

// Does the TLS handshake of a gRPC client with these files, waits for the first byte that the server sends inside TLS,
// and returns when the validity of the server's certificate ends. `socket` is connected, stays open and belongs to the
// caller; it is left in non-blocking mode. Errors:
// - UNAVAILABLE: the server does not speak TLS, or all this took longer than `timeout`.
// - UNAUTHENTICATED: the server's certificate was not issued by the authority, is not valid now, or is not for `name`.
//   `name` is a DNS name or an IP address; an empty one means any name.
// - PERMISSION_DENIED: the server ended the connection after the handshake, as it does when it refuses the client's
//   certificate or requires one.
absl::StatusOr<absl::Time> ProbeTls(int socket, const TlsFiles& files, const std::string& name, absl::Duration timeout);

// Returns true if the server at `socket` completes a TLS handshake within `timeout`, with whatever certificate. The
// socket is left as ProbeTls leaves it, and the connection is of no further use.
bool SpeaksTls(int socket, absl::Duration timeout);

// Returns true if the message of a failed handshake has the words of OpenSSL for an answer in plain text.
bool IsAnswerInPlainText(absl::string_view message);

}  // namespace quire

#endif  // QUIRE_SECURITY_TLS_PROBE_H_
