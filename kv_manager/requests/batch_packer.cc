// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/batch_packer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_reason.h"

namespace quire {
namespace {

// Upper bound of the bytes that a message has besides its entries, and that an entry takes besides its own bytes.
constexpr size_t kEnvelopeBytes = 16;
// Of larger entries the memory is counted, which is several times their bytes if they have logprobs.
constexpr size_t kSmallEntryBytes = 4 << 10;

}  // namespace

absl::Status BatchPacker::CheckSize(const v1::GenerateBatchEntry& entry) const {
  const size_t num_bytes = entry.ByteSizeLong() + kEnvelopeBytes;
  if (num_bytes <= max_message_bytes_) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat("a response of ", num_bytes, " bytes, the limit is ", max_message_bytes_)),
                    "RESPONSE_TOO_LARGE", {{"max_message_bytes", absl::StrCat(max_message_bytes_)}});
}

BatchPacker::Message& BatchPacker::Add(v1::GenerateBatchEntry entry, OnWritten on_written) {
  const size_t num_bytes = entry.ByteSizeLong() + kEnvelopeBytes;
  const size_t limit = std::min(kMessageBytes, max_message_bytes_);
  if (waiting_.empty() || waiting_.back().num_bytes + num_bytes > limit) waiting_.emplace_back();
  Message& message = waiting_.back();
  message.num_bytes += num_bytes;
  const size_t num_memory_bytes = num_bytes > kSmallEntryBytes ? entry.SpaceUsedLong() : num_bytes;
  message.num_memory_bytes += static_cast<int64_t>(num_memory_bytes);
  num_unread_bytes_ += static_cast<int64_t>(num_memory_bytes);
  *message.response.add_entries() = std::move(entry);
  message.on_written.push_back(std::move(on_written));
  return message;
}

void BatchPacker::AddResponse(v1::GenerateBatchEntry entry, OnWritten on_written) {
  Add(std::move(entry), std::move(on_written));
}

void BatchPacker::AddEnd(v1::GenerateBatchEntry entry, OnWritten on_written) {
  ++Add(std::move(entry), std::move(on_written)).num_ends;
  ++num_unread_ends_;
}

const v1::GenerateBatchResponse* BatchPacker::StartWrite() {
  if (is_writing() || waiting_.empty()) return nullptr;
  written_ = std::move(waiting_.front());
  waiting_.pop_front();
  return &written_->response;
}

std::vector<BatchPacker::OnWritten> BatchPacker::FinishWrite() {
  QUIRE_CHECK(is_writing());
  num_unread_ends_ -= written_->num_ends;
  num_unread_bytes_ -= written_->num_memory_bytes;
  std::vector<OnWritten> on_written = std::move(written_->on_written);
  written_.reset();
  return on_written;
}

std::vector<BatchPacker::OnWritten> BatchPacker::DropWaiting() {
  std::vector<OnWritten> on_written;
  for (Message& message : waiting_) {
    num_unread_ends_ -= message.num_ends;
    num_unread_bytes_ -= message.num_memory_bytes;
    std::move(message.on_written.begin(), message.on_written.end(), std::back_inserter(on_written));
  }
  waiting_.clear();
  return on_written;
}

}  // namespace quire
