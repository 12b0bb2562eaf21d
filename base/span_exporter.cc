// SPDX-License-Identifier: Apache-2.0

#include "base/span_exporter.h"

#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/log.h"
#include "base/thread_priority.h"

namespace quire {
namespace {

constexpr std::chrono::milliseconds kLinger(500);
constexpr absl::Duration kSendTimeout = absl::Seconds(5);
// Pauses between the attempts to send a batch.
constexpr std::chrono::milliseconds kPauses[] = {std::chrono::milliseconds(500), std::chrono::milliseconds(1500),
                                                 std::chrono::milliseconds(3000)};

// Returns whether the collector may take the same batch later, as OTLP says.
bool IsForNow(int code) {
  return code == 429 || code == 502 || code == 503 || code == 504;
}

}  // namespace

SpanExporter::SpanExporter(const TraceOptions& options)
    : url_(options.Url()), service_(options.service_name), queue_(options.sampling_ratio) {
  QUIRE_CHECK(options.is_on());
  thread_ = std::thread([this] { Run(); });
}

SpanExporter::~SpanExporter() {
  queue_.Close();
  thread_.join();
}

void SpanExporter::Run() {
  LowerPriorityOfThread();
  while (true) {
    const std::vector<Span> spans = queue_.Take(kLinger);
    if (spans.empty()) return;
    const std::string body = OtlpJson(service_, spans);
    std::string reason;
    bool is_taken = false;
    bool may_retry = true;
    for (size_t attempt = 0; may_retry && !is_taken; ++attempt) {
      const absl::StatusOr<HttpAnswer> answer = client_.Call({.method = "POST",
                                                              .url = url_,
                                                              .headers = {"Content-Type: application/json"},
                                                              .body = body,
                                                              .timeout = kSendTimeout});
      is_taken = answer.ok() && answer->code / 100 == 2;
      if (is_taken) break;
      reason = answer.ok() ? absl::StrCat("HTTP code ", answer->code) : std::string(answer.status().message());
      may_retry =
          (!answer.ok() || IsForNow(answer->code)) && attempt < std::size(kPauses) && queue_.Pause(kPauses[attempt]);
    }
    is_taken ? queue_.CountExported(spans.size()) : queue_.CountDropped(spans.size());
    NoteResult(is_taken, reason);
    // At the end of the process, a collector that takes nothing is not waited for once more.
    if (!is_taken && !queue_.Pause(std::chrono::milliseconds(0))) return;
  }
}

void SpanExporter::NoteResult(bool is_taken, const std::string& reason) {
  if (std::exchange(is_taken_, is_taken) == is_taken) return;
  if (is_taken) {
    QUIRE_LOG(kInfo) << "the collector " << Named("collector", url_) << " takes spans again";
  } else {
    QUIRE_LOG(kWarning) << "the collector " << Named("collector", url_)
                        << " takes no spans, which are dropped: " << reason;
  }
}

}  // namespace quire
