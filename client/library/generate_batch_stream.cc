// SPDX-License-Identifier: Apache-2.0

#include "client/library/generate_batch_stream.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "client/library/client.h"
#include "client/library/utf8.h"

namespace quire {

GenerateBatchStream::GenerateBatchStream(v1::InferenceService::Stub* stub) : stream_(stub->GenerateBatch(&context_)) {}

GenerateBatchStream::~GenerateBatchStream() {
  if (end_.has_value()) return;
  context_.TryCancel();
  stream_->Finish();
}

absl::Status GenerateBatchStream::Start(uint64_t tag, const v1::GenerateRequest& request, absl::Duration timeout) {
  QUIRE_RETURN_IF_ERROR(CheckUtf8Fields(request));
  v1::GenerateBatchRequest message;
  message.set_tag(tag);
  *message.mutable_start() = request;
  if (timeout != absl::InfiniteDuration()) {
    message.set_timeout_ms(std::max<int64_t>(absl::ToInt64Milliseconds(timeout), 0));
  }
  return Write(message);
}

absl::Status GenerateBatchStream::Write(const v1::GenerateBatchRequest& message) {
  const MutexLock lock(&write_mutex_);
  if (!has_half_closed_ && stream_->Write(message)) return absl::OkStatus();
  return absl::UnavailableError("the stream is over");
}

void GenerateBatchStream::HalfClose() {
  const MutexLock lock(&write_mutex_);
  if (!std::exchange(has_half_closed_, true)) stream_->WritesDone();
}

bool GenerateBatchStream::Next(v1::GenerateBatchResponse* response) {
  return stream_->Read(response);
}

absl::Status GenerateBatchStream::Finish() {
  if (!end_.has_value()) end_ = FromGrpcStatus(stream_->Finish());
  return *end_;
}

}  // namespace quire
