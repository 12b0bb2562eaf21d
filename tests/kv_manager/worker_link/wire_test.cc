// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/wire.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/worker_protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/worker_link/cache_root.h"
#include "kv_manager/worker_link/row_record.h"
#include "tests/random.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kVocabSize = 100;

template <typename Column>
std::vector<TokenId> Tokens(const Column& column) {
  return std::vector<TokenId>(column.begin(), column.end());
}

const std::vector<CacheGroup> kGroups = {{}, {.window_tokens = 8}, {.window_tokens = 32, .blocks_per_sheet = 3}};

std::vector<BlockId> RandomBlocks(Random* random, int count) {
  std::vector<BlockId> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(BlockId(random->Between(0, 99)));
  return blocks;
}

// Reads the message column by column, as a worker does.
SamplingParams Read(const v1::RowSampling& in) {
  SamplingParams out;
  out.temperature = in.temperature();
  out.top_n_sigma = in.top_n_sigma();
  out.top_k = static_cast<int>(in.top_k());
  out.top_p = in.top_p();
  out.min_p = in.min_p();
  out.xtc_probability = in.xtc_probability();
  out.xtc_threshold = in.xtc_threshold();
  out.presence_penalty = in.presence_penalty();
  out.frequency_penalty = in.frequency_penalty();
  out.repetition_penalty = in.repetition_penalty();
  out.seed = in.seed();
  for (int i = 0; i < in.biases_size(); ++i) {
    out.logit_bias.push_back({static_cast<TokenId>(in.bias_token_ids(i)), in.biases(i)});
  }
  out.allowed_token_ids = Tokens(in.allowed_token_ids());
  auto next = in.bad_word_token_ids().begin();
  for (const uint32_t length : in.bad_word_lengths()) {
    out.bad_words.emplace_back(next, next + length);
    next += length;
  }
  out.min_tokens_masked_ids = Tokens(in.min_tokens_masked_ids());
  out.min_tokens = static_cast<int>(in.min_tokens());
  out.num_logprobs = static_cast<int>(in.num_logprobs_plus_one()) - 1;
  out.num_prompt_logprobs = static_cast<int>(in.num_prompt_logprobs_plus_one()) - 1;
  out.num_candidates = static_cast<int>(in.num_candidates());
  return out;
}

StepPlan Read(const v1::StepPlan& in) {
  StepPlan out;
  out.step = StepId{in.step()};
  out.wants_tables = in.wants_tables();
  for (const v1::SequenceStart& start : in.starts()) {
    out.starts.push_back({RowId{start.row()}, SequenceId{start.sequence()}, start.sample_index(),
                          static_cast<int>(start.prompt_length()), Tokens(start.token_ids()), Read(start.sampling())});
  }
  for (int i = 0; i < in.copy_sources_size(); ++i) {
    out.copies.push_back({BlockId{in.copy_sources(i)}, BlockId{in.copy_destinations(i)}});
  }
  for (int i = 0; i < in.swap_out_blocks_size(); ++i) {
    out.swap_outs.push_back({BlockId{in.swap_out_blocks(i)}, BlockId{in.swap_out_host_blocks(i)}});
  }
  for (int i = 0; i < in.swap_in_blocks_size(); ++i) {
    out.swap_ins.push_back({BlockId{in.swap_in_blocks(i)}, BlockId{in.swap_in_host_blocks(i)}});
  }
  for (int i = 0; i < in.fork_rows_size(); ++i) {
    out.forks.push_back({RowId{in.fork_rows(i)}, RowId{in.fork_parents(i)}, SequenceId{in.fork_sequences(i)},
                         in.fork_sample_indices(i)});
  }
  for (int i = 0; i < in.append_rows_size(); ++i) {
    out.appends.push_back({RowId{in.append_rows(i)}, static_cast<TokenId>(in.append_token_ids(i))});
  }
  int tail = 0;
  for (int i = 0; i < in.slice_rows_size(); ++i) {
    SequenceSlice slice{.row = RowId{in.slice_rows(i)},
                        .first_position = static_cast<int>(in.slice_first_positions(i)),
                        .num_tokens = static_cast<int>(in.slice_num_tokens(i)),
                        .first_changed_block = static_cast<int>(in.slice_first_changed_blocks(i)),
                        .block_tail = {},
                        .sample = in.slice_samples()[i] == 1};
    for (uint32_t k = 0; k < in.slice_tail_lengths(i); ++k) slice.block_tail.push_back(BlockId{in.block_tails(tail++)});
    out.slices.push_back(std::move(slice));
  }
  const uint32_t* block = in.change_blocks().data();
  for (int i = 0; i < in.change_slices_size(); ++i) {
    SheetChange change{static_cast<int>(in.change_slices(i)),
                       static_cast<int>(in.change_groups(i)),
                       static_cast<int>(in.change_first_sheets(i)),
                       static_cast<int>(in.change_num_sheets(i)),
                       {}};
    const int num_blocks = change.num_sheets * kGroups[change.group].blocks_per_sheet;
    for (int k = 0; k < num_blocks; ++k) change.blocks.push_back(BlockId{*block++});
    out.sheet_changes.push_back(std::move(change));
  }
  return out;
}

