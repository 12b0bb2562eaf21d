// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_MIXED_WORK_H_
#define QUIRE_TESTS_CHAOS_MIXED_WORK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/library/client.h"

namespace quire {

// The output of one sample or hypothesis.
struct Output {
  std::vector<uint32_t> tokens;
  std::string text;

  bool operator==(const Output&) const = default;
};
using Outputs = std::vector<Output>;  // By index.

void AddResponse(const v1::GenerateResponse& response, Outputs* outputs);

// A request that gives the same outputs every time.
struct WorkItem {
  std::string name;
  v1::GenerateRequest request;
};

// Short chats, long prompts, shared prefixes, drawn samples, best_of, beams, penalties, stop strings, priorities,
// tenants and cache salts. Each request needs at most 120 blocks of 16 tokens with a tokenizer that has a token per
// byte.
std::vector<WorkItem> MixedWork();

// What each model answers to each item of the work when nothing else runs.
class AnswerBook {
 public:
  explicit AnswerBook(std::vector<WorkItem> work) : work_(std::move(work)) {}

  // Asks the model that `client` serves, one request after the other.
  absl::Status Learn(Client* client);

  const std::vector<WorkItem>& work() const { return work_; }

  // Returns "" if one of the models gives these outputs to item `i`, or outputs that begin with these when the request
  // was cut short. Otherwise returns what is wrong.
  std::string Check(int i, const Outputs& outputs, bool is_whole) const;

 private:
  const std::vector<WorkItem> work_;
  std::vector<std::vector<Outputs>> answers_;  // [model, item]
};

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_MIXED_WORK_H_
