#ifndef QUIRE_CLIENT_LOAD_REQUEST_LENGTHS_H_
#define QUIRE_CLIENT_LOAD_REQUEST_LENGTHS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// One request of a trace: how long, and when.
struct RequestLengths {
  double arrival_s = 0;  // After the first one.
  int prompt = 1;
  int output = 1;

  bool operator==(const RequestLengths&) const = default;
};

// The lines of the Azure LLM inference trace of 2023: TIMESTAMP,ContextTokens,GeneratedTokens. INVALID_ARGUMENT names
// the first bad line.
absl::StatusOr<std::vector<RequestLengths>> ParseAzureTrace(absl::string_view csv);

// Drawn from the quantiles of the conversations in that trace, prompt and output independently, with the gaps of a
// Poisson process at its mean rate.
std::vector<RequestLengths> DrawConversations(int count, uint64_t seed);

// Log-normal lengths with these means and the spread of chats (sigma 0.8), all arriving at once.
std::vector<RequestLengths> DrawLogNormal(double mean_prompt, double mean_output, int count, uint64_t seed);

struct Conversations {
  std::string source;  // For people: the file, or that they are drawn.
  std::vector<RequestLengths> requests;
};

// The first `count` requests of the file, drawn ones when there is no such file; without those whose prompt and output
// exceed `max_context_tokens`.
absl::StatusOr<Conversations> LoadConversations(const std::string& path, int count, int max_context_tokens);

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_REQUEST_LENGTHS_H_