TEST(WireTest, APlanCarriesWhatTheNextManagerNeeds) {
  StepPlan plan;
  plan.step = StepId{1};
  plan.end_rows = {RowId{4}, RowId{6}};
  for (const bool is_private : {false, true}) {
    SequenceStart start{RowId{is_private}, SequenceId{1}, 0, 1, {1}, {}};
    start.cache_root = CacheRoot{.is_private = is_private, .salt = "salt"};
    start.record = std::make_shared<const std::string>("record");
    start.num_cached_tokens = 16;
    plan.starts.push_back(start);
  }
  plan.starts[0].search = "search";
  plan.starts[0].scores = {{5, -1, 2, {{6, -0.5f}}}};
  plan.starts[0].prompt_scores = {{7, -2, 3, {}}, {8, -3, 4, {}}};
  plan.records = {{RowId{0}, plan.starts[0].record, 16, "later"},
                  {RowId{1}, plan.starts[1].record, 16, std::string(kMaxRecordBytes, 's')}};
  plan.starts.push_back({RowId{2}, SequenceId{2}, 0, 1, {1}, {}});
  plan.starts.push_back({RowId{3}, SequenceId{3}, 0, 1, {1}, {}});
  plan.starts.back().cache_root = CacheRoot{.is_private = false, .salt = std::string(kMaxCacheRootBytes, 's')};
  v1::StepPlan message;
  PlanEncoder().Encode(plan, &message);
  EXPECT_THAT(message.end_rows(), ElementsAre(4u, 6u));
  EXPECT_EQ(message.starts(0).cache_root(), NameOf(*plan.starts[0].cache_root));
  EXPECT_EQ(message.starts(1).cache_root(), NameOf(*plan.starts[1].cache_root));
  EXPECT_EQ(message.starts(0).record(), RowRecordOf(plan.starts[0]));
  EXPECT_THAT(message.starts(0).scores().logprobs(), ElementsAre(-1));
  EXPECT_THAT(message.starts(0).scores().ranks(), ElementsAre(2u));
  EXPECT_THAT(message.starts(0).scores().top_token_ids(), ElementsAre(6u));
  EXPECT_THAT(message.starts(0).prompt_scores().logprobs(), ElementsAre(-2, -3));
  EXPECT_THAT(message.record_rows(), ElementsAre(0u)) << "the other record is too long";
  EXPECT_EQ(ReadRowRecord(message.records(0))->search, "later");
  EXPECT_FALSE(message.starts(2).has_cache_root());
  EXPECT_TRUE(message.starts(2).record().empty());
  EXPECT_FALSE(message.starts(3).has_cache_root()) << "it is too long";
}

TEST(WireTest, AnAdoptedRowAnswersWithWhatItReports) {
  WorkerInventory::Row row;
  row.row = RowId{1};
  row.prompt_length = 3;
  row.tokens = {1, 2, 3, 4};
  row.num_logprobs = 2;
  row.num_prompt_logprobs = 0;
  PlanEncoder encoder;
  encoder.AdoptRow(row);
  StepPlan plan;
  plan.step = StepId{1};
  plan.slices = {{.row = RowId{1},
                  .first_position = 1,
                  .num_tokens = 3,
                  .first_changed_block = 0,
                  .block_tail = {},
                  .sample = true}};
  v1::StepPlan message;
  const ExpectedResult expected = encoder.Encode(plan, &message);
  EXPECT_EQ(expected.slices[0].num_logprobs, 2);
  EXPECT_THAT(expected.slices[0].prompt_tokens, ElementsAre(3));
  row.num_candidates = 5;
  encoder.AdoptRow(row);
  EXPECT_TRUE(encoder.Encode(plan, &message).slices[0].lists_candidates());
}

std::vector<TokenId> RandomTokens(Random* random, int max) {
  std::vector<TokenId> tokens(random->Between(0, max));
  for (TokenId& token : tokens) token = random->Between(0, kVocabSize - 1);
  return tokens;
}

SamplingParams RandomSampling(Random* random) {
  SamplingParams out;
  out.temperature = static_cast<float>(random->Between(0, 8)) / 4;
  out.top_n_sigma = static_cast<float>(random->Between(0, 8)) / 4;
  out.top_k = random->Between(0, kVocabSize);
  out.xtc_probability = static_cast<float>(random->Between(0, 4)) / 4;
  out.xtc_threshold = static_cast<float>(random->Between(0, 4)) / 4;
  out.seed = random->Next();
  for (const TokenId token : RandomTokens(random, 3)) out.logit_bias.push_back({token, 0.5f});
  out.allowed_token_ids = RandomTokens(random, 3);
  for (int i = random->Between(0, 2); i > 0; --i) out.bad_words.push_back(RandomTokens(random, 3));
  out.min_tokens_masked_ids = RandomTokens(random, 2);
  out.min_tokens = random->Between(0, 5);
  out.num_logprobs = random->Between(-1, 3);
  out.num_prompt_logprobs = random->Between(-1, 3);
  if (random->OneIn(3)) out.num_candidates = random->Between(1, 4);
  return out;
}

// Rows 0 .. 7 start in the first plan of a session; later plans start some of them again.
StepPlan RandomPlan(Random* random, uint64_t step) {
  constexpr int kRows = 8;
  StepPlan plan;
  plan.step = StepId{step};
  for (int row = 0; row < kRows; ++row) {
    if (step > 1 && !random->OneIn(4)) continue;
    std::vector<TokenId> tokens = RandomTokens(random, 9);
    tokens.push_back(1);
    const int prompt_length = random->Between(1, static_cast<int>(tokens.size()));
    plan.starts.push_back({RowId(row), SequenceId{random->Next()}, static_cast<uint32_t>(random->Between(0, 3)),
                           prompt_length, std::move(tokens), RandomSampling(random)});
  }
  for (int i = random->Between(0, 2); i > 0; --i) {
    plan.copies.push_back({BlockId(random->Between(0, 50)), BlockId(random->Between(51, 99))});
  }
  for (std::vector<BlockSwap>* swaps : {&plan.swap_outs, &plan.swap_ins}) {
    for (int i = random->Between(0, 2); i > 0; --i) {
      swaps->push_back({BlockId(random->Between(0, 99)), BlockId(random->Between(0, 9))});
    }
  }
  for (int i = random->Between(0, 2); i > 0; --i) {
    plan.forks.push_back({RowId(random->Between(0, kRows - 1)), RowId(random->Between(0, kRows - 1)),
                          SequenceId{random->Next()}, static_cast<uint32_t>(random->Between(0, 3))});
  }
  for (int i = random->Between(0, 2); i > 0; --i) {
    plan.appends.push_back({RowId(random->Between(0, kRows - 1)), random->Between(0, kVocabSize - 1)});
  }
  for (int row = 0; row < kRows; ++row) {
    if (random->OneIn(3)) continue;
    SequenceSlice slice{.row = RowId(row),
                        .first_position = random->Between(0, 8),
                        .num_tokens = random->Between(0, 5),
                        .first_changed_block = random->Between(0, 3),
                        .block_tail = {},
                        .sample = random->OneIn(2)};
    for (int i = random->Between(0, 3); i > 0; --i) slice.block_tail.push_back(BlockId(random->Between(0, 99)));
    plan.slices.push_back(std::move(slice));
    for (int group = 1; group < static_cast<int>(kGroups.size()); ++group) {
      if (random->OneIn(2)) continue;
      const int num_sheets = random->Between(1, 3);
      plan.sheet_changes.push_back({static_cast<int>(plan.slices.size()) - 1, group, random->Between(0, 9), num_sheets,
                                    RandomBlocks(random, num_sheets * kGroups[group].blocks_per_sheet)});
    }
  }
  plan.wants_tables = random->OneIn(3);
  return plan;
}

