// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/manager_error.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "security/tls_mismatch.h"

namespace quire {
namespace {

constexpr int kMaxLinesPerSecond = 1;

}  // namespace

ApiError ManagerError(const google::rpc::Status& status, const ApiNames& names) {
  static LogLimiter* const limiter = new LogLimiter(kMaxLinesPerSecond);
  ApiError error = ToApiError(status, names);
  if (error.code != kNoManager && error.code != kManagerLost) return error;
  if (const std::optional<int64_t> num_dropped = limiter->Admit(absl::GetCurrentTimeNanos() / 1000)) {
    const char* const advice = MayBeTlsMismatch(status.message())
                                   ? "; does the manager speak TLS (--manager-tls-ca), under another name "
                                     "(--manager-name), and ask for a certificate (--manager-tls-cert)?"
                                   : "";
    QUIRE_LOG(kWarning) << error.message << (status.message().empty() ? "" : ": ") << status.message() << advice
                        << (*num_dropped > 0 ? absl::StrCat(" (", *num_dropped, " such lines were dropped)") : "");
  }
  return error;
}

}  // namespace quire
