// SPDX-License-Identifier: Apache-2.0

// A worker whose layers keep K and V in several cache groups. Its results have the same bits as those of a worker with
// one group, although every block that no slice may read is full of NaNs, and whatever a scheduler does with its
// blocks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated_device.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/worker_link/wire.h"
#include "scheduler/request_size.h"
#include "scheduler/scheduler.h"
#include "tests/random.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/plan_builder.h"
#include "tools/make_model/model_shape.h"
#include "tools/make_model/safetensors_writer.h"
#include "worker/block_storage.h"
#include "worker/device_check.h"
#include "worker/executor.h"
#include "worker/model/model.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

constexpr int kContext = 384, kVocabulary = 96, kMaxSequences = 4, kMaxTokens = 64;
constexpr uint32_t kNumBlocks = 400, kNumHostBlocks = 128;

// Where a layer keeps its K and V, and which tokens it sees.
struct LayerPlace {
  int window;
  int column;
  int slot;
};

// The cache groups of a model with these layers.
struct Arrangement {
  std::string name;
  std::vector<LayerPlace> layers;
  std::vector<CacheGroup> groups;
};

std::vector<Arrangement> Arrangements() {
  return {{"FullAndWindow", {{34, 1, 0}, {0, 0, 0}}, {{}, {.window_tokens = 34}}},
          {"ThreeGroups",
           {{40, 1, 0}, {0, 0, 0}, {40, 2, 0}, {300, 3, 0}},
           {{}, {.window_tokens = 40, .blocks_per_sheet = 2}, {.window_tokens = 300}}},
          {"TwoSlots",
           {{0, 0, 0}, {32, 1, 0}, {32, 1, 1}, {0, 0, 1}, {32, 2, 0}},
           {{}, {.window_tokens = 32, .blocks_per_sheet = 2}}},
          {"WindowAlone", {{50, 0, 0}, {50, 0, 1}}, {{.window_tokens = 50}}}};
}

// Returns the directory of a random model with heads of 64.
const std::string& ModelWith(int num_layers) {
  static std::map<int, TestDirectory> directories;
  TestDirectory& directory = directories[num_layers];
  make_model::ModelShape shape;
  shape.layers = num_layers;
  shape.dim = 64;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.ffn = 64;
  shape.head_dim = 64;
  shape.vocab = kVocabulary;
  shape.context = kContext;
  directory.Write("config.json", make_model::ConfigJson(shape, Name(DataType::kFloat32)));
  const absl::Status status = make_model::WriteRandomTensors(make_model::TensorsOf(shape), DataType::kFloat32, 1,
                                                             directory.path() + "/model.safetensors");
  QUIRE_CHECK(status.ok()) << status;
  return directory.path();
}

// A device, and how it keeps K and V.
struct Device {
  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
  KvType kv_type;
  int block_size;
};

std::vector<Device> Devices() {
  std::vector<Device> devices;
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    const auto make = [isa] { return cpu::MakeCpuBackend(1, isa); };
    for (const KvType type : {KvType::kFloat32, KvType::kBFloat16, KvType::kInt8}) {
      devices.push_back({absl::StrCat(cpu::Name(isa), "_", Name(type)), make, type, 16});
    }
    devices.push_back({absl::StrCat(cpu::Name(isa), "_float16_4"), make, KvType::kFloat16, 4});
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // The emulator would take minutes.
  for (const KvType type : {KvType::kBFloat16, KvType::kInt8}) {
    const auto make = [] {
      return std::make_unique<cuda::CudaBackend>(std::make_unique<cuda::EmulatedDevice>(), cuda::CudaBackendOptions{});
    };
    devices.push_back({absl::StrCat("gpu_", Name(type)), make, type, 32});
  }
#endif
  return devices;
}

