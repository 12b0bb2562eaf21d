// SPDX-License-Identifier: Apache-2.0

#include "client/load/request_lengths.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

// Parses "2023-11-16 18:15:46.6805900" to seconds since the beginning of the month.
bool ParseTimestamp(absl::string_view text, double* seconds) {
  int day, hour, minute;
  double second;
  if (text.size() < 19 || !absl::SimpleAtoi(text.substr(8, 2), &day) || !absl::SimpleAtoi(text.substr(11, 2), &hour) ||
      !absl::SimpleAtoi(text.substr(14, 2), &minute) || !absl::SimpleAtod(text.substr(17), &second)) {
    return false;
  }
  *seconds = ((day * 24.0 + hour) * 60 + minute) * 60 + second;
  return true;
}

}  // namespace

absl::StatusOr<std::vector<RequestLengths>> ParseAzureTrace(absl::string_view csv) {
  std::vector<RequestLengths> requests;
  double first_s = 0;
  int line_number = 0;
  for (const absl::string_view line : absl::StrSplit(csv, '\n')) {
    if (++line_number == 1 || absl::StripAsciiWhitespace(line).empty()) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(absl::StripAsciiWhitespace(line), ',');
    RequestLengths request;
    if (fields.size() != 3 || !ParseTimestamp(fields[0], &request.arrival_s) ||
        !absl::SimpleAtoi(fields[1], &request.prompt) || !absl::SimpleAtoi(fields[2], &request.output) ||
        request.prompt < 1 || request.output < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line_number, " is '", line, "', expected TIMESTAMP,ContextTokens,GeneratedTokens"));
    }
    if (requests.empty()) first_s = request.arrival_s;
    request.arrival_s -= first_s;
    requests.push_back(request);
  }
  return requests;
}

}  // namespace quire
