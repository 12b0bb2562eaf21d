// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_REFERENCE_BEAM_SEARCH_H_
#define QUIRE_TESTS_SIM_REFERENCE_BEAM_SEARCH_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "scheduler/beam_params.h"
#include "tests/sim/shadow_model.h"

namespace quire {

// Beam search as in its definition, without any optimisation: every beam is a list of tokens, every step sorts all
// candidates. Shares no code with scheduler/beam_search.h, so that the two can be compared. Returns the hypotheses,
// best first. Stop conditions other than tokens are not supported. All beams change the model at the same length.
std::vector<SoloSample> ReferenceBeamSearch(const ShadowModel& model, absl::Span<const ModelChange> changes,
                                            const BeamParams& params, int max_tokens,
                                            const std::vector<TokenId>& stop_token_ids, uint64_t prompt_prefix);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_REFERENCE_BEAM_SEARCH_H_
