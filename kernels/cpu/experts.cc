// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/experts.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/rounding.h"

namespace quire::cpu {
namespace {

// Rows of experts for which there is memory. More tokens run one part after another, and each part reads the experts
// again. In a part of this size, arithmetic by the rows of an expert takes longer than reading its weights.
constexpr int kMaxRows = 8192;
// Choosing experts for fewer logits, or copying fewer numbers, takes less time than waking a thread.
constexpr int kMinLogitsPerItem = 2048;
constexpr int kMinGatheredFloats = 32 << 10;

// Writes the indices of the `count` largest scores in falling order, equal ones by index. Scores that are not numbers
// give some choice. `best` is memory for `count` scores.
void SelectBest(const float* scores, int num_scores, int count, float* best, int32_t* indices) {
  int num_best = 0;
  for (int i = 0; i < num_scores; ++i) {
    if (num_best == count && !(scores[i] > best[count - 1])) continue;
    int at = num_best < count ? num_best++ : count - 1;
    for (; at > 0 && scores[i] > best[at - 1]; --at) {
      best[at] = best[at - 1];
      indices[at] = indices[at - 1];
    }
    best[at] = scores[i];
    indices[at] = i;
  }
}

// Returns whether the output of the expert is added.
bool IsOwn(const ExpertMlpArgs& args, int expert) {
  return expert >= args.first_expert && (args.end_expert == 0 || expert < args.end_expert);
}

float SumOfBestTwo(const float* scores, int count) {
  float best = std::max(scores[0], scores[1]), second = std::min(scores[0], scores[1]);
  for (int i = 2; i < count; ++i) {
    if (scores[i] > best) {
      second = best;
      best = scores[i];
    } else {
      second = std::max(second, scores[i]);
    }
  }
  return best + second;
}

}  // namespace

void CpuExperts::Route(const RouteArgs& args) {
  choices_.resize(pool_->num_threads());
  for (Choice& choice : choices_) {
    choice.scores.resize(args.rule.num_experts);
    choice.choices.resize(args.rule.num_experts);
    choice.groups.resize(args.rule.num_groups);
    choice.best_groups.resize(args.rule.top_groups);
    choice.best.resize(std::max(args.rule.top_k, args.rule.top_groups));
  }
  const int tokens_per_item = std::max(1, kMinLogitsPerItem / args.rule.num_experts);
  pool_->ForEach(CeilDiv(args.num_tokens, tokens_per_item), [&](int item, int thread) {
    const int begin = item * tokens_per_item, end = std::min(begin + tokens_per_item, args.num_tokens);
    for (int token = begin; token < end; ++token) RouteToken(args, token, &choices_[thread]);
  });
}

void CpuExperts::RouteToken(const RouteArgs& args, int token, Choice* choice) const {
  const RouterRule& rule = args.rule;
  const int num_experts = rule.num_experts;
  const float* const logits = args.logits + int64_t{token} * args.num_logits;
  float* const scores = choice->scores.data();
  if (rule.score == RouterScore::kSoftmax) {
    float max = logits[0];
    for (int i = 1; i < num_experts; ++i) max = std::max(max, logits[i]);
    for (int i = 0; i < num_experts; ++i) scores[i] = logits[i] - max;
    kernels_.exp(scores, num_experts, scores);
    float sum = 0;
    for (int i = 0; i < num_experts; ++i) sum += scores[i];
    for (int i = 0; i < num_experts; ++i) scores[i] /= sum;
  } else {
    for (int i = 0; i < num_experts; ++i) scores[i] = -logits[i];
    kernels_.exp(scores, num_experts, scores);
    for (int i = 0; i < num_experts; ++i) scores[i] = 1 / (1 + scores[i]);
  }

  const float* choices = scores;
  if (args.choice_bias != nullptr || rule.num_groups > 1) {
    float* const biased = choice->choices.data();
    for (int i = 0; i < num_experts; ++i)
      biased[i] = scores[i] + (args.choice_bias == nullptr ? 0 : args.choice_bias[i]);
    choices = biased;
    if (rule.num_groups > 1) {
      const int size = num_experts / rule.num_groups;
      for (int i = 0; i < rule.num_groups; ++i) choice->groups[i] = SumOfBestTwo(biased + i * size, size);
      SelectBest(choice->groups.data(), rule.num_groups, rule.top_groups, choice->best.data(),
                 choice->best_groups.data());
      for (int i = 0; i < num_experts; ++i) {
        const auto& groups = choice->best_groups;
        const bool is_open = std::find(groups.begin(), groups.end(), i / size) != groups.end();
        if (!is_open) biased[i] = -std::numeric_limits<float>::infinity();
      }
    }
  }

  int32_t* const experts = args.experts + int64_t{token} * rule.top_k;
  float* const weights = args.weights + int64_t{token} * rule.top_k;
  SelectBest(choices, num_experts, rule.top_k, choice->best.data(), experts);
  std::sort(experts, experts + rule.top_k);
  float sum = 0;
  for (int k = 0; k < rule.top_k; ++k) sum += scores[experts[k]];
  const float divisor = rule.normalizes ? std::max(sum + rule.added_to_sum, rule.least_sum) : 1;
  for (int k = 0; k < rule.top_k; ++k) weights[k] = scores[experts[k]] / divisor * rule.scale;
  if (args.shared_weights == nullptr) return;
  float power = -logits[num_experts];
  kernels_.exp(&power, 1, &power);
  args.shared_weights[token] = 1 / (1 + power);
}

void CpuExperts::Run(const ExpertMlpArgs& args) {
  const int max_tokens = std::max(1, kMaxRows / args.top_k);
  for (int token = 0; token < args.num_tokens; token += max_tokens) {
    RunTokens(args, token, std::min(max_tokens, args.num_tokens - token));
  }
}

void CpuExperts::RunTokens(const ExpertMlpArgs& args, int first_token, int num_tokens) {
  const auto& gate_up = static_cast<const CpuPackedMatrix&>(*args.w[args.first_expert].gate_up);
  const auto& down = static_cast<const CpuPackedMatrix&>(*args.w[args.first_expert].down);
  const int num_rows = SortPairs(args, args.experts + int64_t{first_token} * args.top_k, num_tokens * args.top_k);
  GatherInput(args, args.x + int64_t{first_token} * gate_up.cols(), num_rows);
  const DataType gated_type = linear_.InputType(down);
  GatedLinearArgs widen{};
  widen.x = input_.data();
  widen.w = &gate_up;
  widen.y = GrownTo(MatrixBytes(num_rows, down.cols(), SizeOf(gated_type)), &gated_);
  widen.y_type = gated_type;
  widen.num_tokens = num_rows;
  widen.activation = args.activation;
  if (num_rows > 0) linear_.RunGroups(widen, gate_up_groups_);
  LinearArgs narrow{};
  narrow.x = gated_.data();
  narrow.w = &down;
  narrow.y = GrownTo(MatrixBytes(num_rows, down.rows(), sizeof(float)), &outputs_);
  narrow.num_tokens = num_rows;
  if (num_rows > 0) linear_.RunGroups(narrow, down_groups_);
  AddOutputs(args, first_token, num_tokens);
}

int CpuExperts::SortPairs(const ExpertMlpArgs& args, const int32_t* experts, int num_pairs) {
  starts_.assign(args.num_experts + 1, 0);
  for (int pair = 0; pair < num_pairs; ++pair) {
    if (IsOwn(args, experts[pair])) ++starts_[experts[pair] + 1];
  }
  for (int i = 0; i < args.num_experts; ++i) starts_[i + 1] += starts_[i];
  gate_up_groups_.clear();
  down_groups_.clear();
  for (int i = 0; i < args.num_experts; ++i) {
    const int first = starts_[i], count = starts_[i + 1] - first;
    if (count == 0) continue;
    const Expert& expert = args.w[i];
    gate_up_groups_.push_back({static_cast<const CpuPackedMatrix*>(expert.gate_up), expert.gate_up_bias, first, count});
    down_groups_.push_back({static_cast<const CpuPackedMatrix*>(expert.down), expert.down_bias, first, count});
  }
  const int num_rows = starts_[args.num_experts];
  row_of_pair_.resize(num_pairs);
  token_of_row_.resize(num_rows);
  for (int pair = 0; pair < num_pairs; ++pair) {
    if (!IsOwn(args, experts[pair])) continue;
    const int row = starts_[experts[pair]]++;
    row_of_pair_[pair] = row;
    token_of_row_[row] = pair / args.top_k;
  }
  return num_rows;
}

void CpuExperts::GatherInput(const ExpertMlpArgs& args, const float* x, int num_rows) {
  const auto& w = static_cast<const CpuPackedMatrix&>(*args.w[args.first_expert].gate_up);
  const DataType type = linear_.InputType(w);
  const int dim = w.cols(), rows_per_item = std::max(1, kMinGatheredFloats / dim);
  char* const to = static_cast<char*>(GrownTo(MatrixBytes(num_rows, dim, SizeOf(type)), &input_));
  pool_->ForEach(CeilDiv(num_rows, rows_per_item), [&](int item, int) {
    const int begin = item * rows_per_item, end = std::min(begin + rows_per_item, num_rows);
    for (int row = begin; row < end; ++row) {
      kernels_.convert[int(type)](x + int64_t{token_of_row_[row]} * dim, to + MatrixBytes(row, dim, SizeOf(type)), dim);
    }
  });
}

void CpuExperts::AddOutputs(const ExpertMlpArgs& args, int first_token, int num_tokens) {
  const int dim = static_cast<const CpuPackedMatrix&>(*args.w[args.first_expert].down).rows(), top_k = args.top_k;
  output_rows_.resize(pool_->num_threads());
  output_weights_.resize(pool_->num_threads());
  output_ranges_.resize(pool_->num_threads());
  for (auto& rows : output_rows_) rows.resize(top_k);
  for (auto& weights : output_weights_) weights.resize(top_k);
  for (auto& ranges : output_ranges_) ranges.resize(top_k);
  const auto row_of = [dim](const void* matrix, int token) {
    return matrix == nullptr ? nullptr : static_cast<const float*>(matrix) + int64_t{token} * dim;
  };
  const int tokens_per_item = std::max(1, kMinGatheredFloats / (dim * top_k));
  pool_->ForEach(CeilDiv(num_tokens, tokens_per_item), [&](int item, int thread) {
    const int begin = item * tokens_per_item, end = std::min(begin + tokens_per_item, num_tokens);
    for (int i = begin; i < end; ++i) {
      const int token = first_token + i;
      int count = 0;
      for (int k = 0; k < top_k; ++k) {
        const int64_t at = int64_t{token} * top_k + k;
        if (!IsOwn(args, args.experts[at])) continue;
        output_rows_[thread][count] = row_of(outputs_.data(), row_of_pair_[i * top_k + k]);
        output_weights_[thread][count] = args.weights[at];
        output_ranges_[thread][count++] = uint8_t(ExpertRange(args.experts[at], args.num_experts));
      }
      kernels_.sum_experts({.count = count,
                            .rows = output_rows_[thread].data(),
                            .weights = output_weights_[thread].data(),
                            .ranges = output_ranges_[thread].data(),
                            .shared = row_of(args.shared, token),
                            .shared_weight = args.shared_weights == nullptr ? 1 : args.shared_weights[token],
                            .residual = row_of(args.residual, token),
                            .y = static_cast<float*>(args.y) + int64_t{token} * dim,
                            .dim = dim});
    }
  });
}

}  // namespace quire::cpu
