// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_POLICY_CALL_POLICY_H_
#define QUIRE_CLIENT_POLICY_CALL_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "google/rpc/status.pb.h"

namespace quire {

// What is known of a call before it is made.
struct CallRequest {
  size_t num_managers = 1;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Duration resume_time = absl::InfiniteDuration();  // Longest time of attempts without progress.
  bool is_stream = false;                                 // Otherwise, the call can be made twice without harm.
  // Only for streams: facts of the GenerateRequest.
  bool has_on_disconnect = false;  // Whether on_disconnect is set.
  bool is_detachable = false;      // ON_DISCONNECT_DETACH.
  bool is_named = false;
  bool is_continued = false;  // continue_from is set.
  bool is_ranked = false;     // A beam search, or best_of above n.
  bool has_prompt_logprobs = false;
};

// What to do after a call has failed.
struct CallAction {
  enum class Kind {
    kStop,
    kAgain,                // Make the call again.
    kAskNext,              // The same, to look for the manager that leads.
    kResume,               // Resume the stream with its last token.
    kContinue,             // Send the request as a new one, with continue_from.
    kWithoutOnDisconnect,  // Send the request again without on_disconnect.
  };

  Kind kind = Kind::kStop;
  absl::Duration delay = absl::ZeroDuration();  // Time to wait before the next call.
  bool leaves = false;                          // Later calls go to the next manager.
  google::rpc::Status error = {};               // What to tell the caller if no other call is made.
};

// Decides whether a call is made again. The only state belongs to one call and the calls that repeat or resume it;
// there are no connections, clocks or threads. Times may come from any clock, always the same one. client/python has
// the same class, and tests/golden/calls has the decisions of both.
//
// - A manager that stands by, stops or was not reached has not begun the call, so it goes to the next one, if there are
//   several. When all were asked and one of them stands by or stops, one will lead soon, so the search pauses and
//   asks all of them again. A round in which none has answered ends it.
// - A stream that was cut is resumed with its token. Before the first token, the request is repeated by its name. This
//   needs ON_DISCONNECT_DETACH.
// - A request with continue_from is repeated after a cut, with all that was received: its tokens depend on nothing
//   else, so none comes twice and none is another one. on_disconnect decides what becomes of the call that was cut.
// - While a manager restores its requests, it begins no call, so every call without a response is repeated.
// - All attempts end after `resume_time` without progress, and with the deadline. A call that a manager has taken is
//   progress, also without a response.
class CallPolicy {
 public:
  explicit CallPolicy(const CallRequest& request) : request_(request) {}

  // The first call, or the next one, begins. Without this, no call counts as taken before its first response.
  void Begin(absl::Time now) { call_began_ = now; }
  // The stream has a response for the sample with this index.
  void Note(uint32_t index, bool has_token);
  // The call has ended with this error.
  CallAction After(const google::rpc::Status& end, absl::Time now);

  // Returns whether the next call resumes the stream with its token.
  bool has_token() const { return has_token_; }
  // Returns whether the request may have to be continued, which needs the tokens that were received.
  bool keeps_tokens() const { return (request_.is_detachable || request_.is_continued) && !request_.is_ranked; }
  // Returns when the first call without progress has failed, or the infinite future.
  absl::Time lost_at() const { return lost_at_; }

 private:
  bool is_lost() const { return lost_at_ != absl::InfiniteFuture(); }
  // The server lacks a field, or does not know the request any more. Changes the request, or gives up. Returns nullopt
  // after other errors.
  std::optional<CallAction> ChangeRequest(const google::rpc::Status& end);
  // The manager has not begun the call. Returns whether another one is asked.
  bool Searches(const google::rpc::Status& end, bool stands_by);
  bool MayContinue() const;
  // Returns whether a call that was cut, or whose manager stopped during it, may be repeated or resumed.
  bool MayRepeat() const;
  CallAction Stop(const google::rpc::Status& end, bool leaves) const;

  CallRequest request_;
  absl::Time call_began_ = absl::InfiniteFuture();
  bool has_token_ = false;
  bool has_received_ = false;
  bool has_first_sample_ = false;  // A response for the sample with index 0.
  bool may_have_begun_ = false;    // A manager may have the request although nothing was received.
  size_t num_asked_ = 0;           // Managers that the search has asked.
  bool has_standby_ = false;       // One of this round stands by or stops.
  absl::Time lost_at_ = absl::InfiniteFuture();
  absl::Duration delay_ = absl::ZeroDuration();      // Time to wait before the next attempt.
  std::optional<google::rpc::Status> told_ = {};     // More detailed than the later status of gRPC.
  std::optional<google::rpc::Status> unknown_ = {};  // Why the request is being continued.
};

}  // namespace quire

#endif  // QUIRE_CLIENT_POLICY_CALL_POLICY_H_
