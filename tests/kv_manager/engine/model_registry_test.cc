// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/model_registry.h"

#include <atomic>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/engine/model_comparison.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kNoCap = std::numeric_limits<int>::max();

// SmallWorker with other weights.
WorkerDescription Weights(const std::string& fingerprint) {
  WorkerDescription worker = SmallWorker();
  worker.numerics_fingerprint = fingerprint;
  return worker;
}

// The fingerprints of all generations, the newest first.
std::vector<std::string> Fingerprints(const ModelRegistry& registry) {
  std::vector<std::string> fingerprints;
  for (const auto& model : registry.models()) fingerprints.push_back(model->numerics_fingerprint);
  return fingerprints;
}

// The step loop of an address that is given up may still hear from its worker.
TEST(ModelRegistryTest, AWorkerOfAnAddressThatIsGoneMakesNoGeneration) {
  ModelRegistry registry(kNoCap);
  registry.Retain({"a"});
  ASSERT_TRUE(registry.Admit("a", Weights("old")).ok());
  ASSERT_TRUE(registry.Admit("b", Weights("new")).ok());
  EXPECT_THAT(Fingerprints(registry), ElementsAre("old"));
  registry.Retain({"a", "b"});
  ASSERT_TRUE(registry.Admit("b", Weights("new")).ok());
  EXPECT_THAT(Fingerprints(registry), ElementsAre("new", "old"));
}

// Both sessions would end each other repeatedly.
TEST(ModelRegistryTest, AProcessJoinsAtOneAddressOnly) {
  ModelRegistry registry(kNoCap);
  WorkerDescription worker = SmallWorker();
  worker.process_id = "1";
  ASSERT_TRUE(registry.Admit("a", worker).ok());
  EXPECT_TRUE(registry.Admit("a", worker).ok()) << "it comes back to its address";
  const absl::Status second = registry.Admit("b", worker).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.message(), HasSubstr("the worker at b is the process that has joined at a"));
  registry.Retain({"b"});
  EXPECT_TRUE(registry.Admit("b", worker).ok()) << "the other address is gone";
  worker.process_id = "2";
  EXPECT_TRUE(registry.Admit("b", worker).ok()) << "it was started again";
  worker.process_id = "";
  ASSERT_TRUE(registry.Admit("b", worker).ok());
  registry.Retain({"b", "c"});
  EXPECT_TRUE(registry.Admit("c", worker).ok()) << "workers of an earlier version do not tell their process";
}

TEST(ModelRegistryTest, ThereIsNoModelBeforeTheFirstWorker) {
  EXPECT_THAT(ModelRegistry(kNoCap).models(), IsEmpty());
}

TEST(ModelRegistryTest, WorkersWithTheSameModelAreOneGeneration) {
  ModelRegistry registry(kNoCap);
  const auto first = registry.Admit("a", SmallWorker());
  ASSERT_TRUE(first.ok());
  const auto models = registry.models();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0]->generation, *first);
  WorkerDescription larger = SmallWorker();
  larger.num_blocks *= 2;
  larger.device = "another machine";
  EXPECT_EQ(*registry.Admit("b", larger), *first);
  EXPECT_EQ(registry.models(), models);
}

TEST(ModelRegistryTest, TheContextCanBeCapped) {
  ModelRegistry registry(40);
  ASSERT_TRUE(registry.Admit("a", SmallWorker()).ok());
  EXPECT_EQ(registry.models()[0]->max_context_tokens, 40);
}

TEST(ModelRegistryTest, ACapAboveTheContextIsAWarning) {
  const int context = SmallWorker().max_context_tokens;
  const auto log = [](int cap) {
    ModelRegistry registry(cap);
    testing::internal::CaptureStderr();
    EXPECT_TRUE(registry.Admit("a", SmallWorker()).ok());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log(context + 1),
              HasSubstr(absl::StrCat("has a context of ", context, " tokens, so --max-context-tokens=", context + 1,
                                     " changes nothing")));
  for (const int cap : {context, kNoCap}) EXPECT_THAT(log(cap), Not(HasSubstr("--max-context-tokens"))) << cap;
}

