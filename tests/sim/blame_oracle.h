// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_BLAME_ORACLE_H_
#define QUIRE_TESTS_SIM_BLAME_ORACLE_H_

#include <compare>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/ids.h"

namespace quire {

// Says which requests must run alone because workers are lost with them, and which must fail. It is written from the
// contract in scheduler/suspicion.h, without its code: it keeps a list of all losses of each request.
class BlameOracle {
 public:
  // A sequence of a request. A sample is known by its index. The beams of a search are replaced at every token, so a
  // beam is known by its number of tokens and its place in the search.
  struct Member {
    int num_tokens;  // 0 for a sample.
    int index;

    auto operator<=>(const Member&) const = default;
  };
  struct Slice {
    RequestId request;
    Member member;
    SequenceId sequence;
    int end;
    bool is_fork;              // The slice has no tokens: the sample is forked from sample 0.
    bool is_at_front = false;  // Set by OnPlan.
  };
  using Slices = std::vector<Slice>;
  // What is known of a request.
  struct Loss {
    bool is_at_front;
    bool is_trial;  // The request was suspect, and nothing else was in flight.
    bool is_named;
  };
  struct Progress {
    int reached = 0;
    int lost_at = 0;  // The member has to be computed to here. 0: it was not lost, or has been computed since.
  };
  struct Record {
    std::map<Member, Progress> members;
    int num_searched = 0;          // All beams of the search have been computed to here.
    bool has_got_farther = false;  // Since the last loss.
    std::vector<Loss> losses;
  };
  // Whether this sample of the request has not ended.
  using IsLive = absl::FunctionRef<bool(RequestId, int)>;

  void OnSubmitted(RequestId request) { live_[request]; }
  void OnEnded(RequestId request) { live_.erase(request); }
  // The request moves to another worker, and comes from there. REQUIRES: no plan is in flight.
  Record Release(RequestId request) { return std::move(live_.extract(request).mapped()); }
  void Adopt(RequestId request, Record record) { live_[request] = std::move(record); }
  // A request of an earlier manager continues here. Its losses are forgotten. `reached` says how far each sample or
  // beam has been computed.
  void OnRestored(RequestId request, const std::map<Member, int>& reached) {
    for (const auto& [member, end] : reached) live_[request].members[member].reached = end;
  }
  bool IsSuspect(RequestId request) const { return live_.contains(request) && IsSuspect(live_.at(request)); }
  // A plan was sent. The error says that it computes something beside a suspect.
  absl::Status OnPlan(Slices slices);
  // The oldest plan was answered. Settle() is called before anything else happens, but after its results are known.
  // `early` are the sequences whose slices have not computed their last token.
  void OnCommitted(const std::vector<SequenceId>& early, IsLive is_live);
  void Settle(IsLive is_live);
  // The session has ended. `is_blameless`: for a reason that has nothing to do with requests. `has_drawn` tells whether
  // a request has a token. Returns the requests that must fail.
  std::set<RequestId> OnSessionEnded(bool is_blameless, std::optional<SequenceId> named,
                                     absl::FunctionRef<bool(RequestId)> has_drawn);

 private:
  std::set<RequestId> Blame(const std::map<RequestId, Slices>& lost, std::optional<SequenceId> named);
  static bool IsSuspect(const Record& record);
  static bool MustFail(const Record& record);
  // Forgets the beams that the search has replaced.
  static Progress* Find(const Slice& slice, Record* record);

  std::map<RequestId, Record> live_;
  std::deque<Slices> in_flight_;
  bool is_settled_ = true;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_BLAME_ORACLE_H_
