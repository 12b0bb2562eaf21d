// SPDX-License-Identifier: Apache-2.0

#include "bench/conversations.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/load/random.h"

namespace quire {
namespace {

constexpr double kConversationsPerSecond = 5.53;
constexpr double kLogNormalSigma = 0.8;

struct Quantile {
  double share;
  int tokens;
};
constexpr Quantile kPromptQuantiles[] = {{0, 2},      {.01, 29},   {.05, 181},   {.1, 207},  {.2, 387},  {.3, 403},
                                         {.4, 703},   {.5, 1020},  {.6, 1071},   {.7, 1130}, {.8, 1315}, {.9, 2735},
                                         {.95, 4083}, {.99, 4142}, {.999, 6212}, {1, 14050}};
constexpr Quantile kOutputQuantiles[] = {{0, 7},     {.01, 16},  {.05, 41},   {.1, 54},  {.2, 77},  {.3, 91},
                                         {.4, 103},  {.5, 129},  {.6, 177},   {.7, 384}, {.8, 400}, {.9, 424},
                                         {.95, 451}, {.99, 601}, {.999, 954}, {1, 1000}};

// Draws a length. Between two quantiles the distribution is linear.
template <size_t kCount>
int DrawLength(const Quantile (&quantiles)[kCount], BenchRandom* random) {
  const double share = random->Uniform();
  const Quantile* above = std::find_if(std::begin(quantiles), std::end(quantiles) - 1,
                                       [&](const Quantile& quantile) { return quantile.share >= share; });
  const Quantile* below = above - 1;
  const double part = (share - below->share) / (above->share - below->share);
  return static_cast<int>(std::lround(below->tokens + part * (above->tokens - below->tokens)));
}

}  // namespace

std::vector<RequestLengths> DrawConversations(int count, uint64_t seed) {
  BenchRandom random(seed);
  std::vector<RequestLengths> requests;
  double now_s = 0;
  for (int i = 0; i < count; ++i) {
    requests.push_back({.arrival_s = now_s,
                        .prompt = DrawLength(kPromptQuantiles, &random),
                        .output = DrawLength(kOutputQuantiles, &random)});
    now_s += random.Exponential() / kConversationsPerSecond;
  }
  return requests;
}

std::vector<RequestLengths> DrawLogNormal(double mean_prompt, double mean_output, int count, uint64_t seed) {
  BenchRandom random(seed);
  const auto draw = [&](double mean) {
    const double mu = std::log(mean) - kLogNormalSigma * kLogNormalSigma / 2;
    return std::max(1, static_cast<int>(std::lround(std::exp(mu + kLogNormalSigma * random.Normal()))));
  };
  std::vector<RequestLengths> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back({.prompt = draw(mean_prompt), .output = draw(mean_output)});
  }
  return requests;
}

absl::StatusOr<Conversations> LoadConversations(const std::string& path, int count, int max_context_tokens) {
  Conversations conversations;
  std::ifstream file(path, std::ios::binary);
  if (file) {
    std::ostringstream csv;
    csv << file.rdbuf();
    QUIRE_ASSIGN_OR_RETURN(conversations.requests, ParseAzureTrace(csv.str()));
    if (conversations.requests.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " has no requests"));
    conversations.requests.resize(std::min<size_t>(count, conversations.requests.size()));
    conversations.source = path;
  } else {
    conversations.requests = DrawConversations(count, /*seed=*/1);
    conversations.source = absl::StrCat("drawn lengths, there is no ", path.empty() ? "trace" : path);
  }
  std::erase_if(conversations.requests,
                [&](const RequestLengths& request) { return request.prompt + request.output > max_context_tokens; });
  return conversations;
}

}  // namespace quire