TEST(ModelRegistryTest, EveryPropertyThatTokensDependOnMakesAGeneration) {
  const std::function<void(WorkerDescription*)> changes[] = {
      [](auto* w) { w->model_name = "other"; },
      [](auto* w) { w->architecture = "other"; },
      [](auto* w) { w->vocab_size = 7; },
      [](auto* w) { w->max_context_tokens = 7; },
      [](auto* w) { w->eos_token_ids = {1, 2}; },
      [](auto* w) { w->numerics_fingerprint = "other bits"; },
      [](auto* w) { w->bos_token_id = 3; },
      [](auto* w) { w->tokenizer_files = {{"tokenizer_config.json", "{}"}}; },
  };
  ModelRegistry registry(kNoCap);
  std::set<GenerationId> ids = {*registry.Admit("first", SmallWorker())};
  for (const auto& change : changes) {
    WorkerDescription other = SmallWorker();
    change(&other);
    ids.insert(*registry.Admit(absl::StrCat("worker ", ids.size()), other));
  }
  EXPECT_EQ(ids.size(), 1 + std::size(changes));
  EXPECT_EQ(registry.models().size(), ids.size());
}

TEST(ModelRegistryTest, TheDifferenceOfTwoGenerationsNamesThePropertyAndBothValues) {
  using Change = std::function<void(WorkerDescription*)>;
  const auto numerics = [](const char* text) { return [text](auto* w) { w->numerics_fingerprint = text; }; };
  const auto file = [](const char* name, const char* text) {
    return [=](auto* w) { w->tokenizer_files.push_back({name, text}); };
  };
  WorkerDescription served = SmallWorker();
  served.numerics_fingerprint = "3f0a/cpu fma 2/kv-float32";
  served.architecture = "Llama";
  served.model_name = "tales";
  served.tokenizer_files = {{"generation_config.json", "{}"}};
  served.eos_token_ids = {};
  served.bos_token_id.reset();
  const std::pair<Change, std::string> changes[] = {
      {[](auto* w) { w->model_name = "stories"; }, "model name (stories, not tales)"},
      {[](auto* w) { w->architecture = "Qwen"; }, "architecture (Qwen, not Llama)"},
      {[](auto* w) { ++w->vocab_size; },
       absl::StrCat("vocabulary (", served.vocab_size + 1, ", not ", served.vocab_size, " tokens)")},
      {[](auto* w) { w->max_context_tokens = 7; },
       absl::StrCat("context (7, not ", served.max_context_tokens, " tokens)")},
      {[](auto* w) {
         w->eos_token_ids = {1, 2};
       },
       "end tokens (1 2, not none)"},
      {[](auto* w) { w->bos_token_id = 3; }, "BOS token (3, not none)"},
      {numerics("4a1b/cpu fma 2/kv-float32"), "weights (4a1b, not 3f0a)"},
      {numerics("3f0a/cpu amx 1/kv-float32"), "--cpu-kernels (cpu amx 1, not cpu fma 2)"},
      {numerics("3f0a/simulated 1/kv-float32"), "--device (simulated 1, not cpu fma 2)"},
      {numerics("3f0a/cpu fma 2/kv-int8 1"), "--kv-type (int8, not float32)"},
      {numerics("3f0a/cpu fma 2/int8-a16 1/output-int8 1/kv-float32"),
       "--quantize (int8-a16, not none), --quantize-output (int8, not false)"},
      {numerics("3f0a/cpu fma 2/fp8 1/kv-float32"), "layers in FP8 (fp8, not none)"},
      {file("tokenizer_config.json", "{}"), "tokenizer_config.json (is not there for the others)"},
      {[](auto* w) { w->tokenizer_files = {}; }, "generation_config.json (is missing)"},
      {[](auto* w) { w->tokenizer_files[0].content = "{ }"; }, "generation_config.json (3, not 2 bytes)"},
      {[](auto* w) { w->tokenizer_files[0].content = "{"; }, "generation_config.json (1, not 2 bytes)"},
      {[](auto* w) { w->tokenizer_files[0].content = "[]"; }, "generation_config.json (other contents of 2 bytes)"},
  };
  for (const auto& [change, expected] : changes) {
    WorkerDescription worker = served;
    change(&worker);
    EXPECT_EQ(DescribeDifference(worker, served), expected);
  }
  EXPECT_EQ(DescribeDifference(served, served), "");

  ModelRegistry registry(kNoCap);
  WorkerDescription second = SmallWorker();
  second.model_name = "other";
  const GenerationId old = *registry.Admit("a", SmallWorker());
  const GenerationId newest = *registry.Admit("b", second);
  const std::string expected = absl::StrCat("model name (", SmallWorker().model_name, ", not other)");
  EXPECT_EQ(registry.DifferenceBetween(old, newest), expected);
  EXPECT_EQ(registry.DifferenceBetween(old, newest), expected) << "it is remembered";
  registry.Retain({"b"});
  EXPECT_EQ(registry.DifferenceBetween(old, newest), "") << "the generation is forgotten";
}

