// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_TOKEN_STREAM_H_
#define QUIRE_KV_MANAGER_REQUESTS_TOKEN_STREAM_H_

#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kv_manager/engine/engine.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/requests/response_set.h"
#include "kv_manager/requests/stream_errors.h"
#include "kv_manager/requests/stream_record.h"
#include "kv_manager/requests/stream_state.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Says where the responses of one request go: the seam between a TokenStream and gRPC.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  // Starts to write. `response` is valid during the call. TokenStream::OnWritten tells that the write is over.
  virtual void WriteResponse(const v1::GenerateResponse* response) = 0;
  // Generation has ended: from now on the writer cancels the call when the client takes too long to read what is left,
  // so that a client that has stopped reading does not hold its call for ever. Called at most once. It must not call
  // the stream.
  virtual void LimitWrite() = 0;
  // Writes `response` unless it is null, and ends the call. The stream does not use the writer again. A write may still
  // be under way when another call takes the stream over, or when the client has left; then `response` is null.
  virtual void EndCall(const v1::GenerateResponse* response, const absl::Status& status) = 0;
};

// Says how a request ended.
struct StreamEnd {
  std::string finish_reason = "";  // The reasons of its samples, or the name of the status code when it broke off.
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int output_tokens = 0;  // The sum over all samples.
  absl::StatusCode code = absl::StatusCode::kOk;
};

// What the client of a request has of one of its samples, see v1::ContinuedSample.
struct SampleProgress {
  uint32_t index = 0;
  int num_tokens = 0;
  bool has_finish = false;
};

// Keeps a stream that outlives its calls, and decides for how long. Calls come from the jobs of the stream, one at a
// time, without its mutex. Thread-safe.
class StreamKeeper {
 public:
  virtual ~StreamKeeper() = default;

  // A token with which a client can resume the stream.
  virtual std::string MakeResumeToken() = 0;
  // The record of the stream grows by `num_bytes`. Returns false when there is no memory for it.
  virtual bool Grow(int64_t num_bytes) = 0;
  // There is no memory for the record, so it is gone: from now on the stream ends with its call. What follows is
  // OnClosed.
  virtual void OnForgotten() = 0;
  // The stream has a client.
  virtual void OnAttached() = 0;
  // The client has left. Returns false when the stream cannot be kept without one, so that it must end.
  virtual bool OnDetached() = 0;
  // The request has ended, and its client, if there is one, is told next. The stream can still be resumed. `is_ok` is
  // false when the request has failed or was aborted.
  virtual void OnEnded(bool is_ok) = 0;
  // The stream is over for ever. Its client, if there is one, is told next. Nothing follows.
  virtual void OnClosed() = 0;
};

// Carries the tokens of one request from the step loop to one client:
//
//   step loop --OnToken--> outbox --job on a text thread--> response --WriteResponse--> client --OnWritten--> next job
//
// The step loop only queues. Only one job or one write is under way at a time. A job takes everything that is in the
// outbox and makes one response for each sample; these are written one after the other. Tokens that arrive meanwhile
// gather in the outbox, so a slow reader gets fewer and larger responses. A reader so slow that the outbox fills loses
// its request.
//
// A stop string ends its sample here, and the stream tells the engine. Samples end in any order. The engine learns
// later that a stop string has ended a sample. Until then its events may still count this sample. The stream is over
// when all samples have ended by its own account, or when the engine says so.
//
// With a StreamKeeper the stream is resumable: it continues when its client leaves, and another call can take it over
// at any time. It then keeps a StreamRecord, and the new reader gets responses that are made from the record in the
// same way, without what it has already. Jobs make all changes of the reader, so no event comes between the record and
// what follows. Without a reader, jobs still read the events, because they must find stop strings.
//
// StreamState decides what happens next. This class guards it with a mutex, runs the job, and does what it says.
// Thread-safe.
class TokenStream : public RequestSink, public std::enable_shared_from_this<TokenStream> {
 public:
  struct Environment {
    Engine* engine;                                        // Borrowed.
    std::function<void(std::function<void()>)> run_later;  // Runs a job on a text thread when there is no reader.
    // Called once, when the request is over, before its last response is written.
    std::function<void(const StreamEnd&)> on_end;
    size_t max_outbox_tokens;                   // All samples share it; it is at least the tokens of one step.
    std::function<void()> on_tokens = nullptr;  // If set: called on a text thread when tokens have come.
    // If set: called by the step loop, when a worker has got the request, and when it runs for the first time.
    std::function<void(const std::string& worker)> on_placed = nullptr;
    std::function<void()> on_started = nullptr;
    std::shared_ptr<StreamKeeper> keeper = nullptr;  // Null: the stream ends with its client.
    bool is_reachable = true;                        // The client has a name or a token with which it finds the stream.
    // Number of tokens of each sample that an earlier manager may have sent, and that the engine tells again.
    int num_promised_tokens = 0;
  };

  TokenStream(Environment environment, RequestId id, ResponseSet responses, StreamReader reader);

  // The engine tells only `num_tokens` of the promised tokens of each returned sample again. Behind these it may draw
  // other tokens than the client of an earlier manager has received, unless it tells the end of all samples
  // (`is_over`). [num_returned] REQUIRES: nobody else knows the stream.
  void LimitPromise(absl::Span<const int> num_tokens, bool is_over = false);