ScoredToken RandomScore(Random* random, int num_logprobs) {
  ScoredToken token;
  token.token = random->Between(0, kVocabSize - 1);
  if (num_logprobs < 0) return token;
  token.logprob = -static_cast<float>(random->Between(0, 64)) / 8;
  token.rank = random->Between(1, kVocabSize);
  for (int i = 0; i < num_logprobs; ++i) token.top.push_back({random->Between(0, kVocabSize - 1), -0.5f});
  return token;
}

// Returns a correct answer.
StepResult RandomResult(Random* random, const ExpectedResult& expected) {
  StepResult result;
  result.step = expected.step;
  for (const ExpectedResult::Slice& slice : expected.slices) {
    SliceResult out;
    out.sampled = slice.sample;
    if (slice.draws()) out.token = RandomScore(random, slice.num_logprobs);
    if (slice.lists_candidates()) {
      for (int i = random->Between(1, slice.num_candidates); i > 0; --i) {
        out.candidates.push_back({random->Between(0, kVocabSize - 1), static_cast<float>(i) - 9});
      }
    }
    for (const TokenId token : slice.prompt_tokens) {
      out.prompt_logprobs.push_back(RandomScore(random, slice.num_prompt_logprobs));
      out.prompt_logprobs.back().token = token;
    }
    result.slices.push_back(std::move(out));
    if (!expected.has_tables) continue;
    RowTable& table = result.tables.emplace_back(RowTable{SequenceId{random->Next()}, random->Between(0, 99), {}});
    for (int i = random->Between(0, 3); i > 0; --i) table.blocks.push_back(BlockId(random->Between(0, 99)));
    for (const int width : expected.blocks_per_sheet) {
      table.groups.push_back({random->Between(0, 9), RandomBlocks(random, random->Between(0, 2) * width)});
    }
  }
  return result;
}

void Write(const ScoredToken& token, v1::ScoreColumns* out) {
  out->add_logprobs(token.logprob);
  out->add_ranks(token.rank);
  out->add_top_lengths(token.top.size());
  for (const TokenLogprob& top : token.top) {
    out->add_top_token_ids(top.token);
    out->add_top_logprobs(top.logprob);
  }
}

// Returns the message of a worker that answers with `result`.
v1::StepResult Write(const StepResult& result, const ExpectedResult& expected) {
  v1::StepResult out;
  out.set_step(Value(result.step));
  bool any_asked = false;
  for (const ExpectedResult::Slice& slice : expected.slices) any_asked |= slice.draws() && slice.num_logprobs >= 0;
  for (size_t i = 0; i < result.slices.size(); ++i) {
    const SliceResult& slice = result.slices[i];
    if (!slice.candidates.empty()) {
      out.add_candidate_lengths(slice.candidates.size());
      for (const TokenLogprob& candidate : slice.candidates) {
        out.add_candidate_token_ids(candidate.token);
        out.add_candidate_logprobs(candidate.logprob);
      }
    } else if (slice.sampled) {
      out.add_token_ids(slice.token.token);
      if (any_asked) Write(slice.token, out.mutable_scores());
    }
    if (slice.prompt_logprobs.empty()) continue;
    v1::PromptScores* scores = out.add_prompt_scores();
    scores->set_slice(i);
    for (const ScoredToken& token : slice.prompt_logprobs) Write(token, scores->mutable_scores());
  }
  for (const RowTable& table : result.tables) {
    v1::RowTables* tables = out.mutable_tables();
    tables->add_sequences(Value(table.sequence));
    tables->add_computed_tokens(table.num_computed);
    tables->add_table_lengths(table.blocks.size());
    for (const BlockId block : table.blocks) tables->add_blocks(Value(block));
    for (size_t i = 0; i < table.groups.size(); ++i) {
      v1::GroupTables* const group = tables->groups_size() > static_cast<int>(i)
                                         ? tables->mutable_groups(static_cast<int>(i))
                                         : tables->add_groups();
      group->add_first_sheets(table.groups[i].first_sheet);
      group->add_num_sheets(table.groups[i].blocks.size() / expected.blocks_per_sheet[i]);
      for (const BlockId block : table.groups[i].blocks) group->add_blocks(Value(block));
    }
  }
  return out;
}

TEST(WireTest, RandomPlansAndResultsSurviveTheRoundTrip) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    PlanEncoder encoder(PlanEncoder::Answers::kResults, kGroups);
    v1::StepPlan message;  // One message for the whole session. The contents of earlier plans must have no effect.
    for (uint64_t step = 1; step <= 5; ++step) {
      const StepPlan plan = RandomPlan(&random, step);
      const ExpectedResult expected = encoder.Encode(plan, &message);
      v1::StepPlan received;
      ASSERT_TRUE(received.ParseFromString(message.SerializeAsString()));
      ASSERT_EQ(Read(received), plan);

      const StepResult result = RandomResult(&random, expected);
      const absl::StatusOr<StepResult> decoded = DecodeStepResult(Write(result, expected), expected, kVocabSize);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      ASSERT_EQ(*decoded, result);
    }
  }
}