// A worker with a pool.
class GroupWorker {
 public:
  // Without `has_groups`, all layers are in one group.
  GroupWorker(const Device& device, const Arrangement& arrangement, bool has_groups) : backend_(device.make()) {
    auto model = LoadModel(ModelWith(static_cast<int>(arrangement.layers.size())), backend_.get());
    QUIRE_CHECK(model.ok()) << model.status();
    model_ = *std::move(model);
    ModelConfig& config = model_->config;
    if (has_groups) config.cache_groups = arrangement.groups;
    for (size_t i = 0; i < arrangement.layers.size(); ++i) {
      config.layers[i].window = arrangement.layers[i].window;
      if (!has_groups) continue;
      config.layers[i].column = arrangement.layers[i].column;
      config.layers[i].slot = arrangement.layers[i].slot;
    }
    limits_ = {.max_sequences = kMaxSequences,
               .max_tokens_per_step = kMaxTokens,
               .max_context_tokens = kContext,
               .vocab_size = kVocabulary,
               .block_size = device.block_size,
               .num_blocks = kNumBlocks,
               .num_host_blocks = kNumHostBlocks,
               .groups = config.cache_groups};
    auto storage = BlockStorage::Create(backend_.get(), LayoutOf(config, device.block_size, device.kv_type), kNumBlocks,
                                        kNumHostBlocks, /*prefault=*/false);
    QUIRE_CHECK(storage.ok()) << storage.status();
    storage_ = *std::move(storage);
    auto executor = Executor::Create(backend_.get(), model_.get(), storage_.get(), limits_, /*max_logit_rows=*/64);
    QUIRE_CHECK(executor.ok()) << executor.status();
    executor_ = *std::move(executor);
  }

  // Writes ones to all bits of a block, which are NaNs: of numbers of all types, or of scales.
  void Poison(uint32_t block) {
    const std::vector<char> ones(storage_->layout().block_bytes(), '\xff');
    for (int slot = 0; slot < storage_->layout().num_layers; ++slot) {
      backend_->CopyToDevice(static_cast<char*>(storage_->pools()[slot]) + block * ones.size(), ones.data(),
                             ones.size());
    }
  }

  absl::StatusOr<v1::StepResult> Run(const v1::StepPlan& plan) {
    v1::StepResult result;
    const absl::Status status = executor_->Run(plan, &result);
    if (!status.ok()) return status;
    return result;
  }

  const WorkerLimits& limits() const { return limits_; }
  int vocab_size() const { return model_->config.vocab_size; }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  WorkerLimits limits_;
  std::unique_ptr<BlockStorage> storage_;
  std::unique_ptr<Executor> executor_;
};

// A slice of a session.
struct SessionSlice {
  uint32_t row;
  int first_position = 0;
  int num_tokens = 0;
  bool samples = false;
  std::vector<TokenId> prompt = {};  // Of the sequence that the slice starts; otherwise empty.
};
using Session = std::vector<std::vector<SessionSlice>>;  // Step after step.

// Three rows run prompts in random chunks and then decode. The first prompt is so long that its tables begin late
// (kWindowAlignment). Whoever has decoded ten tokens makes room for another
// prompt.
Session RandomSession(Random* random) {
  struct Row {
    int length = 0;  // Of the prompt.
    int computed = 0;
  };
  std::vector<Row> rows(3);
  Session session(26);
  int next_length = 310;
  for (auto& slices : session) {
    for (uint32_t i = 0; i < rows.size(); ++i) {
      Row& row = rows[i];
      SessionSlice slice{.row = i};
      if (row.computed >= row.length + 10 || row.length == 0) {
        row = {.length = next_length};
        next_length = random->Between(2, 60);
        for (int k = 0; k < row.length; ++k) slice.prompt.push_back(random->Between(3, kVocabulary - 1));
      }
      if (random->Between(0, 5) == 0 && slice.prompt.empty()) continue;
      slice.first_position = row.computed;
      slice.num_tokens = row.computed < row.length ? std::min(row.length - row.computed, random->Between(1, 20)) : 1;
      if (row.length == 310 && row.computed < 280) slice.num_tokens = 24;
      row.computed += slice.num_tokens;
      slice.samples = row.computed >= row.length;
      slices.push_back(std::move(slice));
    }
  }
  return session;
}

// Gives the slices of a session their blocks, in a random order. A sheet leaves a row when a slice begins that may not
// read it.
class TableKeeper {
 public:
  TableKeeper(const WorkerLimits& limits, uint64_t seed) : limits_(limits), random_(seed), free_(limits.num_blocks) {
    std::iota(free_.begin(), free_.end(), 0u);
  }

