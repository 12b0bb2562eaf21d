// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/moving_request.h"

namespace quire {

bool ChangeGeneration(GenerationId generation, MovedRequest* moved, RequestSink* sink) {
  if (moved->request().generation == generation) return false;
  moved->SetGeneration(generation);
  const SequenceGroup& group = moved->group();
  const Request& request = group.request();
  if (request.beam.has_value() || group.num_to_fork() > 0) {
    // All beams are equally long, and so are samples that have drawn nothing.
    const int position = group.sequences().front()->num_known_tokens();
    for (int i = 0; i < NumOutputs(request); ++i) sink->OnNumericsChanged(i, position);
    return true;
  }
  for (const auto& sequence : group.sequences()) {
    sink->OnNumericsChanged(sequence->sample_index(), sequence->num_known_tokens());
  }
  return true;
}

}  // namespace quire