TEST(WireTest, PromptScoresAreDueForPositionsInsideThePrompt) {
  SamplingParams sampling;
  sampling.num_prompt_logprobs = 0;
  StepPlan plan;
  plan.starts.push_back({RowId{0}, SequenceId{1}, 0, 5, {1, 2, 3, 4, 5}, sampling});
  plan.slices.push_back({RowId{0}, 0, 3, 0, {}, false});
  v1::StepPlan message;
  PlanEncoder encoder;
  EXPECT_THAT(encoder.Encode(plan, &message).slices[0].prompt_tokens, ElementsAre(2, 3, 4));
  // The last prompt token has a logprob for position 5, which is not in the prompt.
  plan.starts.clear();
  plan.slices = {{RowId{0}, 3, 2, 0, {}, true}};
  EXPECT_THAT(encoder.Encode(plan, &message).slices[0].prompt_tokens, ElementsAre(5));
}

TEST(WireTest, AForkedRowAnswersAsItsParentDid) {
  SamplingParams beam;
  beam.num_candidates = 4;
  beam.num_prompt_logprobs = 2;
  StepPlan plan;
  plan.starts.push_back({RowId{2}, SequenceId{1}, 0, 3, {1, 2, 3}, beam});
  plan.starts.push_back({RowId{0}, SequenceId{2}, 0, 1, {1}, {}});
  v1::StepPlan message;
  PlanEncoder encoder;
  encoder.Encode(plan, &message);
  plan = {};
  plan.forks.push_back({RowId{5}, RowId{2}, SequenceId{3}, 1});  // A row that the encoder has not seen yet.
  plan.forks.push_back({RowId{2}, RowId{0}, SequenceId{4}, 1});
  plan.slices = {{RowId{5}, 1, 2, 0, {}, true}, {RowId{2}, 0, 1, 0, {}, true}, {RowId{0}, 0, 1, 0, {}, false}};
  const ExpectedResult expected = encoder.Encode(plan, &message);
  EXPECT_EQ(expected.num_candidate_lists, 1);
  EXPECT_EQ(expected.num_drawn, 1);
  EXPECT_EQ(expected.slices[0].num_candidates, 4);
  EXPECT_THAT(expected.slices[0].prompt_tokens, ElementsAre(3));
  EXPECT_EQ(expected.slices[1].num_candidates, 0);
  EXPECT_EQ(expected.slices[1].num_prompt_logprobs, -1);
}

// A row that pools in company of one that draws.
TEST(WireTest, EmbeddingsComeForSlicesThatEndThePromptOfARowWithAPooling) {
  SamplingParams pooled;
  pooled.pooling = Pooling::kMean;
  StepPlan plan;
  plan.starts.push_back({RowId{0}, SequenceId{1}, 0, 3, {1, 2, 3}, pooled});
  plan.starts.push_back({RowId{1}, SequenceId{2}, 0, 1, {1}, {}});
  plan.slices = {{RowId{0}, 0, 3, 0, {}, true}, {RowId{1}, 0, 1, 0, {}, true}};
  v1::StepPlan message;
  PlanEncoder encoder;
  const ExpectedResult expected = encoder.Encode(plan, &message);
  EXPECT_EQ(message.starts(0).sampling().pooling(), v1::POOLING_KIND_MEAN);
  EXPECT_EQ(message.starts(1).sampling().pooling(), v1::POOLING_KIND_UNSPECIFIED);
  EXPECT_EQ(expected.num_embeddings, 1);
  EXPECT_EQ(expected.num_drawn, 1);
  v1::StepResult answer;
  answer.add_token_ids(5);
  answer.add_embeddings(0.5f);
  answer.add_embeddings(-2);
  const auto decode = [&expected](const v1::StepResult& result, int size = 2) {
    const absl::StatusOr<StepResult> decoded = DecodeStepResult(result, expected, kVocabSize, size);
    return decoded.ok() ? "" : std::string(decoded.status().message());
  };
  const absl::StatusOr<StepResult> decoded = DecodeStepResult(answer, expected, kVocabSize, 2);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_THAT(decoded->slices[0].embedding, ElementsAre(0.5f, -2));
  EXPECT_TRUE(decoded->slices[0].sampled);
  EXPECT_EQ(decoded->slices[1].token.token, 5);
  EXPECT_EQ(decode(answer, 3), "worker sent embeddings: length 2, expected 3");
  answer.set_embeddings(1, std::numeric_limits<float>::infinity());
  EXPECT_EQ(decode(answer), "worker sent embeddings: no finite number at 1, expected one");
  answer.clear_embeddings();
  answer.add_postponed_slices(0);
  EXPECT_EQ(decode(answer),
            "worker sent postponed_slices 0, expected each slice that samples and has not failed, once");
  answer.clear_postponed_slices();
  v1::SequenceFailure* const failure = answer.add_failures();
  failure->set_sequence(1);
  EXPECT_EQ(decode(answer), "");
}

// Two sampled slices with two alternatives each, one with prompt scores, one with candidates.
class MalformedResultTest : public ::testing::Test {
 protected:
  MalformedResultTest() {
    expected_.step = StepId{7};
    expected_.num_drawn = 2;
    expected_.num_candidate_lists = 1;
    expected_.slices = {{true, 2, -1, {}}, {false, -1, 1, {4, 5, 6}}, {true, 2, -1, {}}, {true, 2, -1, {}, 3}};
    Random random(1);
    StepResult result = RandomResult(&random, expected_);
    result.slices[3].candidates = {{7, -0.5f}, {9, -0.5f}, {8, -2.0f}};
    message_ = Write(result, expected_);
    EXPECT_TRUE(DecodeStepResult(message_, expected_, kVocabSize).ok());
  }