TEST(ModelRegistryTest, GenerationsOfTheSameWeightsAreOneFamily) {
  ModelRegistry registry(kNoCap);
  WorkerDescription other_name = Weights("w/amx");
  other_name.model_name = "other";
  const std::vector<WorkerDescription> workers = {Weights("w/amx"), Weights("w/avx"), Weights("v/amx"), other_name};
  std::vector<FamilyId> families;
  for (size_t i = 0; i < workers.size(); ++i) {
    const absl::StatusOr<GenerationId> generation = registry.Admit(absl::StrCat(i), workers[i]);
    ASSERT_TRUE(generation.ok()) << generation.status();
    families.push_back(registry.FamilyOf(*generation));
  }
  EXPECT_THAT(families, ElementsAre(FamilyId{1}, FamilyId{1}, FamilyId{2}, FamilyId{3}));
  // A worker that comes back at its address with other numerics stays in the family, though its generation is gone.
  const absl::StatusOr<GenerationId> restarted = registry.Admit("2", Weights("v/avx"));
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  EXPECT_EQ(registry.FamilyOf(*restarted), FamilyId{2});
  EXPECT_EQ(registry.FamilyOf(GenerationId{3}), FamilyId{0}) << "it is forgotten";
}

TEST(ModelRegistryTest, ARolloutMakesItsGenerationTheNewestAndForgetsTheOldOneAtItsEnd) {
  ModelRegistry registry(kNoCap);
  ASSERT_TRUE(registry.Admit("a", Weights("old")).ok());
  ASSERT_TRUE(registry.Admit("b", Weights("old")).ok());
  ASSERT_TRUE(registry.Admit("a", Weights("new")).ok());
  EXPECT_THAT(Fingerprints(registry), ElementsAre("new", "old"));
  ASSERT_TRUE(registry.Admit("b", Weights("new")).ok());
  EXPECT_THAT(Fingerprints(registry), ElementsAre("new"));
}

TEST(ModelRegistryTest, AnOldWorkerThatRestartsDoesNotMakeItsGenerationTheNewest) {
  ModelRegistry registry(kNoCap);
  ASSERT_TRUE(registry.Admit("a", Weights("old")).ok());
  ASSERT_TRUE(registry.Admit("b", Weights("old")).ok());
  ASSERT_TRUE(registry.Admit("a", Weights("new")).ok());
  ASSERT_TRUE(registry.Admit("b", Weights("old")).ok());
  EXPECT_THAT(Fingerprints(registry), ElementsAre("new", "old"));
}

TEST(ModelRegistryTest, ARollbackMakesTheOldGenerationTheNewestAgain) {
  ModelRegistry registry(kNoCap);
  const GenerationId old = *registry.Admit("a", Weights("old"));
  ASSERT_TRUE(registry.Admit("b", Weights("old")).ok());
  ASSERT_TRUE(registry.Admit("c", Weights("old")).ok());
  ASSERT_TRUE(registry.Admit("a", Weights("new")).ok());
  ASSERT_TRUE(registry.Admit("b", Weights("new")).ok());
  EXPECT_EQ(*registry.Admit("a", Weights("old")), old);
  EXPECT_THAT(Fingerprints(registry), ElementsAre("old", "new"));
}

TEST(ModelRegistryTest, AGenerationIsForgottenWithItsLastAddress) {
  ModelRegistry registry(kNoCap);
  const GenerationId old = *registry.Admit("a", Weights("old"));
  ASSERT_TRUE(registry.Admit("b", Weights("new")).ok());
  registry.Retain({"a", "b"});
  EXPECT_THAT(Fingerprints(registry), ElementsAre("new", "old"));
  registry.Retain({"b"});
  EXPECT_THAT(Fingerprints(registry), ElementsAre("new"));
  EXPECT_NE(*registry.Admit("a", Weights("old")), old) << "ids are not used again";
}

TEST(ModelRegistryTest, AModelWithoutATokenizerIsServedForTokenIds) {
  ModelRegistry registry(kNoCap);
  WorkerDescription worker = SmallWorker();
  worker.tokenizer_files = {{"tokenizer_config.json", "{}"}};
  ASSERT_TRUE(registry.Admit("a", worker).ok());
  EXPECT_EQ(registry.models()[0]->tokenizer, nullptr);
}

