// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/recorded_stream.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace quire {
namespace {

constexpr absl::Duration kCallTimeout = absl::Minutes(2);

}  // namespace

void RecordedStream::Run(Client* client, const v1::GenerateRequest& request, const OnToken& on_token) {
  const std::unique_ptr<GenerateStream> call = client->Generate(request, kCallTimeout);
  v1::GenerateResponse response;
  while (call->Next(&response)) {
    if (response.token_ids_size() > 0) arrivals_.push_back(absl::Now());
    Take(response);
    if (response.index() == 0 && response.token_ids_size() > 0) {
      num_tokens_ += response.token_ids_size();
      on_token(num_tokens_);
    }
  }
  status_ = call->Finish();
  is_over_ = true;
}

std::string RecordedStream::Content() const {
  std::string content;
  for (const Sample& sample : samples_) {
    absl::StrAppend(&content, sample.merged.ShortDebugString(), "\n", sample.text, "\n", sample.num_gaps, " gaps\n");
  }
  absl::StrAppend(&content, usage_.ShortDebugString(), " ", num_usages_, " times\n");
  return content;
}

std::string FirstDifference(absl::string_view recorded, absl::string_view now) {
  constexpr size_t kBefore = 200, kShown = 400;
  const auto end = std::mismatch(recorded.begin(), recorded.end(), now.begin(), now.end());
  const size_t at = static_cast<size_t>(end.first - recorded.begin());
  const size_t first = at - std::min(at, kBefore);
  const auto part = [&](absl::string_view text) { return absl::ClippedSubstr(text, first, kShown); };
  return absl::StrCat("byte ", at, " is the first one that differs; it was\n  ", part(recorded), "\nand is\n  ",
                      part(now));
}

absl::Duration RecordedStream::GapAfter(absl::Time start) const {
  absl::Duration longest;
  absl::Time last = start;
  for (const absl::Time arrival : arrivals_) {
    if (arrival <= start) last = arrival;
  }
  for (const absl::Time arrival : arrivals_) {
    if (arrival <= start) continue;
    longest = std::max(longest, arrival - last);
    last = arrival;
  }
  return longest;
}

void RecordedStream::Take(const v1::GenerateResponse& response) {
  if (samples_.size() <= response.index()) samples_.resize(response.index() + 1);
  Sample& sample = samples_[response.index()];
  sample.text += response.text_delta();
  const uint32_t first = sample.merged.position();
  const bool is_first = sample.merged.token_ids_size() == 0;
  const uint32_t next = first + static_cast<uint32_t>(sample.merged.token_ids_size());
  if (!is_first && response.token_ids_size() > 0) sample.num_gaps += response.position() != next;
  sample.merged.MergeFrom(response);
  if (!is_first) sample.merged.set_position(first);
  sample.merged.clear_text_delta();
  sample.merged.clear_request_id();
  // Each call of Resume begins with these two, in the response of any sample.
  sample.merged.clear_resume_token();
  sample.merged.clear_numerics_fingerprint();
  // The sample that ends last has the usage of all. When samples have moved to another worker, that may be another one.
  if (response.has_usage()) {
    usage_ = response.usage();
    usage_.clear_cached_tokens();
    ++num_usages_;
  }
  sample.merged.clear_usage();
}

}  // namespace quire