  // Returns the error after one change to a correct answer.
  std::string ErrorAfter(const std::function<void(v1::StepResult*)>& change) {
    v1::StepResult message = message_;
    change(&message);
    const absl::StatusOr<StepResult> decoded = DecodeStepResult(message, expected_, kVocabSize);
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInternal);
    return std::string(decoded.status().message());
  }

  ExpectedResult expected_;
  v1::StepResult message_;
};

TEST_F(MalformedResultTest, TokenColumns) {
  EXPECT_EQ(ErrorAfter([](auto* m) { m->set_step(8); }), "worker sent step 8, expected 7");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->add_token_ids(1); }), "worker sent token_ids: length 3, expected 2");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->clear_token_ids(); }), "worker sent token_ids: length 0, expected 2");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->set_token_ids(1, 100); }), "worker sent token_ids 100, expected less than 100");
  EXPECT_THAT(ErrorAfter([](auto* m) { m->set_token_ids(0, 0xffffffff); }), HasSubstr("4294967295"));
}

TEST_F(MalformedResultTest, ScoreColumns) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(ErrorAfter([](auto* m) { m->clear_scores(); }), HasSubstr("scores.logprobs: length 0, expected 2"));
  EXPECT_THAT(ErrorAfter([](auto* m) { m->mutable_scores()->add_ranks(1); }), HasSubstr("scores.ranks: length 3"));
  EXPECT_THAT(ErrorAfter([](auto* m) { m->mutable_scores()->set_ranks(0, 0); }),
              HasSubstr("ranks 0, expected 1 .. 100"));
  EXPECT_THAT(ErrorAfter([](auto* m) { m->mutable_scores()->set_ranks(0, 101); }), HasSubstr("ranks 101"));
  EXPECT_THAT(ErrorAfter([](auto* m) { m->mutable_scores()->set_top_lengths(0, 1); }), HasSubstr("expected 3"));
  EXPECT_THAT(ErrorAfter([](auto* m) { m->mutable_scores()->set_top_lengths(0, 0x80000000); }), HasSubstr("length 4"));
  EXPECT_THAT(ErrorAfter([](auto* m) {
                m->mutable_scores()->set_top_lengths(0, 3);
                m->mutable_scores()->set_top_lengths(1, 1);
              }),
              HasSubstr("top_lengths 3, expected at most 2"));
  EXPECT_THAT(ErrorAfter([](auto* m) { m->mutable_scores()->set_top_token_ids(3, 100); }), HasSubstr("less than 100"));
  EXPECT_THAT(ErrorAfter([&](auto* m) { m->mutable_scores()->set_logprobs(1, nan); }), HasSubstr("NaN"));
  EXPECT_THAT(ErrorAfter([&](auto* m) { m->mutable_scores()->set_top_logprobs(2, nan); }), HasSubstr("NaN"));
}

TEST_F(MalformedResultTest, PromptScores) {
  EXPECT_THAT(ErrorAfter([](auto* m) { m->clear_prompt_scores(); }), HasSubstr("none for slice 1, expected 3"));
  EXPECT_THAT(ErrorAfter([](auto* m) { m->mutable_prompt_scores(0)->set_slice(4); }), HasSubstr("slice 4"));
  EXPECT_THAT(ErrorAfter([](auto* m) { m->mutable_prompt_scores(0)->set_slice(0); }),
              HasSubstr("length 3, expected 0"));
  EXPECT_THAT(ErrorAfter([](auto* m) { *m->add_prompt_scores() = m->prompt_scores(0); }), HasSubstr("each slice once"));
}

TEST_F(MalformedResultTest, CandidateColumns) {
  EXPECT_EQ(ErrorAfter([](auto* m) { m->add_candidate_lengths(1); }),
            "worker sent candidate_lengths: length 2, expected 1");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->clear_candidate_lengths(); }),
            "worker sent candidate_lengths: length 0, expected 1");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->set_candidate_lengths(0, 2); }),
            "worker sent candidate_token_ids: length 3, expected 2");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->add_candidate_logprobs(-3); }),
            "worker sent candidate_logprobs: length 4, expected 3");
  EXPECT_EQ(ErrorAfter([](auto* m) {
              m->set_candidate_lengths(0, 0);
              m->clear_candidate_token_ids();
              m->clear_candidate_logprobs();
            }),
            "worker sent candidate_lengths 0, expected 1 .. 3");
  EXPECT_EQ(ErrorAfter([](auto* m) {
              m->set_candidate_lengths(0, 4);
              m->add_candidate_token_ids(1);
              m->add_candidate_logprobs(-3);
            }),
            "worker sent candidate_lengths 4, expected 1 .. 3");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->set_candidate_token_ids(1, 100); }),
            "worker sent candidate_token_ids 100, expected less than 100");
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(ErrorAfter([&](auto* m) { m->set_candidate_logprobs(2, bad); }), HasSubstr("no finite number at 2"));
  }
  EXPECT_THAT(ErrorAfter([](auto* m) { m->set_candidate_logprobs(1, -0.25f); }), HasSubstr("a larger one at 1"));
}

// The sequences of the slices 1 and 2 have failed, so prompt scores, a token and its scores are missing.
class FailureColumnTest : public MalformedResultTest {
 protected:
  FailureColumnTest() {
    message_.clear_prompt_scores();
    message_.mutable_token_ids()->RemoveLast();
    v1::ScoreColumns* const scores = message_.mutable_scores();
    for (auto* column : {scores->mutable_ranks(), scores->mutable_top_lengths()}) column->RemoveLast();
    scores->mutable_logprobs()->RemoveLast();
    scores->mutable_top_token_ids()->Truncate(2);
    scores->mutable_top_logprobs()->Truncate(2);
    AddFailure(1, 31, v1::SEQUENCE_FAILURE_REASON_LOGITS_NOT_FINITE);
    AddFailure(2, 32, v1::SEQUENCE_FAILURE_REASON_GUIDE_TOO_EXPENSIVE);
  }