TEST(ModelRegistryTest, ABrokenTokenizerIsRefusedWithItsFileAndItsFault) {
  const auto error = [](std::vector<ModelFile> files) {
    ModelRegistry registry(kNoCap);
    WorkerDescription worker = SmallWorker();
    worker.tokenizer_files = std::move(files);
    const absl::Status status = registry.Admit("a", worker).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(registry.models(), IsEmpty());
    return std::string(status.message());
  };
  EXPECT_THAT(error({{"tokenizer.json", "{"}}), HasSubstr("cannot be used: tokenizer.json is not JSON"));
  EXPECT_THAT(error({{"tokenizer.json", ""}}), HasSubstr("cannot be used: tokenizer.json: the file is empty"));
  EXPECT_THAT(error({{"tokenizer.model", "x"}}), HasSubstr("cannot be used: tokenizer.model: "));
  EXPECT_THAT(error({{"tokenizer.json", "{}"}, {"tokenizer_config.json", "["}}),
              HasSubstr("cannot be used: tokenizer_config.json is not JSON"));
  EXPECT_THAT(error({{"tokenizer.json", "{}"}, {"special_tokens_map.json", "["}}),
              HasSubstr("cannot be used: special_tokens_map.json is not JSON"));
  EXPECT_THAT(error({{"tokenizer.json", "{}"}, {"added_tokens.json", R"({"<x>": "1"})"}}),
              HasSubstr("cannot be used: added_tokens.json: <x>: expected a token id of 0 to "));
}

// The user of a GGUF file does not have the files that the worker makes of it.
TEST(ModelRegistryTest, ErrorsOfAGgufFileNameItsKeys) {
  const ModelFile config{"tokenizer_config.json", R"({"made_from":"gguf"})"};
  ModelRegistry registry(kNoCap);
  WorkerDescription worker = SmallWorker();
  worker.tokenizer_files = {{"tokenizer.json", "{"}, config};
  EXPECT_THAT(std::string(registry.Admit("a", worker).status().message()),
              HasSubstr("cannot be used: the GGUF file: tokenizer.ggml.* is not JSON"));
  worker.tokenizer_files = {{"chat_template.jinja", "\n{% include 'x' %}"}, config};
  testing::internal::CaptureStderr();
  ASSERT_TRUE(registry.Admit("a", worker).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("refused: the GGUF file: tokenizer.chat_template: line 2: "));
  EXPECT_THAT(std::string(registry.models()[0]->chat_template.status().message()),
              HasSubstr("the GGUF file: tokenizer.chat_template: line 2: "));
}

TEST(ModelRegistryTest, AModelHasTheChatTemplateOfItsFiles) {
  ModelRegistry registry(kNoCap);
  WorkerDescription worker = SmallWorker();
  ASSERT_TRUE(registry.Admit("a", worker).ok());
  EXPECT_EQ(registry.models()[0]->chat_template.value(), nullptr);
  worker.tokenizer_files = {{"chat_template.jinja", "hi"}};
  ASSERT_TRUE(registry.Admit("a", worker).ok());
  EXPECT_EQ(registry.models()[0]->chat_template.value()->Render({}, 100)->bytes, "hi");
}

TEST(ModelRegistryTest, ToolsTakeTheTemplateThatIsMadeForThem) {
  ModelRegistry registry(kNoCap);
  WorkerDescription worker = SmallWorker();
  worker.tokenizer_files = {{"chat_template.jinja", "plain"},
                            {"additional_chat_templates/tool_use.jinja", "tools {{ bos_token }}"},
                            {"special_tokens_map.json", R"({"bos_token": "<s>"})"}};
  ASSERT_TRUE(registry.Admit("a", worker).ok());
  const auto& chat_template = registry.models()[0]->chat_template.value();
  EXPECT_EQ(chat_template->Render({}, 100)->bytes, "plain");
  EXPECT_EQ(chat_template->Render({.messages = {}, .tools = jinja::Value(true)}, 100)->bytes, "tools <s>");
  worker.tokenizer_files[1].content = "\n{% include 'x' %}";
  ASSERT_TRUE(registry.Admit("b", worker).ok());
  EXPECT_THAT(std::string(registry.models()[0]->chat_template.status().message()),
              testing::StartsWith("additional_chat_templates/tool_use.jinja: line 2: "));
}

