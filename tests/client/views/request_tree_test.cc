// SPDX-License-Identifier: Apache-2.0

#include "client/views/request_tree.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

// Two samples that share the entries 0 and 1 of their block tables. Sample 0 has one more entry.
v1::DescribeRequestResponse TwoSamples() {
  v1::DescribeRequestResponse request;
  for (uint32_t i = 0; i < 2; ++i) {
    auto* const sequence = request.add_sequences();
    sequence->set_sample_index(i);
    sequence->add_blocks(7);
    sequence->add_blocks(8);
  }
  request.mutable_sequences(0)->add_blocks(3);
  v1::ForkNode* const root = request.add_tree();
  root->set_parent(-1);
  root->add_sequences(0);
  root->add_sequences(1);
  root->set_num_blocks(2);
  v1::ForkNode* const own = request.add_tree();
  own->set_parent(0);
  own->add_sequences(0);
  own->set_first_block(2);
  own->set_num_blocks(1);
  v1::ForkNode* const end = request.add_tree();
  end->set_parent(0);
  end->add_sequences(1);
  end->set_first_block(2);
  return request;
}

TEST(RequestTreeTest, WhatIsSharedIsALine) {
  EXPECT_EQ(DrawTree(TwoSamples()).value_or(""),
            "samples 0, 1: entries 0 .. 1: 7-8\n"
            "  sample 0: entries 2 .. 2: 3\n"
            "  sample 1: ends here\n");
}

TEST(RequestTreeTest, BeamsAreNumberedByTheirPlace) {
  v1::DescribeRequestResponse request = TwoSamples();
  for (v1::SequenceDescription& beam : *request.mutable_sequences()) beam.set_sample_index(0);
  EXPECT_EQ(DrawTree(request).value_or(""),
            "beams 0, 1: entries 0 .. 1: 7-8\n"
            "  beam 0: entries 2 .. 2: 3\n"
            "  beam 1: ends here\n");
}

TEST(RequestTreeTest, WhatIsNotThereIsRefused) {
  const auto refusal_of = [](void (*change)(v1::ForkNode*)) {
    v1::DescribeRequestResponse request = TwoSamples();
    change(request.mutable_tree(1));
    return DrawTree(request).status().code();
  };
  EXPECT_EQ(refusal_of([](v1::ForkNode* node) { node->clear_sequences(); }), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refusal_of([](v1::ForkNode* node) { node->set_sequences(0, 2); }), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refusal_of([](v1::ForkNode* node) { node->set_num_blocks(2); }), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refusal_of([](v1::ForkNode* node) { node->set_num_blocks(4'294'967'295); }), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refusal_of([](v1::ForkNode* node) { node->set_parent(1); }), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace quire