  void AddFailure(uint32_t slice, uint64_t sequence, v1::SequenceFailureReason reason) {
    v1::SequenceFailure* const failure = message_.add_failures();
    failure->set_slice(slice);
    failure->set_sequence(sequence);
    failure->set_reason(reason);
    failure->set_message("why");
  }
};

TEST_F(FailureColumnTest, NothingElseIsDueForASliceWithAFailure) {
  const absl::StatusOr<StepResult> result = DecodeStepResult(message_, expected_, kVocabSize);
  ASSERT_TRUE(result.ok()) << result.status();
  using Reason = SequenceFailure::Reason;
  EXPECT_EQ(result->slices[1].failure, (SequenceFailure{SequenceId{31}, Reason::kLogitsNotFinite, "why"}));
  EXPECT_EQ(result->slices[2].failure, (SequenceFailure{SequenceId{32}, Reason::kGuideTooExpensive, "why"}));
  EXPECT_FALSE(result->slices[2].sampled);
  EXPECT_TRUE(result->slices[0].sampled);
  EXPECT_EQ(result->slices[3].candidates.size(), 3u);
}

TEST_F(FailureColumnTest, AReasonOfALaterVersionIsUnknown) {
  message_.mutable_failures(0)->set_reason(static_cast<v1::SequenceFailureReason>(77));
  const absl::StatusOr<StepResult> result = DecodeStepResult(message_, expected_, kVocabSize);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->slices[1].failure->reason, SequenceFailure::Reason::kUnknown);
}

TEST_F(FailureColumnTest, FailuresThatDoNotFitArePointedOut) {
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_failures(0)->set_slice(4); }),
            "worker sent failures.slice 4, expected less than 4");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_failures(0)->set_slice(2); }),
            "worker sent failures.slice 2, expected each slice once");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_failures(0)->set_message(std::string(1025, 'x')); }),
            "worker sent failures.message: length 1025, expected at most 1024");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->add_token_ids(1); }), "worker sent token_ids: length 2, expected 1");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_failures()->RemoveLast(); }),
            "worker sent token_ids: length 1, expected 2");
}

// The draw of slice 2 is postponed, so a token and its scores are missing.
class PostponedColumnTest : public MalformedResultTest {
 protected:
  PostponedColumnTest() {
    message_.mutable_token_ids()->RemoveLast();
    v1::ScoreColumns* const scores = message_.mutable_scores();
    for (auto* column : {scores->mutable_ranks(), scores->mutable_top_lengths()}) column->RemoveLast();
    scores->mutable_logprobs()->RemoveLast();
    scores->mutable_top_token_ids()->Truncate(2);
    scores->mutable_top_logprobs()->Truncate(2);
    message_.add_postponed_slices(2);
  }
};

TEST_F(PostponedColumnTest, NoTokenIsDueForAPostponedSlice) {
  const absl::StatusOr<StepResult> result = DecodeStepResult(message_, expected_, kVocabSize);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->slices[2].is_postponed);
  EXPECT_FALSE(result->slices[2].sampled);
  EXPECT_FALSE(result->slices[0].is_postponed);
  EXPECT_TRUE(result->slices[0].sampled);
}

TEST_F(PostponedColumnTest, SlicesThatCannotBePostponedArePointedOut) {
  EXPECT_EQ(ErrorAfter([](auto* m) { m->set_postponed_slices(0, 4); }),
            "worker sent postponed_slices 4, expected less than 4");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->set_postponed_slices(0, 1); }),
            "worker sent postponed_slices 1, expected each slice that samples and has not failed, once");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->add_postponed_slices(2); }),
            "worker sent postponed_slices 2, expected each slice that samples and has not failed, once");
}

TEST_F(MalformedResultTest, TableColumns) {
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->add_sequences(1); }),
            "worker sent tables.sequences: length 1, expected 0");
  expected_.has_tables = true;
  for (int i = 0; i < 4; ++i) {
    message_.mutable_tables()->add_sequences(i);
    message_.mutable_tables()->add_computed_tokens(3);
    message_.mutable_tables()->add_table_lengths(i);
  }
  for (int i = 0; i < 6; ++i) message_.mutable_tables()->add_blocks(i);
  EXPECT_TRUE(DecodeStepResult(message_, expected_, kVocabSize).ok());
  EXPECT_EQ(ErrorAfter([](auto* m) { m->clear_tables(); }), "worker sent tables.sequences: length 0, expected 4");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->add_computed_tokens(1); }),
            "worker sent tables.computed_tokens: length 5, expected 4");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->clear_table_lengths(); }),
            "worker sent tables.table_lengths: length 0, expected 4");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->set_table_lengths(0, 1u << 31); }),
            "worker sent tables.blocks: length 6, expected 2147483654");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->add_groups(); }),
            "worker sent tables.groups: length 1, expected 0");

  expected_.blocks_per_sheet = {3};
  v1::GroupTables* const group = message_.mutable_tables()->add_groups();
  for (int i = 0; i < 4; ++i) {
    group->add_first_sheets(i);
    group->add_num_sheets(i % 2);
  }
  for (int i = 0; i < 6; ++i) group->add_blocks(i);
  EXPECT_TRUE(DecodeStepResult(message_, expected_, kVocabSize).ok());
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->clear_groups(); }),
            "worker sent tables.groups: length 0, expected 1");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->mutable_groups(0)->clear_first_sheets(); }),
            "worker sent tables.groups.first_sheets: length 0, expected 4");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->mutable_groups(0)->add_num_sheets(0); }),
            "worker sent tables.groups.num_sheets: length 5, expected 4");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->mutable_groups(0)->set_num_sheets(0, 1u << 31); }),
            "worker sent tables.groups.blocks: length 6, expected 6442450950");
  EXPECT_EQ(ErrorAfter([](auto* m) { m->mutable_tables()->mutable_groups(0)->set_first_sheets(2, 1u << 31); }),
            "worker sent tables.groups.first_sheets 2147483648, expected at most 2147483647");
}

