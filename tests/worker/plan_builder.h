// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_PLAN_BUILDER_H_
#define QUIRE_TESTS_WORKER_PLAN_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "quire/v1/worker.pb.h"

namespace quire {

// Returns sampling parameters that take the most likely token and ask for nothing else.
v1::RowSampling Greedy();

// Return `count` consecutive numbers from `first` on. They make block tables and token lists that are easy to read.
std::vector<uint32_t> Blocks(uint32_t first, int count);
std::vector<TokenId> Tokens(TokenId first, int count);

// Builds a plan piece by piece.
class PlanBuilder {
 public:
  explicit PlanBuilder(uint64_t step) { plan_.set_step(step); }

  // All tokens belong to the prompt unless `prompt_length` is set.
  PlanBuilder& Start(uint32_t row, const std::vector<TokenId>& tokens, const v1::RowSampling& sampling = Greedy(),
                     int prompt_length = -1, uint32_t sample_index = 0);
  PlanBuilder& Fork(uint32_t row, uint32_t parent, uint32_t sample_index = 0);
  PlanBuilder& Append(uint32_t row, TokenId token);
  PlanBuilder& SwapOut(uint32_t block, uint32_t host_block);
  PlanBuilder& SwapIn(uint32_t host_block, uint32_t block);
  PlanBuilder& Copy(uint32_t source, uint32_t destination);
  PlanBuilder& Slice(uint32_t row, uint32_t first_position, uint32_t num_tokens, bool samples,
                     const std::vector<uint32_t>& tail = {}, uint32_t first_changed_block = 0);

  // Changes the table of a group of the last slice.
  PlanBuilder& Sheets(uint32_t group, uint32_t first_sheet, uint32_t num_sheets, const std::vector<uint32_t>& blocks);

  // Give the last start a root of the prefix cache and a record.
  PlanBuilder& WithRoot(const std::string& root);
  PlanBuilder& WithRecord(const std::string& record);
  // Gives it the scores of its generated tokens.
  PlanBuilder& WithScores(const v1::ScoreColumns& scores) {
    *plan_.mutable_starts(plan_.starts_size() - 1)->mutable_scores() = scores;
    return *this;
  }
  PlanBuilder& End(uint32_t row);
  PlanBuilder& Record(uint32_t row, const std::string& record);

  PlanBuilder& WantTables() {
    plan_.set_wants_tables(true);
    return *this;
  }

  const v1::StepPlan& plan() const { return plan_; }

 private:
  v1::StepPlan plan_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_PLAN_BUILDER_H_