  // The step loop calls these.
  void OnPlaced(const std::string& worker) override;
  void OnStarted(int num_cached_tokens) override;
  void OnPinned(std::vector<int> num_tokens) override;
  void OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) override;
  void OnToken(int sample_index, int position, ScoredToken token) override;
  void OnNumericsChanged(int sample_index, int position) override;
  void OnFinished(const Finished& finished) override;
  void OnFailed(absl::Status status) override;

  RequestId id() const { return id_; }
  uint64_t seed() const { return seed_; }  // Seed of the first sample.
  // About how much memory the responses before the first event use, if the stream is resumable.
  int64_t num_first_bytes() const { return num_first_bytes_; }

  // Ends generation. The client gets the tokens that are there and FINISH_REASON_ABORT. Returns false when generation
  // had ended already.
  bool Abort();

  // Returns whether generation is over: it has finished, has failed, was aborted, or the client has left.
  bool has_ended() const;

  // Returns whether nobody can read the stream any more, or soon nobody can.
  bool is_closed() const;

  // Returns what the client of an equal request has received of this stream, or of an earlier one, when it has this
  // much.
  google::protobuf::RepeatedPtrField<v1::ReceivedSample> ReceivedOf(absl::Span<const SampleProgress> samples) const;
  // The tokens that the engine has told, of all samples.
  int64_t NumTokens() const;
  // Returns OK when a client that has received this much finds the rest in the stream. INVALID_ARGUMENT when it has
  // what was not sent, or lacks tokens from which the request was continued. NOT_FOUND when it has tokens of an earlier
  // manager that the engine does not tell again, see LimitPromise.
  absl::Status CheckReceived(const google::protobuf::RepeatedPtrField<v1::ReceivedSample>& received) const;

  // A new call takes a resumable stream over; its client has received this much. A call that has the stream ends with
  // ABORTED. On error, the stream does not know the reader: NOT_FOUND when the stream is not kept any more,
  // that of CheckReceived, ABORTED when a newer call has taken the stream.
  absl::Status Attach(StreamReader reader, google::protobuf::RepeatedPtrField<v1::ReceivedSample> received);

  // The client of this call has left, or wants to end the request. Ends the call, and generation, unless the stream is
  // resumable and the client has left. Calls that have lost the stream to another one are ignored, here and in
  // OnWritten.
  void Close(uint64_t reader_id, bool ends_request = false);

  // The client of this call has left before the engine got the request. Ends the stream for ever and returns true,
  // unless another call has taken the stream over, which then needs the request.
  bool CloseIfAlone(uint64_t reader_id);

  // Ends generation, and the call if there is one with this status.
  void Drop(absl::Status status);

  // The write under way is over. `ok` is false when the client has left.
  void OnWritten(uint64_t reader_id, bool ok);

 private:
  using RunLater = std::function<void(std::function<void()>)>;

  // Lets `event` change the state, and does what it returns.
  template <typename Event>
  void Handle(Event event);
  // Where the next job runs. Only the job changes it.
  const RunLater& JobRunner() const QUIRE_REQUIRES(mutex_);
  void Schedule(const RunLater& run_later);
  void Schedule();
  // The job. The rest is called by it.
  void Run();
  StreamState::Content content() const;

  // There is a new reader instead of that of `old`.
  void StartReader(ResponseWriter* old, const google::protobuf::RepeatedPtrField<v1::ReceivedSample>& received);
  // The call of `old` ends with `status`, and there is no reader any more, unless a new one waits already.
  void EndReader(ResponseWriter* old, const absl::Status& status, bool is_followed);
  // Adds a batch to the record, if there is one, and reads what comes next. Adds to `num_tokens` how many tokens of the
  // record it has read. Returns the status as Read does.
  std::optional<absl::Status> ReadNext(StreamEvents batch, size_t* num_tokens);
  // Reads a batch of events into the responses. Returns the status of the call when the batch ends it.
  std::optional<absl::Status> Read(const StreamEvents& batch);
  // Tells the engine which samples stop strings have ended. Returns true when no sample is left.
  bool StopSamples(const std::vector<int>& sample_indices);
  // The engine generates nothing more for the stream, and what it has told since is dropped.
  void StopGeneration(FinishReason reason);
  // Nobody gets anything more.
  void GiveUp(absl::Status status);
  // The responses have come to their end, of which `response` is the last, or everything has.
  void End(const v1::GenerateResponse* response, const absl::Status& status);

  const Environment environment_;
  const RequestId id_;
  const size_t max_outbox_tokens_;
  const uint64_t seed_;
  const int num_prompt_tokens_;
  const int64_t num_first_bytes_;

  mutable Mutex mutex_;
  StreamState state_ QUIRE_GUARDED_BY(mutex_);

  // Used by the job, and by OnWritten in its place.
  std::optional<ResponseSet> responses_;  // Set, except between the end and another reader.
  std::optional<StreamRecord> record_;    // Set while the stream is resumable.
  std::optional<absl::Status> status_;    // The status of the call, once the responses have come to their end.
  std::vector<bool> is_stopped_;          // [num_samples]: the engine was told that a stop string has ended the sample.
  bool is_reachable_;                     // The client can have a name or a token with which it finds the stream.
  bool has_ended_well_ = false;  // When it was told first: the request has not failed, and no sample was aborted.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_TOKEN_STREAM_H_
