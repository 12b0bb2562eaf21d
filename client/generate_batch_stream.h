#ifndef QUIRE_CLIENT_GENERATE_BATCH_STREAM_H_
#define QUIRE_CLIENT_GENERATE_BATCH_STREAM_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire {

// One running GenerateBatch call: many requests, told apart by tags that the caller chooses. Destruction ends the call;
// the server frees its blocks in the next step. One thread at a time reads, by Next and then Finish; everything else
// may be called from any thread, also meanwhile.
class GenerateBatchStream {
 public:
  explicit GenerateBatchStream(v1::InferenceService::Stub* stub);
  ~GenerateBatchStream();

  // Starts a request, which ends by `timeout`. INVALID_ARGUMENT, and nothing is sent, when a string of it is not UTF-8;
  // UNAVAILABLE when the stream is over. May wait until somebody calls Next: the server reads no further while as many
  // requests as it allows have ended and their ends are unread. A thread that writes and reads in turns must therefore
  // not start more requests than `max_batch_requests` (1024 by default) ahead of what it has read.
  absl::Status Start(uint64_t tag, const v1::GenerateRequest& request,
                     absl::Duration timeout = absl::InfiniteDuration());

  // Ends a request; UNAVAILABLE when the stream is over. May wait as Start.
  absl::Status CancelRequest(uint64_t tag);

  // No more requests: the stream ends when all have.
  void HalfClose();

  // Waits for the next entries. Returns false at the end of the stream; then Finish says how it ended.
  bool Next(v1::GenerateBatchResponse* response);

  // How the stream ended; the same at every call. REQUIRES: Next has returned false, or Cancel was called.
  absl::Status Finish();

  void Cancel() { context_.TryCancel(); }

 private:
  absl::Status Write(const v1::GenerateBatchRequest& message);

  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::GenerateBatchRequest, v1::GenerateBatchResponse>> stream_;
  std::optional<absl::Status> end_;
  std::mutex write_mutex_;
  bool has_half_closed_ = false;  // Guarded by write_mutex_.
};

}  // namespace quire

#endif  // QUIRE_CLIENT_GENERATE_BATCH_STREAM_H_
