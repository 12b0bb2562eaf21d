// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/request_failure.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"

namespace quire {

absl::Status ErrorOf(const FailedRequest& failed) {
  std::string subject = "the request";
  std::map<std::string, std::string> metadata;
  if (failed.sample_index.has_value()) {
    subject = absl::StrCat("sample ", *failed.sample_index, " of the request");
    metadata["sample"] = absl::StrCat(*failed.sample_index);
  }
  const std::string& cause = failed.failure.message;
  switch (failed.failure.reason) {
    case SequenceFailure::Reason::kLogitsNotFinite:
      return WithReason(
          absl::InternalError(absl::StrCat("the model gives no finite numbers for ", subject, ": ", cause)),
          "LOGITS_NOT_FINITE", metadata);
    case SequenceFailure::Reason::kGuideTooExpensive:
      return WithReason(
          absl::InvalidArgumentError(absl::StrCat("the guide of ", subject, " is too expensive: ", cause)),
          "GUIDE_TOO_EXPENSIVE", metadata);
    case SequenceFailure::Reason::kUnknown:
      break;
  }
  return WithReason(absl::InternalError(absl::StrCat("the worker cannot continue ", subject, ": ", cause)),
                    "SEQUENCE_FAILED", metadata);
}

}  // namespace quire
