// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_GENERATE_BATCH_STREAM_H_
#define QUIRE_CLIENT_LIBRARY_GENERATE_BATCH_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire {

// One running GenerateBatch call: many requests on one stream, told apart by tags that the caller chooses. Destruction
// ends the call; the server frees its blocks in the next step. Only one thread at a time may call Next and Finish. All
// other functions may be called from any thread at any time.
class GenerateBatchStream {
 public:
  explicit GenerateBatchStream(v1::InferenceService::Stub* stub);
  ~GenerateBatchStream();

  // Starts a request, which ends after `timeout` at the latest. INVALID_ARGUMENT, and nothing is sent, when a string of
  // the request is not UTF-8; UNAVAILABLE when the stream is over. May block until another thread calls Next: the
  // server stops reading while `max_batch_requests` requests (see GetModelResponse, 1024 by default) have ended whose
  // ends are unread. A thread that both writes and reads must therefore not start more requests than that ahead of the
  // ends that it has read.
  absl::Status Start(uint64_t tag, const v1::GenerateRequest& request,
                     absl::Duration timeout = absl::InfiniteDuration());

  // Tells the server that no more requests follow. The stream ends when all requests have ended.
  void HalfClose();

  // Waits for the next entries. Returns false at the end of the stream; Finish then returns how it ended.
  bool Next(v1::GenerateBatchResponse* response);

  // Returns how the stream ended, the same at every call. REQUIRES: Next has returned false, or Cancel was called.
  absl::Status Finish();

  void Cancel() { context_.TryCancel(); }

 private:
  absl::Status Write(const v1::GenerateBatchRequest& message);

  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::GenerateBatchRequest, v1::GenerateBatchResponse>> stream_;
  std::optional<absl::Status> end_;
  Mutex write_mutex_;
  bool has_half_closed_ QUIRE_GUARDED_BY(write_mutex_) = false;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_GENERATE_BATCH_STREAM_H_
