#include "client/load/request_lengths.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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

// Linear between the quantiles.
template <size_t kCount>
int Draw(const Quantile (&quantiles)[kCount], BenchRandom* random) {
  const double share = random->Uniform();
  const Quantile* above = std::find_if(std::begin(quantiles), std::end(quantiles) - 1,
                                       [&](const Quantile& quantile) { return quantile.share >= share; });
  const Quantile* below = above - 1;
  const double part = (share - below->share) / (above->share - below->share);
  return static_cast<int>(std::lround(below->tokens + part * (above->tokens - below->tokens)));
}

// "2023-11-16 18:15:46.6805900" to seconds within its month.
bool ParseTimestamp(absl::string_view text, double* seconds) {
  int day, hour, minute;
  double second;
  if (text.size() < 19 || !absl::SimpleAtoi(text.substr(8, 2), &day) || !absl::SimpleAtoi(text.substr(11, 2), &hour) ||
      !absl::SimpleAtoi(text.substr(14, 2), &minute) || !absl::SimpleAtod(text.substr(17), &second)) {
    return false;
  }
  *seconds = ((day * 24.0 + hour) * 60 + minute) * 60 + second;
  return true;
}

}  // namespace

absl::StatusOr<std::vector<RequestLengths>> ParseAzureTrace(absl::string_view csv) {
  std::vector<RequestLengths> requests;
  double first_s = 0;
  int line_number = 0;
  for (const absl::string_view line : absl::StrSplit(csv, '\n')) {
    if (++line_number == 1 || absl::StripAsciiWhitespace(line).empty()) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(absl::StripAsciiWhitespace(line), ',');
    RequestLengths request;
    if (fields.size() != 3 || !ParseTimestamp(fields[0], &request.arrival_s) ||
        !absl::SimpleAtoi(fields[1], &request.prompt) || !absl::SimpleAtoi(fields[2], &request.output) ||
        request.prompt < 1 || request.output < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line_number, " is '", line, "', expected TIMESTAMP,ContextTokens,GeneratedTokens"));
    }
    if (requests.empty()) first_s = request.arrival_s;
    request.arrival_s -= first_s;
    requests.push_back(request);
  }
  return requests;
}

std::vector<RequestLengths> DrawConversations(int count, uint64_t seed) {
  BenchRandom random(seed);
  std::vector<RequestLengths> requests;
  double now_s = 0;
  for (int i = 0; i < count; ++i) {
    RequestLengths request;
    request.arrival_s = now_s;
    request.prompt = Draw(kPromptQuantiles, &random);
    request.output = Draw(kOutputQuantiles, &random);
    requests.push_back(request);
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
    RequestLengths request;
    request.prompt = draw(mean_prompt);
    request.output = draw(mean_output);
    requests.push_back(request);
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