TEST(DescriptionTest, NumbersThatWouldFillTheMemoryOfTheManagerAreRefused) {
  WorkerDescription worker;
  worker.vocab_size = 100;
  worker.block_size = 16;
  worker.num_blocks = 1000;
  worker.max_sequences = 8;
  const int64_t limit = 1000 * (192 + 64) + 8 * 256 + 100 * 32;
  EXPECT_EQ(CheckMemoryFor(worker, limit), absl::OkStatus());
  EXPECT_THAT(std::string(CheckMemoryFor(worker, limit - 1).message()),
              HasSubstr("for which the manager would need 255.1 KiB of memory; the limit is 255.1 KiB"));
  const auto exceeds = [&](int WorkerDescription::*field, int value) {
    WorkerDescription other = worker;
    other.*field = value;
    return CheckMemoryFor(other, int64_t{256} << 20).code() == absl::StatusCode::kFailedPrecondition;
  };
  EXPECT_TRUE(exceeds(&WorkerDescription::num_blocks, kMaxWorkerBlocks));
  EXPECT_TRUE(exceeds(&WorkerDescription::num_host_blocks, kMaxWorkerBlocks));
  EXPECT_TRUE(exceeds(&WorkerDescription::vocab_size, std::numeric_limits<int>::max()));
  worker.num_blocks = kMaxWorkerBlocks;
  EXPECT_TRUE(exceeds(&WorkerDescription::block_size, kMaxWorkerBlockSize)) << "the product needs 64 bits";
}

TEST(DescriptionTest, CountsOutOfRangeAreNamed) {
  v1::DescribeResponse good;
  good.set_protocol_version(1);
  good.set_vocab_size(100);
  good.set_max_context_tokens(64);
  good.set_block_size(16);
  good.set_num_blocks(8);
  good.set_num_host_blocks(5);
  good.set_max_sequences(4);
  good.set_max_tokens_per_step(32);
  good.add_eos_token_ids(99);
  good.set_bos_token_id(1);
  good.set_last_epoch(77);
  good.set_has_session(true);
  const absl::StatusOr<WorkerDescription> description = DecodeDescription(good);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->bos_token_id, 1);
  EXPECT_EQ(description->num_host_blocks, 5);
  EXPECT_EQ(description->last_epoch, 77u);
  EXPECT_TRUE(description->has_session);

  const auto error = [&good](const std::function<void(v1::DescribeResponse*)>& change) {
    v1::DescribeResponse message = good;
    change(&message);
    return std::string(DecodeDescription(message).status().message());
  };
  EXPECT_EQ(error([](auto* m) { m->set_protocol_version(2); }), "worker describes protocol_version 2, expected 1 .. 1");
  EXPECT_EQ(error([](auto* m) { m->set_eos_token_ids(0, 100); }),
            "worker describes eos_token_ids 100, expected 0 .. 99");
  EXPECT_THAT(error([](auto* m) { m->set_block_size(0); }), HasSubstr("block_size 0"));
  EXPECT_THAT(error([](auto* m) { m->set_num_blocks(0xffffffff); }), HasSubstr("num_blocks 4294967295"));
  EXPECT_EQ(error([](auto* m) { m->set_block_size(65537); }), "worker describes block_size 65537, expected 1 .. 65536");
  EXPECT_EQ(error([](auto* m) { m->set_num_blocks(16777217); }),
            "worker describes num_blocks 16777217, expected 1 .. 16777216");
  EXPECT_EQ(error([](auto* m) { m->set_num_host_blocks(16777217); }),
            "worker describes num_host_blocks 16777217, expected 0 .. 16777216");
  EXPECT_EQ(error([](auto* m) { m->set_max_sequences(65537); }),
            "worker describes max_sequences 65537, expected 1 .. 65536");
  EXPECT_THAT(error([](auto* m) { m->set_vocab_size(0); }), HasSubstr("vocab_size 0"));
  EXPECT_THAT(error([](auto* m) { m->set_last_epoch(~uint64_t{0}); }), HasSubstr("last_epoch 18446744073709551615"));
}

TEST(DescriptionTest, AGroupThatNoManagerKnowsIsNamed) {
  v1::DescribeResponse good;
  good.set_protocol_version(2);
  good.set_vocab_size(100);
  good.set_max_context_tokens(64);
  good.set_block_size(16);
  good.set_num_blocks(8);
  good.set_max_sequences(4);
  good.set_max_tokens_per_step(32);
  good.set_orphan_hold_ms(1000);
  for (const bool is_window : {false, true}) {
    v1::CacheGroup* const group = good.add_groups();
    group->set_name(is_window ? "window 8" : "full");
    group->set_tokens_per_sheet(16);
    group->set_blocks_per_sheet(is_window ? 3 : 1);
    group->set_retention(is_window ? v1::CACHE_RETENTION_WINDOW : v1::CACHE_RETENTION_ALL);
    group->set_window_tokens(is_window ? 8 : 0);
  }
  const auto error = [&good](const std::function<void(v1::DescribeResponse*)>& change) {
    v1::DescribeResponse message = good;
    change(&message);
    return std::string(DecodeDescription(message).status().message());
  };
  const std::vector<CacheGroup> groups = {{}, {.window_tokens = 8, .blocks_per_sheet = 3}};
  const absl::StatusOr<WorkerDescription> description = DecodeDescription(good);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->groups, groups);
  EXPECT_FALSE(description->keeps_rows) << "no inventory tells the sheets";
  EXPECT_EQ(error([](auto* m) {
              m->mutable_groups(0)->set_retention(v1::CACHE_RETENTION_WINDOW);
              m->mutable_groups(0)->set_window_tokens(8);
            }),
            "worker describes groups[0].retention 2, expected 1");
  EXPECT_EQ(error([](auto* m) { m->set_protocol_version(1); }), "worker describes protocol_version 1, expected 2 .. 2");
  EXPECT_EQ(error([](auto* m) { m->set_protocol_version(3); }), "worker describes protocol_version 3, expected 1 .. 2");
  EXPECT_EQ(error([](auto* m) {
              for (int i = 0; i < 7; ++i) *m->add_groups() = m->groups(1);
            }),
            "worker describes groups: length 9, expected 1 .. 8");
  EXPECT_EQ(error([](auto* m) { m->mutable_groups(1)->set_retention(static_cast<v1::CacheRetention>(3)); }),
            "worker describes groups[1].retention 3, expected 1 or 2");
  EXPECT_EQ(error([](auto* m) { m->mutable_groups(1)->set_tokens_per_sheet(32); }),
            "worker describes groups[1].tokens_per_sheet 32, expected block_size, which is 16");
  EXPECT_EQ(error([](auto* m) { m->mutable_groups(0)->set_blocks_per_sheet(2); }),
            "worker describes groups[0].blocks_per_sheet 2, expected 1 .. 1");
  EXPECT_EQ(error([](auto* m) { m->mutable_groups(1)->set_blocks_per_sheet(0); }),
            "worker describes groups[1].blocks_per_sheet 0, expected 1 .. 64");
  EXPECT_EQ(error([](auto* m) { m->mutable_groups(1)->set_window_tokens(0); }),
            "worker describes groups[1].window_tokens 0, expected 1 .. 1073741824");
  EXPECT_EQ(error([](auto* m) { m->mutable_groups(0)->set_window_tokens(4); }),
            "worker describes groups[0].window_tokens 4, expected 0");
}

