// SPDX-License-Identifier: Apache-2.0

#include "grammar/long_repeat.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace quire::grammar {
namespace {

constexpr int kChunk = 1024;
// Tokens that cross the end of a chunk cost more than others, so what fits without chunks has none.
constexpr int kMaxFlat = 6000;

}  // namespace

// Node j of a graph stands behind j chunks. From there, a rest that is shorter than a chunk leads to the end.
ExprId LongRepeat(ExprId part, int min, int max, SyntaxTree* tree) {
  if (max != kUnbounded) max = std::min(max, kMaxLongRepeat);
  if (std::max(min, max) <= kMaxFlat) return tree->Repeat(part, min, max);
  const auto rule_of = [&](const char* name, ExprId body) {
    const RuleId rule = tree->AddRule(name, /*may_be_inlined=*/false);
    tree->SetBody(rule, body);
    return tree->Use(rule);
  };
  const ExprId chunk = rule_of("chunk", tree->Repeat(part, kChunk, kChunk));
  const ExprId shorter = rule_of("part of a chunk", tree->Repeat(part, 0, kChunk - 1));
  const int num_chunks = std::max(min, max) / kChunk;
  const int end = num_chunks + 1;
  std::vector<Expr::Edge> edges;
  for (int j = 0; j <= num_chunks; ++j) {
    if (j < num_chunks) edges.push_back({j, j + 1, chunk});
    const int least = std::max(0, min - j * kChunk);
    if (max == kUnbounded) {
      if (j == num_chunks) edges.push_back({j, end, tree->Repeat(part, least, kUnbounded)});
      continue;
    }
    const int most = std::min(kChunk - 1, max - j * kChunk);
    if (least > most) continue;
    const bool is_any = least == 0 && most == kChunk - 1;
    edges.push_back({j, end, is_any ? shorter : tree->Repeat(part, least, most)});
  }
  return tree->Graph(end + 1, std::move(edges));
}

}  // namespace quire::grammar
