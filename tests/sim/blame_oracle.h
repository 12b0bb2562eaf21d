#ifndef QUIRE_TESTS_SIM_BLAME_ORACLE_H_
#define QUIRE_TESTS_SIM_BLAME_ORACLE_H_

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace quire {

// Says which requests must run alone because workers are lost with them, and which must fail. It is written from the
// contract in scheduler/suspicion.h, without its code: it keeps a list of all losses of each request.
class BlameOracle {
 public:
  // The requests that a plan computes, and where each slice ends.
  using Slices = std::vector<std::pair<RequestId, int>>;

  void OnSubmitted(RequestId request) { live_[request]; }
  void OnEnded(RequestId request) { live_.erase(request); }
  // A plan was sent. The error says that it computes something beside a suspect.
  absl::Status OnPlan(Slices slices);
  void OnCommitted();
  // The session has ended. `is_blameless`: for a reason that has nothing to do with requests. Returns the requests that
  // must fail.
  std::set<RequestId> OnSessionEnded(bool is_blameless, std::optional<RequestId> named);

 private:
  struct Loss {
    int end;
    bool is_at_front;
    bool is_trial;  // The request was suspect, and nothing else was in flight.
    bool is_named;
  };
  struct Record {
    int reached = 0;
    std::vector<Loss> losses;
  };

  static bool IsSuspect(const Record& record);
  static bool MustFail(const Record& record);

  std::map<RequestId, Record> live_;
  std::deque<Slices> in_flight_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_BLAME_ORACLE_H_