TEST(ModelRegistryTest, TheTemplateSeesTheTokensOfATokenizerModel) {
  ModelRegistry registry(kNoCap);
  WorkerDescription worker = SmallWorker();
  worker.tokenizer_files = {{"tokenizer.model", GoldenFiles("sp_bpe").tokenizer_model},
                            {"chat_template.jinja", "{{ bos_token }} {{ eos_token }}"}};
  ASSERT_TRUE(registry.Admit("a", worker).ok());
  EXPECT_EQ(registry.models()[0]->chat_template.value()->Render({}, 100)->bytes, "<s> </s>");
}

TEST(ModelRegistryTest, LegacyOfLlamaTokenizerIsThatOfLlamaModels) {
  const auto tokens = [](const std::string& architecture) {
    ModelRegistry registry(kNoCap);
    WorkerDescription worker = SmallWorker();
    worker.architecture = architecture;
    worker.tokenizer_files = {{"tokenizer.json", GoldenFiles("sp_bpe_prepend").tokenizer_json},
                              {"tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer", "legacy": false})"}};
    EXPECT_TRUE(registry.Admit("a", worker).ok());
    return registry.models()[0]->tokenizer->Encode("<s>hello", {.add_special_tokens = false})->size();
  };
  EXPECT_EQ(tokens("LlamaForCausalLM") + 1, tokens("MistralForCausalLM")) << "no space follows <s>";
}

TEST(ModelRegistryTest, AModelWithABrokenChatTemplateIsServedWithAWarning) {
  ModelRegistry registry(kNoCap);
  WorkerDescription worker = SmallWorker();
  worker.tokenizer_files = {{"chat_template.jinja", "\n{% include 'x' %}"}};
  testing::internal::CaptureStderr();
  ASSERT_TRUE(registry.Admit("a", worker).ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("has a chat template that cannot be used"));
  EXPECT_THAT(log, HasSubstr("chat_template.jinja: line 2: "));
  EXPECT_THAT(std::string(registry.models()[0]->chat_template.status().message()), HasSubstr("include"));
}

TEST(ModelRegistryTest, AWorkerWithABrokenTokenizerChangesNothing) {
  ModelRegistry registry(kNoCap);
  WorkerDescription broken = Weights("broken");
  broken.tokenizer_files = {{"tokenizer.json", "{"}};
  EXPECT_FALSE(registry.Admit("a", broken).ok());
  EXPECT_TRUE(registry.Admit("a", SmallWorker()).ok());
  EXPECT_FALSE(registry.Admit("b", broken).ok());
  EXPECT_THAT(Fingerprints(registry), ElementsAre("hash"));
}

// What eight threads get that ask at the same time.
std::vector<std::shared_ptr<const GuideVocabulary>> AskAtOnce(const LazyGuideVocabulary& lazy) {
  std::vector<std::shared_ptr<const GuideVocabulary>> found(8);
  std::vector<std::thread> threads;
  threads.reserve(found.size());
  for (auto& vocabulary : found) threads.emplace_back([&] { vocabulary = lazy.Get(); });
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST(LazyGuideVocabularyTest, ItIsMadeOnceByTheFirstOfManyThreads) {
  std::atomic<int> num_made = 0;
  const LazyGuideVocabulary lazy([&] {
    ++num_made;
    return std::make_shared<GuideVocabulary>();
  });
  EXPECT_EQ(num_made, 0);
  for (const auto& vocabulary : AskAtOnce(lazy)) {
    EXPECT_NE(vocabulary, nullptr);
    EXPECT_EQ(vocabulary, lazy.Get());
  }
  EXPECT_EQ(num_made, 1);
}

// Token 2 is special.
constexpr char kTokenizer[] =
    R"({"added_tokens": [{"id": 2, "content": "<eos>", "special": true, "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false}],
        "model": {"type": "BPE", "vocab": {"a": 0, "bc": 1}, "merges": []}})";

TEST(ModelRegistryTest, TheVocabularyForGuidesIsThatOfTheTokenizerAndOutlivesTheRegistry) {
  std::shared_ptr<const ServedModel> model;
  {
    ModelRegistry registry(kNoCap);
    WorkerDescription worker = SmallWorker();
    worker.vocab_size = 4;
    worker.eos_token_ids = {TokenId{2}};
    worker.tokenizer_files = {{"tokenizer.json", kTokenizer}};
    ASSERT_TRUE(registry.Admit("a", worker).ok());
    model = registry.models()[0];
  }
  for (const auto& vocabulary : AskAtOnce(*model->guide_vocabulary)) {
    EXPECT_EQ(vocabulary->bytes, "abc");
    EXPECT_THAT(vocabulary->lengths, ElementsAre(1, 2, 0, 0));
    EXPECT_THAT(vocabulary->end_tokens, ElementsAre(TokenId{2}));
  }
}

