// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/stream_position.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

constexpr size_t kMaxIdBytes = 8 << 10;
constexpr char kChat[] = "chat.";

bool IsTokenCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
}

}  // namespace

std::optional<StreamPosition> StreamPosition::Parse(absl::string_view id, bool is_chat) {
  if (is_chat && !absl::ConsumePrefix(&id, kChat)) return std::nullopt;
  const size_t colon = id.find(':');
  if (id.size() > kMaxIdBytes || colon == id.npos || colon == 0) return std::nullopt;
  StreamPosition position;
  position.token_ = std::string(id.substr(0, colon));
  if (!std::all_of(position.token_.begin(), position.token_.end(), IsTokenCharacter)) return std::nullopt;
  for (absl::string_view part : absl::StrSplit(id.substr(colon + 1), ',', absl::SkipEmpty())) {
    v1::ReceivedSample sample;
    sample.set_has_finish(absl::ConsumeSuffix(&part, "f"));
    if (const size_t mark = part.find('c'); mark != part.npos) {
      uint32_t change = 0;
      if (!absl::SimpleAtoi(part.substr(mark + 1), &change)) return std::nullopt;
      sample.set_numerics_changed_at(change);
      part = part.substr(0, mark);
    }
    const std::vector<absl::string_view> numbers = absl::StrSplit(part, '.');
    uint32_t index = 0;
    uint32_t next = 0;
    if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &index) || !absl::SimpleAtoi(numbers[1], &next)) {
      return std::nullopt;
    }
    sample.set_index(index);
    sample.set_next_position(next);
    if (!position.samples_.emplace(index, sample).second) return std::nullopt;
  }
  return position;
}

void StreamPosition::Note(const v1::GenerateResponse& response) {
  if (!response.resume_token().empty()) token_ = response.resume_token();
  v1::ReceivedSample& sample = samples_[response.index()];
  sample.set_index(response.index());
  sample.set_next_position(response.position() + static_cast<uint32_t>(response.token_ids_size()));
  sample.set_has_finish(response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED);
  if (response.has_numerics_changed_at()) sample.set_numerics_changed_at(response.numerics_changed_at());
}

std::string StreamPosition::Id(bool is_chat) const {
  std::string id = absl::StrCat(is_chat ? kChat : "", token_, ":");
  for (const auto& [index, sample] : samples_) {
    absl::StrAppend(&id, id.back() == ':' ? "" : ",", index, ".", sample.next_position());
    if (sample.has_numerics_changed_at()) absl::StrAppend(&id, "c", sample.numerics_changed_at());
    if (sample.has_finish()) id += "f";
  }
  return id;
}

v1::ResumeRequest StreamPosition::Resume() const {
  v1::ResumeRequest request;
  request.set_resume_token(token_);
  for (const auto& [index, sample] : samples_) *request.add_received() = sample;
  return request;
}

}  // namespace quire
