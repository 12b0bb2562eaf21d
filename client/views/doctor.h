// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_VIEWS_DOCTOR_H_
#define QUIRE_CLIENT_VIEWS_DOCTOR_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/library/client.h"

namespace quire {

// The result of one check.
struct Finding {
  enum class Result { kOk, kWarn, kFail };

  Result result = Result::kOk;
  std::string name;
  std::string message;
  std::string advice = "";  // What the user should do; empty when all is well.
};

struct DoctorOptions {
  ClientOptions client = {};
  std::string metrics = "";          // host:port of the manager's metrics; empty: not looked at.
  bool has_generation_check = true;  // Whether a token is generated, to see if this works.
};

enum class Examined { kUnreached, kStandsBy, kReached };

// Checks a manager from the outside in, and calls `tell` with each finding as it comes. What cannot be checked because
// of an earlier failure, or because the manager stands by, is left out. That it stands by is no failure of its own.
// REQUIRES: the endpoint is one address.
Examined Examine(const DoctorOptions& options, const std::function<void(const Finding&)>& tell);

// Judges the workers and blocks in the answer of GetStatus.
std::vector<Finding> JudgeStatus(const v1::GetStatusResponse& status);

// Judges the text of the manager's metrics, which also shows refusals and stuck workers.
std::vector<Finding> JudgeMetrics(const std::string& text);

// Judges the end of a certificate's validity. `whose` is for people: "the manager's".
Finding JudgeCertificate(const std::string& whose, absl::Time end, absl::Time now);

}  // namespace quire

#endif  // QUIRE_CLIENT_VIEWS_DOCTOR_H_
