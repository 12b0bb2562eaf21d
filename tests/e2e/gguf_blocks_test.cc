// SPDX-License-Identifier: Apache-2.0

// Serves a GGUF file whose matrices stay in blocks.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "tests/e2e/cluster.h"
#include "tests/worker/model/block_gguf.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

struct Served {
  std::vector<uint32_t> tokens;
  std::string numerics;
};

Served Serve(const std::string& path, const std::vector<std::string>& worker_flags) {
  Cluster cluster({.model = path, .worker_flags = worker_flags});
  v1::GenerateRequest request = GreedyRequest("", 24);
  for (const uint32_t id : {3, 1, 4, 1, 5, 9, 2, 6}) request.mutable_token_ids()->add_ids(id);
  const Generation generation = Generate(cluster.client(), request);
  EXPECT_TRUE(generation.status.ok()) << generation.status;
  const auto info = cluster.client().GetModel();
  EXPECT_TRUE(info.ok()) << info.status();
  return {generation.token_ids, info.ok() ? info->numerics_fingerprint() : ""};
}

// The types of a file in Q4_K_M.
TEST(GgufBlocksTest, EveryInstructionSetServesTheSameTokens) {
  const TestDirectory directory;
  directory.Write("model.gguf",
                  BlockGguf{.other_types = {{"attn_v", "Q6_K"}, {"ffn_down", "Q6_K"}, {"output", "Q6_K"}}}.File());
  const std::string path = directory.path() + "/model.gguf";
  std::vector<uint32_t> tokens;
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    if (isa == cpu::Isa::kAmx) continue;  // It has no products by blocks.
    SCOPED_TRACE(cpu::Name(isa));
    const Served served = Serve(path, {"--kv-type=float32", absl::StrCat("--cpu-kernels=", cpu::Name(isa))});
    EXPECT_THAT(served.tokens, SizeIs(24));
    EXPECT_THAT(served.numerics, HasSubstr("/blocks 1/"));
    if (tokens.empty()) tokens = served.tokens;
    EXPECT_EQ(served.tokens, tokens);
  }
  std::vector<uint32_t> distinct = tokens;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  EXPECT_GT(distinct.size(), 3u) << "a repeated token would say little";

  const Served converted = Serve(path, {"--gguf-blocks=false", "--cpu-kernels=generic"});
  EXPECT_THAT(converted.numerics, Not(HasSubstr("blocks")));
}

}  // namespace
}  // namespace quire
