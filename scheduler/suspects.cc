#include "scheduler/suspects.h"

#include <algorithm>

namespace quire {

void Suspects::Add(SequenceGroup* group) {
  if (group->suspicion().is_suspect()) by_submission_.emplace(group->rank().submission, group);
}

std::vector<Convict> Suspects::OnLost(const PlansInFlight& plans, std::optional<SequenceId> named,
                                      absl::FunctionRef<SequenceGroup*(RequestId)> find) {
  std::map<RequestId, int> in_flight;  // Where the slices in flight of the request end.
  std::optional<RequestId> named_request;
  for (const PlanInFlight& plan : plans.plans()) {
    for (const SliceInFlight& slice : plan.slices) {
      int& end = in_flight[slice.request];
      end = std::max(end, slice.first_position + slice.num_tokens);
      if (named.has_value() && slice.sequence == *named) named_request = slice.request;
    }
  }
  std::vector<Convict> convicts;
  for (const auto& [request, end] : in_flight) {
    SequenceGroup* const group = find(request);
    const bool is_named = request == named_request;
    if (group == nullptr || (named_request.has_value() && !is_named)) continue;
    Suspicion& suspicion = group->suspicion();
    suspicion.OnLost(end, /*is_alone=*/in_flight.size() == 1, is_named);
    Add(group);
    if (suspicion.is_convicted()) convicts.push_back({request, suspicion.num_losses()});
  }
  return convicts;
}

}  // namespace quire
