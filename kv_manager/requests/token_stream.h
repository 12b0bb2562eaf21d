#ifndef QUIRE_KV_MANAGER_REQUESTS_TOKEN_STREAM_H_
#define QUIRE_KV_MANAGER_REQUESTS_TOKEN_STREAM_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kv_manager/engine/engine.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/requests/response_set.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Where the responses of one request go: the seam between a TokenStream and gRPC.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  // Starts to write. `response` stays as it is until TokenStream::OnWritten tells that the write is over.
  virtual void WriteResponse(const v1::GenerateResponse* response) = 0;
  // Generation has ended: from now on the writer cancels the call when the client takes too long to read what is left,
  // so that a client that has stopped reading does not hold its call for ever. Called at most once. It must not call
  // the stream.
  virtual void LimitWrite() = 0;
  // Writes `response` unless it is null, and ends the request. The stream does not use the writer again.
  virtual void EndCall(const v1::GenerateResponse* response, const absl::Status& status) = 0;
};

// How a request ended.
struct StreamEnd {
  std::string finish_reason;  // The reasons of its samples, or the name of the status code when it broke off.
  int prompt_tokens;
  int cached_tokens;
  int output_tokens;  // The sum over all samples.
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
// when all samples have ended by its own account, or when the engine says so. Thread-safe.
class TokenStream : public RequestSink, public std::enable_shared_from_this<TokenStream> {
 public:
  struct Environment {
    Engine* engine;                                        // Borrowed.
    std::function<void(std::function<void()>)> run_later;  // Runs a job on a text thread.
    // Called once, when the request is over, before its last response is written.
    std::function<void(const StreamEnd&)> on_end;
    size_t max_outbox_tokens;                   // For all samples together; at least the tokens of one step.
    std::function<void()> on_tokens = nullptr;  // If set: called on a text thread when tokens have come.
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

  // Ends generation. The client gets the tokens that are there and FINISH_REASON_ABORT. Returns false when generation
  // had ended already.
  bool Abort();

  // Whether generation is over: it has finished, has failed, was aborted, or the client has left.
  bool has_ended() const;

  // The client has left: ends generation and the call.
  void Close();

  // The write under way is over. `ok` is false when the client has left.
  void OnWritten(bool ok);

 private:
  // Whether events still come from the engine.
  enum class Generation {
    kRunning,  // Events are put into the outbox.
    kEnded,    // Later events are dropped; the client still gets what the outbox has.
    kClosed,   // The client has left: the outbox is dropped, too.
  };

  // Which thread may use the members that no mutex guards.
  enum class Delivery {
    kIdle,     // Nobody. The outbox is empty.
    kJob,      // The job on a text thread, which is scheduled or runs.
    kWriting,  // The writer has a response; then OnWritten.
    kOver,     // Nobody: EndCall was called or is about to be.
  };

  struct SampleToken {
    int sample_index;
    ScoredToken token;
  };

  // Events that wait for a job, to be read in the order of the members.
  struct Outbox {
    std::optional<int> num_cached_tokens;
    std::vector<std::pair<int, std::vector<ScoredToken>>> prompt_logprobs;  // First position and tokens.
    std::vector<SampleToken> tokens;                                        // At consecutive positions of each sample.
    std::vector<Finished> finished;
    std::optional<absl::Status> end;  // If it is OK, the samples that have not finished were aborted.

    bool empty() const { return prompt_logprobs.empty() && tokens.empty() && finished.empty() && !end.has_value(); }
  };

  // Lets `add` put an event into the outbox, and makes sure that a job takes it out. Returns false when generation had
  // ended.
  template <typename Add>
  bool Post(Add add);
  // An event was put into the outbox. Returns true when the caller must schedule a job.
  bool TakeNote() QUIRE_REQUIRES(mutex_);

  void ScheduleRun();
  // The job: writes a response, or turns the outbox into responses, until there is nothing to do or a write is under
  // way.
  void Run();
  // Writes the next response; the job is over.
  void Write();
  // Returns false when there is something to do.
  bool BecomeIdle();

  // Reads a batch of events into the responses. Returns the status of the call when the batch ends it.
  std::optional<absl::Status> Read(const Outbox& batch);
  // Tells the engine which samples stop strings have ended. Returns true when no sample is left.
  bool StopSamples(const std::vector<int>& sample_indices);
  void EndCall(const v1::GenerateResponse* response, const absl::Status& status);
  void LimitWrites() QUIRE_REQUIRES(mutex_);

  const Environment environment_;
  const RequestId id_;
  const size_t max_outbox_tokens_;
  ResponseWriter* const writer_;  // Borrowed until EndCall.

  mutable Mutex mutex_;
  Outbox outbox_ QUIRE_GUARDED_BY(mutex_);
  std::vector<int> next_positions_ QUIRE_GUARDED_BY(mutex_);  // [num_samples]: of the next token from the step loop.
  Generation generation_ QUIRE_GUARDED_BY(mutex_) = Generation::kRunning;
  Delivery delivery_ QUIRE_GUARDED_BY(mutex_) = Delivery::kIdle;
  bool has_limited_writes_ QUIRE_GUARDED_BY(mutex_) = false;

  // Used by the one that delivery_ names.
  ResponseSet responses_;
  std::optional<absl::Status> status_;  // The status of the call, once it is known.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_TOKEN_STREAM_H_
