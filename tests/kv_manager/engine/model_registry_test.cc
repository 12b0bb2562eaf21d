#include "kv_manager/engine/model_registry.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kv_manager/engine/fake_worker.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr int kNoCap = 1 << 30;

TEST(ModelRegistryTest, ThereIsNoModelBeforeTheFirstWorker) {
  EXPECT_EQ(ModelRegistry(kNoCap).model(), nullptr);
}

TEST(ModelRegistryTest, TheFirstWorkerDecidesAndItsEqualsMayJoin) {
  ModelRegistry registry(kNoCap);
  ASSERT_TRUE(registry.Admit(SmallWorker()).ok());
  const auto model = registry.model();
  WorkerDescription larger = SmallWorker();
  larger.num_blocks *= 2;
  larger.device = "another machine";
  EXPECT_TRUE(registry.Admit(larger).ok());
  EXPECT_EQ(registry.model(), model);
}

TEST(ModelRegistryTest, TheContextCanBeCapped) {
  ModelRegistry registry(40);
  ASSERT_TRUE(registry.Admit(SmallWorker()).ok());
  EXPECT_EQ(registry.model()->max_context_tokens, 40);
}

TEST(ModelRegistryTest, WhatDiffersIsNamedWithBothValues) {
  const auto error = [](const std::function<void(WorkerDescription*)>& change) {
    ModelRegistry registry(kNoCap);
    EXPECT_TRUE(registry.Admit(SmallWorker()).ok());
    WorkerDescription other = SmallWorker();
    change(&other);
    const absl::Status status = registry.Admit(other);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_EQ(error([](auto* w) { w->model_name = "other"; }), "worker has model 'other', the first worker has 'shadow'");
  EXPECT_THAT(error([](auto* w) { w->architecture = "other"; }), HasSubstr("architecture"));
  EXPECT_THAT(error([](auto* w) { w->vocab_size = 7; }), HasSubstr("vocab_size '7'"));
  EXPECT_THAT(error([](auto* w) { w->max_context_tokens = 7; }), HasSubstr("max_context_tokens '7'"));
  EXPECT_THAT(error([](auto* w) { w->eos_token_ids = {1, 2}; }), HasSubstr("eos_token_ids '1 2'"));
  EXPECT_THAT(error([](auto* w) { w->numerics_fingerprint = "other bits"; }), HasSubstr("numerics_fingerprint"));
  EXPECT_THAT(error([](auto* w) { w->bos_token_id = 3; }), HasSubstr("bos_token_id"));
  EXPECT_THAT(error([](auto* w) { w->tokenizer_files = {{"tokenizer.json", "{}"}}; }), HasSubstr("tokenizer"));
}

TEST(ModelRegistryTest, AModelWithoutATokenizerIsServedForTokenIds) {
  ModelRegistry registry(kNoCap);
  WorkerDescription worker = SmallWorker();
  worker.tokenizer_files = {{"tokenizer_config.json", "{}"}};
  ASSERT_TRUE(registry.Admit(worker).ok());
  EXPECT_EQ(registry.model()->tokenizer, nullptr);
}

TEST(ModelRegistryTest, ABrokenTokenizerIsRefusedWithItsFileAndItsFault) {
  const auto error = [](std::vector<ModelFile> files) {
    ModelRegistry registry(kNoCap);
    WorkerDescription worker = SmallWorker();
    worker.tokenizer_files = std::move(files);
    const absl::Status status = registry.Admit(worker);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(registry.model(), nullptr);
    return std::string(status.message());
  };
  EXPECT_THAT(error({{"tokenizer.json", "{"}}), HasSubstr("cannot be used: tokenizer.json: not valid JSON"));
  EXPECT_THAT(error({{"tokenizer.json", ""}}), HasSubstr("cannot be used: tokenizer.json: the file is empty"));
  EXPECT_THAT(error({{"tokenizer.model", "x"}}), HasSubstr("cannot be used: tokenizer.model: "));
  EXPECT_THAT(error({{"tokenizer.json", "{}"}, {"tokenizer_config.json", "["}}),
              HasSubstr("cannot be used: tokenizer_config.json: not valid JSON"));
}

TEST(ModelRegistryTest, AfterABrokenTokenizerTheNextWorkerMayBeTheFirst) {
  ModelRegistry registry(kNoCap);
  WorkerDescription broken = SmallWorker();
  broken.tokenizer_files = {{"tokenizer.json", "{"}};
  EXPECT_FALSE(registry.Admit(broken).ok());
  EXPECT_TRUE(registry.Admit(SmallWorker()).ok());
  EXPECT_FALSE(registry.Admit(broken).ok());
}

}  // namespace
}  // namespace quire