TEST(ModelRegistryTest, GuidesTellSpecialTokensFromTheirText) {
  ModelRegistry registry(kNoCap);
  WorkerDescription worker = SmallWorker();
  worker.vocab_size = 4;
  worker.eos_token_ids = {TokenId{3}};
  worker.tokenizer_files = {{"tokenizer.json", kTokenizer}};
  ASSERT_TRUE(registry.Admit("a", worker).ok());
  EXPECT_EQ(registry.models()[0]->GuideBytes(2), "\xFF<eos>\xFF");
  EXPECT_EQ(registry.models()[0]->guide_vocabulary->Get()->bytes, "abc\xFF<eos>\xFF");
}

TEST(ModelRegistryTest, AVocabularyThatDoesNotFitTheTokenizerIsAWarning) {
  const auto log = [](int vocab_size) {
    ModelRegistry registry(kNoCap);
    WorkerDescription worker = SmallWorker();
    worker.vocab_size = vocab_size;
    worker.tokenizer_files = {{"tokenizer.json", kTokenizer}};
    testing::internal::CaptureStderr();
    EXPECT_TRUE(registry.Admit("a", worker).ok());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log(2), HasSubstr("the tokenizer has 3 tokens, and vocab_size is 2: a prompt with"));
  for (const int vocab_size : {3, 7}) EXPECT_THAT(log(vocab_size), Not(HasSubstr("vocab_size"))) << vocab_size;
  EXPECT_THAT(log(8), HasSubstr("the tokenizer has 3 tokens, and vocab_size is 8: the model may choose"));
}

TEST(ModelRegistryTest, AModelWithoutATokenizerOrAnEndTokenHasNoVocabularyForGuides) {
  WorkerDescription without_tokenizer = SmallWorker(), without_end = SmallWorker();
  without_end.tokenizer_files = {{"tokenizer.json", kTokenizer}};
  without_end.eos_token_ids.clear();
  for (const WorkerDescription& worker : {without_tokenizer, without_end}) {
    ModelRegistry registry(kNoCap);
    ASSERT_TRUE(registry.Admit("a", worker).ok());
    EXPECT_EQ(registry.models()[0]->guide_vocabulary, nullptr);
  }
}

// A worker of an earlier version does not say from what it has made the files, and the files are the same otherwise.
TEST(ModelRegistryTest, WhatTheFilesOfATokenizerWereMadeFromIsNoPartOfTheModel) {
  const auto with_config = [](const std::string& config) {
    WorkerDescription worker = SmallWorker();
    worker.tokenizer_files = {{"tokenizer.json", kTokenizer}, {"tokenizer_config.json", config}};
    return worker;
  };
  ModelRegistry registry(kNoCap);
  const WorkerDescription old = with_config(R"({"bos_token":"<eos>"})");
  const auto generation = registry.Admit("a", old);
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_EQ(registry.Admit("b", with_config(R"({"bos_token":"<eos>","made_from":"gguf"})")), generation);
  EXPECT_EQ(registry.Admit("c", with_config(R"({"bos_token":"<eos>","made_from":"gguf 2"})")), generation);
  EXPECT_EQ(registry.models().size(), 1u);
  for (const char* other :
       {R"({"add_bos_token":true,"bos_token":"<eos>","made_from":"gguf"})", R"({"made_from":"gguf"})"}) {
    const auto differs = registry.Admit("d", with_config(other));
    ASSERT_TRUE(differs.ok()) << differs.status();
    EXPECT_NE(differs, generation) << other;
  }
  WorkerDescription other_vocabulary = with_config(R"({"bos_token":"<eos>","made_from":"gguf"})");
  other_vocabulary.tokenizer_files[0].content = absl::StrReplaceAll(kTokenizer, {{"\"a\"", "\"b\""}});
  ASSERT_NE(other_vocabulary.tokenizer_files[0].content, kTokenizer);
  const auto differs = registry.Admit("d", other_vocabulary);
  ASSERT_TRUE(differs.ok()) << differs.status();
  EXPECT_NE(differs, generation);
  WorkerDescription more_files = old;
  more_files.tokenizer_files.push_back({"chat_template.jinja", "hi"});
  EXPECT_NE(registry.Admit("d", more_files), generation);
}

}  // namespace
}  // namespace quire
