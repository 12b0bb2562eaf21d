// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_CONVERSATIONS_H_
#define QUIRE_BENCH_CONVERSATIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/load/request_lengths.h"

namespace quire {

// Lengths drawn from the quantiles of the conversations in the Azure LLM inference trace of 2023, prompt and output
// independently. The requests arrive as a Poisson process at the trace's mean rate.
std::vector<RequestLengths> DrawConversations(int count, uint64_t seed);

// Log-normal lengths with these means in tokens and the spread of chats (sigma 0.8). All requests arrive at once.
std::vector<RequestLengths> DrawLogNormal(double mean_prompt, double mean_output, int count, uint64_t seed);

struct Conversations {
  std::string source;  // Tells people the file, or that the lengths are drawn.
  std::vector<RequestLengths> requests;
};

// The first `count` requests of an Azure trace, or drawn ones if there is no such file. Leaves out requests whose
// prompt and output together exceed `max_context_tokens`. INVALID_ARGUMENT when the file is not an Azure trace.
absl::StatusOr<Conversations> LoadConversations(const std::string& path, int count, int max_context_tokens);

}  // namespace quire

#endif  // QUIRE_BENCH_CONVERSATIONS_H_