TEST(DescriptionTest, RanksTellTheirPlaceAndWhatTheyHaveDigested) {
  v1::DescribeResponse rank;
  rank.set_protocol_version(1);
  rank.set_vocab_size(100);
  rank.set_max_context_tokens(64);
  rank.set_block_size(16);
  rank.set_num_blocks(8);
  rank.set_max_sequences(4);
  rank.set_max_tokens_per_step(32);
  ASSERT_TRUE(DecodeDescription(rank).ok());
  EXPECT_EQ(DecodeDescription(rank)->place, WorkerDescription::RankPlace());
  v1::RankPlace* const place = rank.mutable_place();
  place->set_group_id("g");
  place->set_rank(1);
  place->set_size(2);
  place->set_transport_address("there");
  place->add_addresses("a:1");
  place->add_addresses("[::1]:2");
  place->mutable_weights()->set_text("a config");
  place->mutable_weights()->add_names("a");
  place->mutable_weights()->add_names("b");
  place->mutable_weights()->add_digests("12");
  place->mutable_weights()->add_digests("");
  const absl::StatusOr<WorkerDescription> description = DecodeDescription(rank);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->place,
            (WorkerDescription::RankPlace{
                .group_id = "g", .rank = 1, .size = 2, .transport_address = "there", .addresses = {"a:1", "[::1]:2"}}));
  TensorDigests weights("a config");
  weights.Set("a", "12");
  weights.Set("b", "");
  EXPECT_EQ(description->weights, weights);

  const auto error = [&rank](const std::function<void(v1::RankPlace*)>& change) {
    v1::DescribeResponse message = rank;
    change(message.mutable_place());
    return std::string(DecodeDescription(message).status().message());
  };
  EXPECT_EQ(error([](auto* m) { m->set_size(9); }), "worker describes place.size 9, expected 1 .. 8");
  EXPECT_EQ(error([](auto* m) { m->set_rank(2); }), "worker describes place.rank 2, expected 0 .. 1");
  EXPECT_EQ(error([](auto* m) { m->set_group_id(""); }), "worker describes place.group_id: length 0, expected 1 .. 64");
  EXPECT_EQ(error([](auto* m) { m->set_transport_address(std::string(4097, 'a')); }),
            "worker describes place.transport_address: length 4097, expected 1 .. 4096");
  EXPECT_EQ(error([](auto* m) { m->add_addresses("c:3"); }),
            "worker describes place.addresses: length 3, expected 2 .. 2");
  EXPECT_EQ(error([](auto* m) { m->set_addresses(1, "unix:/b\n"); }),
            "worker describes place.addresses with \"unix:/b\\n\", expected host:port");
  EXPECT_EQ(error([](auto* m) { m->mutable_weights()->add_names("c"); }),
            "worker describes place.weights.digests: length 2, expected 3 .. 3");
}

TEST(PlanEncoderTest, PlanForARankThatTellsDigestsNeedsNoRowsOfEarlierSessions) {
  StepPlan plan;
  plan.step = StepId{1};
  plan.forks.push_back({.row = RowId{3}, .parent = RowId{2}, .sequence = SequenceId{9}, .sample_index = 1});
  plan.slices.push_back({RowId{2}, 4, 1, 0, {BlockId{9}}, true});
  PlanEncoder encoder(PlanEncoder::Answers::kDigests);
  v1::StepPlan message;
  const ExpectedResult expected = encoder.Encode(plan, &message);
  EXPECT_EQ(expected.step, StepId{1});
  EXPECT_TRUE(expected.slices.empty());
  EXPECT_EQ(message.slice_rows_size(), 1);
  EXPECT_EQ(message.fork_parents(0), 2u);
}

TEST(RankResultTest, RanksAboveZeroTellTheirDigestAlone) {
  v1::StepResult message;
  message.set_step(7);
  message.set_digest(11);
  message.set_duration_us(5);
  const absl::StatusOr<StepResult> result = DecodeRankResult(message, StepId{7});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result, (StepResult{.step = StepId{7}, .slices = {}, .digest = 11}));
  EXPECT_THAT(std::string(DecodeRankResult(message, StepId{8}).status().message()), HasSubstr("step"));
  message.add_token_ids(1);
  EXPECT_THAT(std::string(DecodeRankResult(message, StepId{7}).status().message()),
              HasSubstr("size of a result that is a digest"));
}

}  // namespace
}  // namespace quire