  v1::StepPlan PlanOf(const std::vector<SessionSlice>& slices, uint64_t step) {
    PlanBuilder plan(step);
    v1::RowSampling sampling = Greedy();
    sampling.set_num_logprobs_plus_one(5);
    for (const SessionSlice& slice : slices) {
      if (!slice.prompt.empty()) {
        for (auto& table : tables_[slice.row]) Release(&table.second, kContext);
        plan.Start(slice.row, slice.prompt, sampling);
      }
      for (int group = 0; group < static_cast<int>(limits_.groups.size()); ++group) {
        auto& table = tables_[slice.row][group];
        Release(&table, limits_.FirstSheet(group, slice.first_position));
        const int first = slice.first_position == 0 ? 0 : limits_.NumBlocksFor(slice.first_position);
        const int end = limits_.NumBlocksFor(slice.first_position + slice.num_tokens);
        std::vector<uint32_t> blocks;
        for (int sheet = first; sheet < end; ++sheet) {
          for (int part = 0; part < limits_.groups[group].blocks_per_sheet; ++part) {
            blocks.push_back(Take());
            table[sheet].push_back(blocks.back());
          }
        }
        if (group == 0) {
          plan.Slice(slice.row, slice.first_position, slice.num_tokens, slice.samples, blocks, first);
        } else if (first < end) {
          plan.Sheets(group, first, end - first, blocks);
        }
      }
    }
    return plan.plan();
  }

  // The blocks that no row may read.
  const std::vector<uint32_t>& free() const { return free_; }

 private:
  using Table = std::map<int, std::vector<uint32_t>>;  // The live sheets.

  uint32_t Take() {
    const int at = random_.Between(0, static_cast<int>(free_.size()) - 1);
    std::swap(free_[at], free_.back());
    const uint32_t block = free_.back();
    free_.pop_back();
    return block;
  }
  // Releases the sheets before `sheet`.
  void Release(Table* table, int sheet) {
    for (auto it = table->begin(); it != table->end() && it->first < sheet; it = table->erase(it)) {
      free_.insert(free_.end(), it->second.begin(), it->second.end());
    }
  }

  const WorkerLimits limits_;
  Random random_;
  std::vector<uint32_t> free_;
  std::map<uint32_t, std::map<int, Table>> tables_;  // By row and group.
};

class CacheGroupsTest : public ::testing::TestWithParam<std::tuple<Device, Arrangement>> {};

TEST_P(CacheGroupsTest, NoBlockBehindAWindowChangesABit) {
  const auto& [device, arrangement] = GetParam();
  GroupWorker one(device, arrangement, /*has_groups=*/false), several(device, arrangement, /*has_groups=*/true);
  Random random(5);
  const Session session = RandomSession(&random);
  TableKeeper one_tables(one.limits(), 1), tables(several.limits(), 2);
  int num_sampled = 0;
  for (size_t i = 0; i < session.size(); ++i) {
    const auto expected = one.Run(one_tables.PlanOf(session[i], i + 1));
    ASSERT_TRUE(expected.ok()) << expected.status();
    const v1::StepPlan plan = tables.PlanOf(session[i], i + 1);
    for (const uint32_t block : tables.free()) several.Poison(block);
    auto actual = several.Run(plan);
    ASSERT_TRUE(actual.ok()) << actual.status();
    actual->set_duration_us(expected->duration_us());
    ASSERT_EQ(actual->SerializeAsString(), expected->SerializeAsString()) << "step " << i + 1;
    ASSERT_EQ(actual->failures_size(), 0);
    num_sampled += actual->token_ids_size();
  }
  EXPECT_GT(num_sampled, 20);
}

INSTANTIATE_TEST_SUITE_P(All, CacheGroupsTest,
                         ::testing::Combine(::testing::ValuesIn(Devices()), ::testing::ValuesIn(Arrangements())),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
                         });

// What a request has told by position and sample: tokens with their logprobs, and how the samples have ended.
struct Answers {
  std::map<std::tuple<RequestId, int, int>, ScoredToken> tokens;
  std::map<std::tuple<RequestId, int>, std::vector<ScoredToken>> prompt_logprobs;
  std::map<std::tuple<RequestId, int>, std::pair<FinishReason, float>> ends;
};

