// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_GENERATE_STREAMS_H_
#define QUIRE_CLIENT_LIBRARY_GENERATE_STREAMS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/library/client.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Many running Generate calls, one for each request, that one thread reads. Each is a GenerateStream: it finds the
// manager that leads, and resumes. Tags that the caller chooses tell them apart. The thread in Next also reads the
// connection, so a response reaches the caller without another thread and without a wake-up of its own when several
// come together. A stream that has lost its connection has a thread of its own until it continues, so it does not hold
// up the others. Destruction ends the calls. Only one thread at a time may call Next. All other functions may be called
// from any thread at any time.
class GenerateStreams {
 public:
  // Tells what has happened to one of the calls.
  struct Event {
    uint64_t tag = 0;
    v1::GenerateResponse response;    // The next one, unless `end` is set.
    std::optional<absl::Status> end;  // How the call has ended. No more events have its tag.
  };

  // Borrows `links`.
  explicit GenerateStreams(ManagerLinks* links);
  ~GenerateStreams();
  GenerateStreams(const GenerateStreams&) = delete;
  GenerateStreams& operator=(const GenerateStreams&) = delete;

  // Starts a call. `timeout` limits the whole call, from the first to the last token.
  // REQUIRES: no call with this tag runs, and HalfClose was not called.
  void Start(uint64_t tag, const v1::GenerateRequest& request, absl::Duration timeout);

  // No more calls are started.
  void HalfClose();

  // Waits for the next event of any call. Returns false when all calls have ended after HalfClose.
  bool Next(Event* event);

  // Ends one call, if it is running, or all of them. Their last events follow.
  void Cancel(uint64_t tag);
  void CancelAll();

 private:
  struct Call;

  // Starts the call of the stream, or ends it if it cannot be sent.
  void Begin(Call* call);
  // Finishes the call of the stream, whose status is the next event.
  static void Finish(Call* call);
  // The call of the stream has ended: starts the next one, or tells Next that there is none.
  void Continue(Call* call);
  // Lets the event of the end come.
  void TellEnd(Call* call);
  // Handles an event of the queue. Returns true when there is something to tell.
  bool Handle(Call* call, bool ok, Event* event);
  void End(Call* call, Event* event) QUIRE_EXCLUDES(mutex_);
  void ShutDownIfOver() QUIRE_REQUIRES(mutex_);

  ManagerLinks* const links_;
  grpc::CompletionQueue queue_;

  Mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<Call>> calls_ QUIRE_GUARDED_BY(mutex_);  // The key is the tag.
  bool has_half_closed_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_shut_down_ QUIRE_GUARDED_BY(mutex_) = false;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_GENERATE_STREAMS_H_
