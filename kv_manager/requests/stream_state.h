// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_STREAM_STATE_H_
#define QUIRE_KV_MANAGER_REQUESTS_STREAM_STATE_H_

#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/requests/stream_positions.h"
#include "kv_manager/requests/stream_record.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/step_plan.h"

namespace quire {

class ResponseWriter;

// The client of a stream: where its responses go.
struct StreamReader {
  ResponseWriter* writer = nullptr;                      // Borrowed until its EndCall. Null: there is no client.
  std::function<void(std::function<void()>)> run_later;  // Runs a job on a text thread.
  uint64_t id = 0;                                       // Id of the call. Later calls have larger ones.
};

// Decides what a TokenStream does next. It is pure: it has no mutex, no thread and no clock, and it calls nobody. Its
// functions take an event and return what the stream has to do. The stream guards it with its mutex.
//
// A stream has at most one job, which is scheduled or runs. The job reads what the engine has told, and makes all
// changes of the reader. It asks Next what to do, does it without the mutex, and asks again.
class StreamState {
 public:
  // The life of a stream. A phase is followed only by phases below it.
  enum class Phase {
    kRunning,  // Events come from the engine.
    kEnded,    // Later events are dropped. Readers still get what the engine has told before.
    kClosing,  // Nobody gets anything more. The reader is told when its write under way is over.
    kDropped,  // The same, but the reader is told at once.
    kOver,     // The reader was told. Nothing follows.
  };

  // What the stream has to do after an event.
  struct Actions {
    bool limits_write = false;    // ResponseWriter::LimitWrite, before the mutex is released.
    bool cancels = false;         // Engine::Cancel.
    bool schedules_job = false;   // Where the reader wants it.
    bool finishes_write = false;  // Only of OnWritten: begin the next response, and let Rest decide about a job.
  };

  // The parts of a stream that only its job uses.
  struct Content {
    bool has_next = false;    // There is a response to send.
    bool is_last = false;     // The last one.
    bool has_end = false;     // The responses have come to their end.
    bool has_unread = false;  // The record has events that this reader has not got.
  };

  // What the job does next.
  struct Step {
    enum class Kind {
      kAttach,       // Begin with a new reader. The job ends, and the next one runs where this reader wants it.
      kDetach,       // The reader has left.
      kFinishWrite,  // Begin the next response.
      kRead,         // Read the events and what the record has.
      kWrite,        // Write the next response.
      kSkip,         // Nobody reads the next response.
      kEnd,          // Tell the end of the responses. See OnTold.
      kClose,        // Tell the end of everything. See OnTold.
      kWait,         // The job is over. The next event begins another one.
    };
    Kind kind = Kind::kWait;
    ResponseWriter* writer = nullptr;                                      // kWrite. kAttach and kDetach: the old one.
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> received = {};  // kAttach: the new client has this.
    absl::Status status = {};                                              // kDetach and kClose: the call ends with it.
    StreamEvents events = {};                                              // kRead.
    bool is_followed = false;                                              // kDetach: a new reader waits already.
    Actions actions = {};
  };

  // The receivers of the end.
  struct Told {
    bool is_first = false;             // Nobody was told before.
    ResponseWriter* writer = nullptr;  // Null: there is no reader.
  };

  StreamState(StreamPositions positions, size_t max_outbox_tokens, bool is_resumable, StreamReader reader);

  // Events of the engine. `events` has no token.
  Actions OnEvents(StreamEvents events);
  // An outbox that is full ends the call of a reader that is slow. Without a record, and when no job makes room, it
  // ends the request.
  Actions OnToken(int sample_index, int position, ScoredToken token);

  // Events of clients. See the functions of TokenStream.
  absl::StatusOr<Actions> Attach(StreamReader reader, google::protobuf::RepeatedPtrField<v1::ReceivedSample> received);
  Actions Close(uint64_t reader_id, bool ends_request);
  Actions Drop(absl::Status status);
  // Returns nothing, and changes nothing, when another call has come.
  std::optional<Actions> CloseIfAlone(uint64_t reader_id);
  // Nobody gets anything more, and the call ends with this status.
  Actions GiveUp(absl::Status status);
  Actions OnWritten(uint64_t reader_id, bool ok);

  // The job calls these.
  Step Next(const Content& content);
  // Returns true when there is nothing to do. Then the job is over.
  bool Rest(const Content& content);
  // The stream has found its end. Returns true when the engine has to know, because nobody was told before.
  bool StopGeneration();
  // There is no memory to keep these events. They wait, and are taken, while a reader gets the record or a new one
  // comes. Otherwise the stream is not resumable any more, and ends if it has no reader.
  enum class Loss { kWaits, kForgets, kEnds };
  Loss OnNoMemory(StreamEvents* events, bool has_unread);
  // The end is being told: there is no reader any more. Without a record (`is_kept` is false), the stream is over.
  Told OnTold(bool is_kept);

  Phase phase() const { return phase_; }
  bool is_running() const { return phase_ == Phase::kRunning; }
  const StreamReader& reader() const { return client_.reader; }
  StreamPositions& positions() { return positions_; }
  const StreamPositions& positions() const { return positions_; }

 private:
  enum class Write { kNone, kUnderWay, kDone, kFailed };

  struct Client {
    StreamReader reader;
    Write write = Write::kNone;
    bool is_limited = false;  // LimitWrite was called.
  };

  // A change of the reader.
  struct Change {
    StreamReader reader;                                              // The new one, unless `leaver` is set.
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;  // The new one has received them.
    std::optional<uint64_t> leaver;                                   // The call that has lost its client.
    absl::Status status;                                              // That call ends with it.
  };

  Step::Kind Choose(const Content& content) const;
  // A new reader waits.
  bool HasAttach() const;
  // A job is needed, unless there is one or OnWritten is going to begin one.
  Actions Note();
  // The job ends this call.
  Actions NoteLeaver(uint64_t reader_id, absl::Status status);
  bool TakeJob() { return !std::exchange(has_job_, true); }
  bool LimitWrite() { return phase_ != Phase::kRunning && !std::exchange(client_.is_limited, true); }
  // No job runs before the reader has got its response.
  bool is_waiting() const { return !has_job_ && client_.write == Write::kUnderWay; }

  const size_t max_outbox_tokens_;
  StreamPositions positions_;
  StreamEvents outbox_;  // Events that wait for the job.
  std::deque<Change> changes_;
  Client client_;
  uint64_t newest_reader_id_;
  Phase phase_ = Phase::kRunning;
  absl::Status close_status_;  // From kClosing on.
  bool has_job_ = false;
  bool is_resumable_;
  bool is_told_ = false;  // A reader, or the keeper, knows the end of the responses.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_STREAM_STATE_H_