// Requests with samples, beams and logprobs.
std::vector<Request> RandomRequests() {
  Random random(7);
  std::vector<Request> requests;
  for (int i = 0; i < 14; ++i) {
    Request request;
    request.id = RequestId{static_cast<uint64_t>(i + 1)};
    const int length = i % 3 == 0 ? random.Between(100, 200) : random.Between(1, 60);
    for (int k = 0; k < length; ++k) request.prompt.push_back(random.Between(3, kVocabulary - 1));
    request.max_tokens = random.Between(30, 100);
    request.sampling.seed = random.Next();
    request.sampling.temperature = 1;
    request.sampling.num_logprobs = 2;
    if (i % 5 == 1) request.sampling.num_prompt_logprobs = 1;
    if (i % 6 == 1) request.num_samples = 2;
    if (i % 6 == 4) request.beam = BeamParams{.width = 2, .num_return = 2};
    requests.push_back(std::move(request));
  }
  return requests;
}

// Runs the requests with two plans in flight.
Answers RunScheduled(const std::vector<Request>& requests, const PagedBlockManagerOptions& block_options,
                     GroupWorker* worker, SchedulerCounts* counts) {
  PagedBlockManager blocks(block_options);
  SchedulerOptions options;
  options.max_sequences = kMaxSequences;
  options.max_tokens_per_step = kMaxTokens;
  options.max_chunk_tokens = block_options.max_slice_tokens;
  options.max_context_tokens = kContext;
  options.watermark = 0;
  Scheduler scheduler(options, &blocks);
  for (const Request& request : requests) {
    const absl::Status status = scheduler.Submit(request);
    QUIRE_CHECK(status.ok()) << status;
  }
  PlanEncoder encoder(PlanEncoder::Answers::kResults, worker->limits().groups);
  std::deque<std::pair<v1::StepPlan, ExpectedResult>> sent;
  Answers answers;
  for (;;) {
    const StepPlan plan = scheduler.Plan();
    if (!plan.empty()) {
      v1::StepPlan encoded;
      ExpectedResult expected = encoder.Encode(plan, &encoded);
      sent.emplace_back(std::move(encoded), std::move(expected));
      if (sent.size() < 2) continue;
    }
    if (sent.empty()) break;
    const auto run = worker->Run(sent.front().first);
    QUIRE_CHECK(run.ok()) << run.status();
    auto result = DecodeStepResult(*run, std::move(sent.front().second), worker->vocab_size());
    QUIRE_CHECK(result.ok()) << result.status();
    sent.pop_front();
    const StepOutput output = scheduler.Commit(*std::move(result));
    QUIRE_CHECK(output.failed.empty());
    for (const Emission& token : output.emissions) {
      answers.tokens[{token.request, token.sample_index, token.position}] = token.token;
    }
    for (const PromptLogprobs& part : output.prompt_logprobs) {
      for (size_t i = 0; i < part.tokens.size(); ++i) {
        answers.prompt_logprobs[{part.request, part.first_position + static_cast<int>(i)}] = {part.tokens[i]};
      }
    }
    for (const Finished& end : output.finished) {
      answers.ends[{end.request, end.sample_index}] = {end.reason, end.score};
    }
  }
  QUIRE_CHECK_EQ(blocks.counts().used, 0);
  *counts = scheduler.counts();
  QUIRE_CHECK_EQ(counts->waiting + counts->running, 0);
  return answers;
}

class ScheduledGroupsTest : public ::testing::TestWithParam<std::tuple<Device, Arrangement>> {};

// The pools have room for the largest request alone.
TEST_P(ScheduledGroupsTest, ForksBeamsSwapsAndPreemptionsChangeNoBit) {
  const auto& [device, arrangement] = GetParam();
  const std::vector<Request> requests = RandomRequests();
  GroupWorker one(device, arrangement, /*has_groups=*/false);
  SchedulerCounts counts;
  const Answers expected = RunScheduled(
      requests, {.num_blocks = kNumBlocks, .block_size = device.block_size, .has_prefix_cache = false}, &one, &counts);
  EXPECT_GT(expected.tokens.size(), 300u);
  EXPECT_EQ(counts.preemptions, 0);
  for (const int chunk : {5, kMaxTokens}) {
    for (const int num_host_blocks : {0, static_cast<int>(kNumHostBlocks)}) {
      SCOPED_TRACE(absl::StrCat("slices of ", chunk, ", ", num_host_blocks, " host blocks"));
      const CacheGroups groups(device.block_size, arrangement.groups, chunk);
      int64_t num_blocks = 0;
      for (const Request& request : requests) num_blocks = std::max(num_blocks, MaxBlocks(request, groups));
      ASSERT_LE(num_blocks, kNumBlocks);
      GroupWorker several(device, arrangement, /*has_groups=*/true);
      const Answers actual = RunScheduled(requests,
                                          {.num_blocks = static_cast<int>(num_blocks),
                                           .block_size = device.block_size,
                                           .groups = arrangement.groups,
                                           .max_slice_tokens = chunk,
                                           .num_host_blocks = num_host_blocks},
                                          &several, &counts);
      EXPECT_EQ(actual.tokens, expected.tokens);
      EXPECT_EQ(actual.prompt_logprobs, expected.prompt_logprobs);
      EXPECT_EQ(actual.ends, expected.ends);
      EXPECT_GT(counts.preemptions, 0) << "the pool was meant to be too small";
      EXPECT_GT(counts.forks, 0);
      EXPECT_EQ(counts.swap_outs > 0, num_host_blocks > 0);
    }
  }
}

