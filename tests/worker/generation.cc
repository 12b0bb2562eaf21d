// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/generation.h"

#include <utility>

#include "base/check.h"

namespace quire {
namespace {

v1::StepResult RunOrDie(TestWorker* worker, const v1::StepPlan& plan) {
  absl::StatusOr<v1::StepResult> result = worker->Run(plan);
  QUIRE_CHECK(result.ok()) << result.status();
  return *std::move(result);
}

void Collect(const v1::StepResult& result, Generation* out) {
  for (uint32_t token : result.token_ids()) out->tokens.push_back(static_cast<TokenId>(token));
  if (result.token_ids_size() > 0) out->scores.push_back(result.scores());
  for (const v1::PromptScores& scores : result.prompt_scores()) out->prompt_scores.MergeFrom(scores.scores());
}

}  // namespace

Generation Generate(TestWorker* worker, const GenerationRequest& request) {
  worker->executor().Reset();
  const int prompt_length = static_cast<int>(request.prompt.size());
  const int num_blocks = worker->limits().NumBlocksFor(prompt_length + request.num_tokens);
  std::vector<int> chunks = request.chunks;
  if (chunks.empty()) chunks.push_back(prompt_length);
  Generation out;
  uint64_t step = 0;
  int position = 0;
  for (int chunk : chunks) {
    PlanBuilder builder(++step);
    if (position == 0) builder.Start(request.row, request.prompt, request.sampling, -1, request.sample_index);
    const std::vector<uint32_t> table = position == 0 ? Blocks(request.first_block, num_blocks) : Blocks(0, 0);
    builder.Slice(request.row, position, chunk, position + chunk == prompt_length, table);
    Collect(RunOrDie(worker, builder.plan()), &out);
    position += chunk;
  }
  for (int i = 1; i < request.num_tokens; ++i) {
    Collect(RunOrDie(worker, PlanBuilder(++step).Slice(request.row, position++, 1, true).plan()), &out);
  }
  return out;
}

}  // namespace quire
