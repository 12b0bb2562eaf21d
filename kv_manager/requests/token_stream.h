#ifndef QUIRE_KV_MANAGER_REQUESTS_TOKEN_STREAM_H_
#define QUIRE_KV_MANAGER_REQUESTS_TOKEN_STREAM_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/engine/engine.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/requests/response_set.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Where the responses of one call go: the seam between a TokenStream and gRPC.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  // Starts to write; TokenStream::OnWritten tells the end, and `response` stays as it is until then.
  virtual void WriteResponse(const v1::GenerateResponse* response) = 0;
  // Generation has ended: cancels the call unless the writes that are left are over in good time, so that a client that
  // has stopped reading does not hold its call for ever. Called once at most. Does not call the stream.
  virtual void LimitWrite() = 0;
  // Writes `response` if it is not null, and ends the call. The stream does not use the writer again.
  virtual void EndCall(const v1::GenerateResponse* response, const absl::Status& status) = 0;
};

// How a request ended.
struct StreamEnd {
  std::string finish_reason;  // Of its samples; the status code's name when it broke off.
  int prompt_tokens;
  int cached_tokens;
  int output_tokens;  // Of all samples.
};

// Carries the tokens of one request from the step loop to one client:
//
//   step loop --OnToken--> outbox --job on a text thread--> response --WriteResponse--> client --OnWritten--> next job
//
// The step loop only queues. One job or write is under way at a time. A job takes all that is in the outbox and makes
// one response of it for each sample, which are then written one after the other; what arrives meanwhile gathers in the
// outbox, so a slow reader gets fewer and larger responses. A reader so slow that the outbox fills loses its request.
//
// A stop string ends its sample here, and the engine is told. Samples end in any order, and the engine may not know of
// an end that was found here when it reports another: the stream is over when all have ended by its own account, or
// when the engine says so. Thread-safe.
class TokenStream : public RequestSink, public std::enable_shared_from_this<TokenStream> {
 public:
  struct Environment {
    Engine* engine;                                        // Outlives the call.
    std::function<void(std::function<void()>)> run_later;  // Runs a job on a text thread.
    // Called once, when the request is over and before its last response is written.
    std::function<void(const StreamEnd&)> on_end;
    size_t max_outbox_tokens;                   // Of all samples together; at least what one step brings.
    std::function<void()> on_tokens = nullptr;  // If set: called when tokens have come, on a text thread.
  };

  // `writer` lives until the call of its EndCall.
  TokenStream(Environment environment, RequestId id, ResponseSet responses, ResponseWriter* writer);

  // From the step loop.
  void OnStarted(int num_cached_tokens) override;
  void OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) override;
  void OnToken(int sample_index, int position, ScoredToken token) override;
  void OnFinished(const Finished& finished) override;
  void OnFailed(absl::Status status) override;

  RequestId id() const { return id_; }

  // Ends generation; the client gets what is there and FINISH_REASON_ABORT. Returns false when it had ended already.
  bool Abort();

  // Generation is over: it finished, failed, was aborted, or the client has left.
  bool has_ended() const;

  // The client has left: ends generation and the call.
  void Close();

  // The write under way is over; not ok: the client has left.
  void OnWritten(bool ok);

 private:
  struct SampleToken {
    int sample_index;
    ScoredToken token;
  };

  // Events that wait, in the order of the members.
  struct Outbox {
    std::optional<int> num_cached_tokens;
    std::vector<std::pair<int, std::vector<ScoredToken>>> prompt_logprobs;  // First position and tokens.
    std::vector<SampleToken> tokens;                                        // Of a sample, at consecutive positions.
    std::vector<Finished> finished;
    std::optional<absl::Status> end;  // What has not finished was aborted if it is OK.

    bool empty() const { return prompt_logprobs.empty() && tokens.empty() && finished.empty() && !end.has_value(); }
  };

  // Lets `add` put something into the outbox and sees that a job takes it out. Returns false when generation had ended.
  template <typename Add>
  bool Post(Add add);

  void ScheduleRun();
  // The job: writes what is there, or turns the outbox into responses, until there is nothing to do or a write is under
  // way.
  void Run();
  // Reads a batch into the responses. Returns the status of the call when it ends with this batch.
  std::optional<absl::Status> Read(const Outbox& batch);
  // Tells the engine which samples stop strings have ended. Returns true when these were the last.
  bool StopSamples(const std::vector<int>& sample_indices);
  void TellEnd(const absl::Status& status);
  void LimitWrites();  // REQUIRES: mutex_ is held.

  const Environment environment_;
  const RequestId id_;
  const size_t max_outbox_tokens_;

  mutable std::mutex mutex_;
  Outbox outbox_;                    // Guarded by mutex_, as all up to is_busy_.
  std::vector<int> next_positions_;  // Of each sample's next token from the step loop.
  bool is_ended_ = false;            // Generation is over; later events are dropped.
  bool is_closed_ = false;           // The client has left.
  bool is_writing_ = false;          // The writer has a response; it stays alive at least as long.
  bool is_limited_ = false;          // The writer was told to limit the writes.
  bool is_busy_ = false;             // A job is scheduled or runs, or a write is under way, or the call is over.

  ResponseSet responses_;               // Used by whoever made is_busy_ true, as all below.
  std::optional<absl::Status> status_;  // Of the call, once it is known.
  ResponseWriter* const writer_;        // Not owned.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_TOKEN_STREAM_H_