// The device and the type of K and V matter little here: the attention of all of them was compared above.
std::vector<Device> ScheduledDevices() {
  const std::vector<Device> devices = Devices();
  return {devices[0], devices[2], devices[3]};
}

// A manager keeps block tables of all tokens, so a window does not stand alone.
std::vector<Arrangement> ScheduledArrangements() {
  std::vector<Arrangement> arrangements = Arrangements();
  std::erase_if(arrangements, [](const Arrangement& each) { return each.groups[0].window_tokens > 0; });
  return arrangements;
}

INSTANTIATE_TEST_SUITE_P(All, ScheduledGroupsTest,
                         ::testing::Combine(::testing::ValuesIn(ScheduledDevices()),
                                            ::testing::ValuesIn(ScheduledArrangements())),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
                         });

// Sheets have 16 tokens. Group 1 has a window of 16 tokens.
class GroupPlanTest : public ::testing::Test {
 protected:
  GroupPlanTest()
      : worker_(Devices().front(), {"", {{16, 1, 0}, {0, 0, 0}}, {{}, {.window_tokens = 16}}}, /*has_groups=*/true) {}

  void RunOrDie(const PlanBuilder& plan) {
    const auto result = worker_.Run(plan.plan());
    ASSERT_TRUE(result.ok()) << result.status();
  }
  std::string ErrorOf(const PlanBuilder& plan) { return ErrorOf(plan.plan()); }
  std::string ErrorOf(const v1::StepPlan& plan) { return std::string(worker_.Run(plan).status().message()); }
  // A prompt of 40 tokens in row 0.
  static PlanBuilder First() {
    return PlanBuilder(1).Start(0, Tokens(10, 40)).Slice(0, 0, 40, true, Blocks(0, 3)).Sheets(1, 0, 3, Blocks(10, 3));
  }

  GroupWorker worker_;
};

TEST_F(GroupPlanTest, ASliceNeedsTheSheetsOfItsWindow) {
  EXPECT_EQ(ErrorOf(PlanBuilder(1).Start(0, Tokens(10, 40)).Slice(0, 0, 40, true, Blocks(0, 3))),
            "slice 0 needs the sheets 0 to 2 of group 1, its row has 0 from sheet 0 on");
}

// A slice at 32 may read the tokens from 16 on.
TEST_F(GroupPlanTest, ARowMayBeginBehindSheetsThatItsWindowHasLeft) {
  RunOrDie(First());
  RunOrDie(PlanBuilder(2).Start(1, Tokens(10, 40)).Slice(1, 32, 8, true, {0, 1, 3}).Sheets(1, 1, 2, {11, 13}));
  EXPECT_EQ(ErrorOf(PlanBuilder(3).Start(2, Tokens(10, 40)).Slice(2, 32, 8, true, {0, 1, 4}).Sheets(1, 2, 1, {14})),
            "slice 0 needs the sheets 1 to 2 of group 1, its row has 1 from sheet 2 on");
}

TEST_F(GroupPlanTest, BlocksThatASliceMayNoLongerReadCanBeWrittenByAnother) {
  RunOrDie(First());
  RunOrDie(
      PlanBuilder(2).Slice(0, 40, 1, true).Start(1, Tokens(50, 5)).Slice(1, 0, 5, true, {4}).Sheets(1, 0, 1, {10}));
  EXPECT_EQ(
      ErrorOf(
          PlanBuilder(3).Slice(0, 41, 1, true).Start(2, Tokens(50, 5)).Slice(2, 0, 5, true, {5}).Sheets(1, 0, 1, {12})),
      "block 12 is written by slice 1 and by slice 0");
}

