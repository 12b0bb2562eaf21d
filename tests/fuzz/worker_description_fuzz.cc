// SPDX-License-Identifier: Apache-2.0

#include "base/check.h"
#include "kv_manager/worker_link/wire.h"
#include "quire/v1/worker.pb.h"
#include "tests/fuzz/message_input.h"

namespace quire {
namespace {

// A worker's description is refused, or its numbers are such that a scheduler can be made from them.
void Decode(const v1::DescribeResponse& response) {
  const auto description = DecodeDescription(response);
  if (!description.ok()) {
    QUIRE_CHECK(!description.status().message().empty());
    return;
  }
  QUIRE_CHECK(description->vocab_size > 0 && description->max_context_tokens > 0);
  QUIRE_CHECK(description->block_size > 0 && description->num_blocks > 0 && description->num_host_blocks >= 0);
  QUIRE_CHECK(description->max_sequences > 0 && description->max_tokens_per_step > 0);
  for (const TokenId token : description->eos_token_ids) {
    QUIRE_CHECK(token >= 0 && token < description->vocab_size) << token;
  }
  NarrowedTo(*description, SchedulerOptions());
}

}  // namespace
}  // namespace quire

QUIRE_FUZZ_MESSAGES(quire::v1::DescribeResponse, quire::Decode);