TEST_F(GroupPlanTest, BlocksThatASliceMayReadAreWrittenByNoOther) {
  RunOrDie(PlanBuilder(1).Start(0, Tokens(10, 40)).Slice(0, 0, 36, false, Blocks(0, 3)).Sheets(1, 0, 3, Blocks(10, 3)));
  EXPECT_EQ(
      ErrorOf(
          PlanBuilder(2).Slice(0, 36, 4, true).Start(1, Tokens(50, 5)).Slice(1, 0, 5, true, {4}).Sheets(1, 0, 1, {11})),
      "block 11 is read by slice 0 and written by slice 1");
}

TEST_F(GroupPlanTest, AForkHasTheTablesOfItsParent) {
  RunOrDie(First());
  const auto result = worker_.Run(PlanBuilder(2)
                                      .Slice(0, 40, 1, true)
                                      .Fork(1, 0)
                                      .Copy(2, 8)
                                      .Copy(12, 9)
                                      .Slice(1, 40, 1, true, {8}, 2)
                                      .Sheets(1, 2, 1, {9})
                                      .WantTables()
                                      .plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->token_ids(0), result->token_ids(1));
  ASSERT_EQ(result->tables().groups_size(), 1);
  const v1::GroupTables& tables = result->tables().groups(0);
  EXPECT_THAT(tables.first_sheets(), ElementsAre(1, 1)) << "the tokens from 24 on";
  EXPECT_THAT(tables.num_sheets(), ElementsAre(2, 2));
  EXPECT_THAT(tables.blocks(), ElementsAre(11, 12, 11, 9));
}

TEST_F(GroupPlanTest, ChangesOfTablesAreChecked) {
  const auto error_of = [this](const std::function<void(v1::StepPlan*)>& change) {
    v1::StepPlan plan = First().plan();
    change(&plan);
    return ErrorOf(plan);
  };
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->clear_change_groups(); }),
            "change_groups has 0 entries, change_slices has 1");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->add_change_first_sheets(0); }),
            "change_first_sheets has 2 entries, change_slices has 1");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->add_change_num_sheets(1); }),
            "change_num_sheets has 2 entries, change_slices has 1");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->set_change_slices(0, 1); }),
            "change_slices[0] is 1, it must be below 1");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->set_change_groups(0, 2); }),
            "change_groups[0] is 2, it must be below 2");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->set_change_groups(0, 0); }),
            "change_groups[0] is 0, slices tell the changes of that group");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->set_change_num_sheets(0, 0); }),
            "change_num_sheets[0] is 0, it must be at least 1");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->set_change_first_sheets(0, 22); }),
            "change_first_sheets[0] is 22 with 3 sheets, the model's context has 24");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->set_change_first_sheets(0, 0xffffffff); }),
            "change_first_sheets[0] is 4294967295 with 3 sheets, the model's context has 24");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->add_change_blocks(5); }),
            "the sheets of change_num_sheets have 3 blocks, change_blocks has 4 entries");
  EXPECT_EQ(error_of([](v1::StepPlan* plan) { plan->set_change_blocks(1, kNumBlocks); }),
            "change_blocks[1] is 400, it must be below 400");
  EXPECT_EQ(ErrorOf(First().Sheets(1, 0, 1, {20})), "change_slices[1] is 0 for group 1, after slice 0 for group 1");
}

// Otherwise the first sheet of a window could have slots that nobody has written.
TEST(GroupWorkerTest, AWindowIsNotSmallerThanABlock) {
  const Arrangement arrangement = {"", {{15, 1, 0}, {0, 0, 0}}, {{}, {.window_tokens = 15}}};
  EXPECT_DEATH(GroupWorker(Devices().front(), arrangement, /*has_groups=*/true),
               "the window of a cache group has 15 tokens, a block has 16, which must not be more");
}

TEST(OneGroupTest, KnowsNoOtherGroup) {
  GroupWorker worker(Devices().front(), Arrangements().front(), /*has_groups=*/false);
  const auto result =
      worker.Run(PlanBuilder(1).Start(0, Tokens(10, 4)).Slice(0, 0, 4, true, {0}).Sheets(1, 0, 1, {1}).plan());
  EXPECT_EQ(result.status().message(), "change_groups[0] is 1, it must be below 1");
}

}  // namespace
}  // namespace quire
