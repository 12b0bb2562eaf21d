// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/sampling_fields.h"
#include "google/protobuf/descriptor.h"
#include "kv_manager/requests/chat_prompt.h"
#include "kv_manager/rpc/rpc_status.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

constexpr TokenId kThe = 258;       // "the"
constexpr TokenId kSpaceThe = 259;  // " the"
constexpr int kVocabSize = 260;
constexpr int kContext = 64;

class RequestValidationTest : public ::testing::Test {
 protected:
  RequestValidationTest() {
    model_.name = "toy";
    model_.vocab_size = kVocabSize;
    model_.max_context_tokens = kContext;
    model_.eos_token_ids = {ToyTokenizer::kEos};
    model_.tokenizer = std::make_unique<ToyTokenizer>(std::vector<std::string>{"the", " the"});
    request_.set_text("the");
  }

  absl::StatusOr<ValidRequest> Validate() const {
    return ValidateGenerate(request_, model_, RequestLimits{.max_prompt_bytes = 100}, /*drawn_seed=*/42);
  }

  ValidRequest Valid() const {
    auto valid = Validate();
    EXPECT_TRUE(valid.ok()) << valid.status();
    return valid.ok() ? *std::move(valid) : ValidRequest();
  }

  ServedModel model_;
  v1::GenerateRequest request_;
};

TEST_F(RequestValidationTest, UnsetFieldsMeanTheDocumentedDefaults) {
  const ValidRequest valid = Valid();
  SamplingParams defaults;
  defaults.seed = 42;
  EXPECT_EQ(valid.request.sampling, defaults);
  EXPECT_EQ(valid.request.max_tokens, 16);
  EXPECT_EQ(valid.request.priority, 0);
  EXPECT_THAT(valid.request.stop_token_ids, ElementsAre(ToyTokenizer::kEos));
  EXPECT_THAT(valid.output.end_tokens, ElementsAre(ToyTokenizer::kEos));
  EXPECT_THAT(valid.named_stop_tokens, IsEmpty());
  EXPECT_FALSE(valid.output.include_stop);
  EXPECT_TRUE(valid.output.skip_special_tokens);
  EXPECT_EQ(valid.echo, Echo::kNone);
}

TEST_F(RequestValidationTest, UnsetFieldsHaveTheDefaultsOfTheModelIfThereAreAny) {
  model_.defaults.sampling = {
      {"temperature", 0.6f}, {"top_k", 20}, {"top_p", 0.95f}, {"min_p", 0.05f}, {"repetition_penalty", 1.05f}};
  model_.defaults.max_tokens = 30;
  const ValidRequest defaults = Valid();
  EXPECT_EQ(defaults.request.sampling.temperature, 0.6f);
  EXPECT_EQ(defaults.request.sampling.top_k, 20);
  EXPECT_EQ(defaults.request.sampling.top_p, 0.95f);
  EXPECT_EQ(defaults.request.sampling.min_p, 0.05f);
  EXPECT_EQ(defaults.request.sampling.repetition_penalty, 1.05f);
  EXPECT_EQ(defaults.request.max_tokens, 30);

  // A field that is set to the value that changes nothing is set.
  request_.mutable_sampling()->set_temperature(0);
  request_.mutable_sampling()->set_top_k(0);
  request_.mutable_sampling()->set_top_p(1);
  request_.mutable_sampling()->set_min_p(0);
  request_.mutable_sampling()->set_repetition_penalty(1);
  request_.mutable_stopping()->set_max_tokens(5);
  SamplingParams neutral;
  neutral.temperature = 0;
  neutral.seed = 42;
  EXPECT_EQ(Valid().request.sampling, neutral);
  EXPECT_EQ(Valid().request.max_tokens, 5);
}

TEST_F(RequestValidationTest, DefaultsOfTheModelCanBeSwitchedOff) {
  model_.defaults.sampling = {{"temperature", 0.6f}};
  model_.defaults.max_tokens = 30;
  const auto valid = ValidateGenerate(request_, model_, {.uses_model_defaults = false}, /*drawn_seed=*/42);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->request.sampling.temperature, SamplingParams().temperature);
  EXPECT_EQ(valid->request.max_tokens, 16);
}

TEST_F(RequestValidationTest, ADefaultForTheNumberOfTokensFitsTheContext) {
  model_.defaults.max_tokens = 1000;
  EXPECT_EQ(Valid().request.max_tokens, kContext - 2);
}

TEST_F(RequestValidationTest, APromptWithoutOutputMayFillTheContext) {
  const auto fill = [this](int num_tokens) {
    request_.mutable_token_ids()->clear_ids();
    for (int i = 0; i < num_tokens; ++i) request_.mutable_token_ids()->add_ids(kThe);
  };
  for (const int num_tokens : {1, kContext - 1, kContext}) {
    fill(num_tokens);
    request_.mutable_stopping()->set_max_tokens(0);
    EXPECT_TRUE(Valid().request.is_prompt_only) << num_tokens;
    for (const bool is_set : {false, true}) {
      request_.mutable_stopping()->clear_max_tokens();
      if (is_set) request_.mutable_stopping()->set_max_tokens(1);
      EXPECT_EQ(Validate().ok(), num_tokens < kContext) << num_tokens;
    }
  }
  fill(kContext + 1);
  request_.mutable_stopping()->set_max_tokens(0);
  EXPECT_THAT(Validate().status().message(), HasSubstr("token_ids.ids: has 65 tokens, the model's context is 64"));
}

TEST_F(RequestValidationTest, ABadWordMayBeASpecialToken) {
  request_.mutable_sampling()->add_bad_words("</s>");
  request_.mutable_sampling()->add_bad_words("the</s>");
  const std::vector<std::vector<TokenId>> expected = {
      {ToyTokenizer::kEos}, {kThe, ToyTokenizer::kEos}, {kSpaceThe, ToyTokenizer::kEos}};
  EXPECT_EQ(Valid().request.sampling.bad_words, expected);
}

TEST_F(RequestValidationTest, ABeamSearchTakesOnlyTheRepetitionPenaltyOfTheModel) {
  model_.defaults.sampling = {{"temperature", 0.6f}, {"top_k", 20}, {"top_p", 0.95f}, {"repetition_penalty", 1.05f}};
  request_.mutable_beam()->set_width(2);
  const ValidRequest valid = Valid();
  EXPECT_EQ(valid.request.sampling.temperature, SamplingParams().temperature);
  EXPECT_EQ(valid.request.sampling.top_k, 0);
  EXPECT_EQ(valid.request.sampling.top_p, 1);
  EXPECT_EQ(valid.request.sampling.repetition_penalty, 1.05f);
}

TEST_F(RequestValidationTest, TextGetsSpecialTokensUnlessTold) {
  EXPECT_THAT(Valid().request.prompt, ElementsAre(ToyTokenizer::kBos, kThe));
  request_.set_add_special_tokens(false);
  EXPECT_THAT(Valid().request.prompt, ElementsAre(kThe));
}

TEST_F(RequestValidationTest, TextThatSpellsASpecialTokenIsThatTokenUnlessTold) {
  request_.set_text("the</s>");
  EXPECT_THAT(Valid().request.prompt, ElementsAre(ToyTokenizer::kBos, kThe, ToyTokenizer::kEos));
  request_.set_parse_special_tokens(false);
  EXPECT_THAT(Valid().request.prompt,
              ElementsAre(ToyTokenizer::kBos, kThe, ToyTokenizer::Byte('<'), ToyTokenizer::Byte('/'),
                          ToyTokenizer::Byte('s'), ToyTokenizer::Byte('>')));
}

TEST_F(RequestValidationTest, TokenIdsAreTakenAsTheyAre) {
  request_.mutable_token_ids()->add_ids(259);
  request_.mutable_token_ids()->add_ids(0);
  EXPECT_THAT(Valid().request.prompt, ElementsAre(259, 0));
}

TEST_F(RequestValidationTest, EmptyTextIsABeginOfSequenceToken) {
  request_.set_text("");
  EXPECT_THAT(Valid().request.prompt, ElementsAre(ToyTokenizer::kBos));
}

TEST_F(RequestValidationTest, TheTableHasEveryNumberOfSamplingParams) {
  const google::protobuf::Descriptor* const message = v1::SamplingParams::descriptor();
  std::vector<std::string> numbers, named;
  for (int i = 0; i < message->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = message->field(i);
    const bool is_number = field->type() == field->TYPE_FLOAT || field->type() == field->TYPE_UINT32;
    if (is_number && !field->is_repeated()) numbers.push_back(field->name());
  }
  for (const SamplingField& field : kSamplingFields) named.push_back(field.name);
  EXPECT_THAT(named, UnorderedElementsAreArray(numbers));
}

TEST_F(RequestValidationTest, AllParametersArrive) {
  auto* sampling = request_.mutable_sampling();
  sampling->set_temperature(0.5f);
  sampling->set_top_n_sigma(1.5f);
  sampling->set_top_k(kVocabSize);
  sampling->set_top_p(1);
  sampling->set_min_p(0.25f);
  sampling->set_xtc_probability(0.5f);
  sampling->set_xtc_threshold(0.125f);
  sampling->set_presence_penalty(-2);
  sampling->set_frequency_penalty(2);
  sampling->set_repetition_penalty(10);
  sampling->set_seed(7);
  request_.set_logprobs(20);
  request_.set_prompt_logprobs(0);
  request_.set_priority(-3);
  const ValidRequest valid = Valid();
  SamplingParams expected;
  expected.temperature = 0.5f;
  expected.top_n_sigma = 1.5f;
  expected.top_k = kVocabSize;
  expected.top_p = 1;
  expected.min_p = 0.25f;
  expected.xtc_probability = 0.5f;
  expected.xtc_threshold = 0.125f;
  expected.presence_penalty = -2;
  expected.frequency_penalty = 2;
  expected.repetition_penalty = 10;
  expected.seed = 7;
  expected.num_logprobs = 20;
  expected.num_prompt_logprobs = 0;
  EXPECT_EQ(valid.request.sampling, expected);
  EXPECT_EQ(valid.request.priority, -3);
}

TEST_F(RequestValidationTest, SamplesAndHowManyReturn) {
  EXPECT_EQ(Valid().request.num_samples, 1);
  request_.set_n(64);
  EXPECT_EQ(Valid().request.num_samples, 64);
  EXPECT_EQ(Valid().num_returned, 64);
  request_.set_n(2);
  request_.set_best_of(5);
  EXPECT_EQ(Valid().request.num_samples, 5);
  EXPECT_EQ(Valid().num_returned, 2);
}

TEST_F(RequestValidationTest, BestOfNeedsLogprobsThatNobodySees) {
  request_.set_best_of(2);
  EXPECT_EQ(Valid().request.sampling.num_logprobs, 0);
  EXPECT_FALSE(Valid().shows_logprobs);
  request_.set_logprobs(3);
  EXPECT_EQ(Valid().request.sampling.num_logprobs, 3);
  EXPECT_TRUE(Valid().shows_logprobs);
}

TEST_F(RequestValidationTest, LogprobsOfOneOfTheBestFitIntoOneResponse) {
  model_.max_context_tokens = 10000;
  request_.set_best_of(2);
  request_.set_logprobs(17);
  request_.mutable_stopping()->set_max_tokens(7281);
  EXPECT_TRUE(Validate().ok());
  request_.mutable_stopping()->set_max_tokens(7282);
  EXPECT_THAT(Validate().status().message(),
              HasSubstr("logprobs: is 17, with stopping.max_tokens 7282 131076 logprobs"));
  request_.set_n(2);
  EXPECT_TRUE(Validate().ok());
}

TEST_F(RequestValidationTest, GreedyTakesOneSample) {
  request_.mutable_sampling()->set_temperature(0);
  request_.set_n(1);
  request_.set_best_of(1);
  EXPECT_TRUE(Validate().ok());
}

TEST_F(RequestValidationTest, BeamParametersArriveAndUnsetOnesHaveTheDefaultsOfHuggingFace) {
  v1::BeamParams* beam = request_.mutable_beam();
  beam->set_width(6);
  EXPECT_EQ(Valid().request.beam, (BeamParams{.width = 6}));
  beam->set_length_penalty(-5);
  beam->set_early_stopping(v1::EARLY_STOPPING_NEVER);
  beam->set_num_return_sequences(6);
  beam->set_num_groups(3);
  beam->set_diversity_penalty(100);
  EXPECT_EQ(Valid().request.beam, (BeamParams{.width = 6,
                                              .num_return = 6,
                                              .length_penalty = -5,
                                              .early_stopping = EarlyStopping::kNever,
                                              .num_groups = 3,
                                              .diversity_penalty = 100}));
  EXPECT_EQ(Valid().num_returned, 6);
  EXPECT_EQ(Valid().request.num_samples, 1);
}

TEST_F(RequestValidationTest, BeamsMayHaveNeutralSamplingAndLogprobsOfTheirOwn) {
  request_.mutable_beam()->set_width(256);
  request_.mutable_sampling()->set_temperature(0);
  request_.mutable_sampling()->set_top_p(1);
  request_.mutable_sampling()->set_seed(3);
  request_.set_logprobs(0);
  request_.set_prompt_logprobs(2);
  EXPECT_EQ(Valid().request.sampling.num_logprobs, 0);
}

TEST_F(RequestValidationTest, TenantCacheSaltAndCacheBypassReachTheEngine) {
  request_.set_tenant("team-a");
  request_.set_cache_salt("p\n");
  request_.set_bypass_prefix_cache(true);
  const ValidRequest valid = Valid();
  EXPECT_EQ(valid.request.tenant, "team-a");
  EXPECT_EQ(valid.request.cache_salt, "p\n");
  EXPECT_TRUE(valid.request.bypass_prefix_cache);
}

TEST_F(RequestValidationTest, TinyTemperatureIsGreedy) {
  request_.mutable_sampling()->set_temperature(1e-30f);
  EXPECT_EQ(Valid().request.sampling.temperature, 0);
}

TEST_F(RequestValidationTest, UnsetMaxTokensIsWhatTheContextLeaves) {
  for (int i = 0; i < kContext - 5; ++i) request_.mutable_token_ids()->add_ids(5);
  EXPECT_EQ(Valid().request.max_tokens, 5);
}

TEST_F(RequestValidationTest, PromptAndMaxTokensMayFillTheContext) {
  request_.mutable_stopping()->set_max_tokens(kContext - 2);
  EXPECT_EQ(Valid().request.max_tokens, kContext - 2);
  request_.mutable_stopping()->set_max_tokens(kContext - 1);
  EXPECT_THAT(Validate().status().message(),
              HasSubstr("stopping.max_tokens: is 63, with the prompt's 2 tokens 65; the model's context is 64"));
}

TEST_F(RequestValidationTest, StopTokensJoinTheModelsEndTokens) {
  request_.mutable_stopping()->add_stop_token_ids(9);
  request_.mutable_stopping()->add_stop_token_ids(5);
  request_.mutable_stopping()->add_stop_token_ids(9);
  ValidRequest valid = Valid();
  EXPECT_THAT(valid.request.stop_token_ids, ElementsAre(ToyTokenizer::kEos, 5, 9));
  EXPECT_THAT(valid.named_stop_tokens, ElementsAre(5, 9));
  request_.mutable_stopping()->set_ignore_eos(true);
  EXPECT_THAT(Valid().request.stop_token_ids, ElementsAre(5, 9));
}

TEST_F(RequestValidationTest, EndTokensAreMaskedBeforeMinTokens) {
  request_.mutable_stopping()->add_stop_token_ids(5);
  EXPECT_THAT(Valid().request.sampling.min_tokens_masked_ids, IsEmpty());
  request_.mutable_stopping()->set_min_tokens(3);
  const ValidRequest valid = Valid();
  EXPECT_EQ(valid.request.sampling.min_tokens, 3);
  EXPECT_THAT(valid.request.sampling.min_tokens_masked_ids, ElementsAre(ToyTokenizer::kEos, 5));
  EXPECT_EQ(valid.output.min_tokens, 3);
}

TEST_F(RequestValidationTest, LogitBiasIsInOrderOfTokens) {
  for (uint32_t token : {7u, 3u, 5u}) (*request_.mutable_sampling()->mutable_logit_bias())[token] = token;
  EXPECT_THAT(Valid().request.sampling.logit_bias, ElementsAre(LogitBias{3, 3}, LogitBias{5, 5}, LogitBias{7, 7}));
}

TEST_F(RequestValidationTest, BadWordIsBadAfterASpaceToo) {
  request_.mutable_sampling()->add_bad_words("the");
  EXPECT_THAT(Valid().request.sampling.bad_words, ElementsAre(ElementsAre(kThe), ElementsAre(kSpaceThe)));
}

TEST_F(RequestValidationTest, BadWordThatASpaceOnlyPrecedesIsOneSequence) {
  request_.mutable_sampling()->add_bad_words(" ab");
  EXPECT_THAT(Valid().request.sampling.bad_words,
              ElementsAre(ElementsAre(ToyTokenizer::Byte('a'), ToyTokenizer::Byte('b'))));
}

TEST_F(RequestValidationTest, AllowedTokensAreLimitedWhateverTheVocabulary) {
  model_.vocab_size = 10000;
  for (uint32_t token = 0; token < 8192; ++token) request_.mutable_sampling()->add_allowed_token_ids(token);
  EXPECT_EQ(Valid().request.sampling.allowed_token_ids.size(), 8192u);
  request_.mutable_sampling()->add_allowed_token_ids(8192);
  EXPECT_THAT(Validate().status().message(),
              HasSubstr("sampling.allowed_token_ids: has 8193 entries, at most 8192 are allowed"));
}

TEST_F(RequestValidationTest, TextWorkCountsAllThatIsTokenizedOrDecoded) {
  request_.set_text("12345");
  request_.mutable_sampling()->add_bad_words("123");
  request_.mutable_sampling()->add_bad_words("12");
  EXPECT_EQ(TextWork(request_), 10u);
  for (uint32_t token : {1, 2, 3}) request_.mutable_token_ids()->add_ids(token);
  EXPECT_EQ(TextWork(request_), 17u);
}

// A template may go through all messages and all tools at each message.
TEST_F(RequestValidationTest, TextWorkOfAConversationCountsTheStepsOfItsTemplate) {
  constexpr size_t kShortText = 16 << 10;
  v1::Chat chat;
  for (int i = 0; i < 20; ++i) chat.add_messages()->set_role("user");
  chat.set_tools("[" + std::string(100, ',') + "]");
  EXPECT_LT(TextWork(chat), kShortText) << "an ordinary conversation is not work for another thread";
  EXPECT_GT(TextWork(chat), 20u * (20 + 100));
  chat.set_tools("[" + std::string(1000, ',') + "]");
  EXPECT_GT(TextWork(chat), 20u * 1000);
  chat.set_template_kwargs(chat.tools());
  EXPECT_GT(TextWork(chat), 20u * 2000);
  chat.clear_tools();
  chat.clear_template_kwargs();
  for (int i = 20; i < 200; ++i) chat.add_messages()->set_role("user");
  EXPECT_GT(TextWork(chat), 200u * 200);
  chat.mutable_messages()->DeleteSubrange(1, 199);
  for (int i = 0; i < 100; ++i) chat.mutable_messages(0)->add_tool_calls();
  EXPECT_GT(TextWork(chat), 100u * 100);
}

TEST_F(RequestValidationTest, MasksThatLeaveNoTokenAreRefused) {
  request_.mutable_sampling()->add_allowed_token_ids(ToyTokenizer::kEos);
  EXPECT_TRUE(Validate().ok());
  request_.mutable_stopping()->set_min_tokens(1);
  EXPECT_THAT(Validate().status().message(), HasSubstr("sampling.allowed_token_ids: leaves no token to pick"));
  request_.mutable_sampling()->add_allowed_token_ids(kThe);
  EXPECT_TRUE(Validate().ok());
  request_.mutable_sampling()->add_bad_words("the");
  EXPECT_THAT(Validate().status().message(), HasSubstr("sampling.allowed_token_ids: leaves no token to pick"));
}

TEST_F(RequestValidationTest, TokensOfTheTokenizerThatTheModelLacksAreRefused) {
  model_.vocab_size = 258;
  EXPECT_THAT(Validate().status().message(),
              HasSubstr("text: has token 258 of the tokenizer, the model's vocabulary has 258 tokens"));
}

TEST_F(RequestValidationTest, TextThatIsNotUtf8IsRefused) {
  request_.set_text("the\xff");
  EXPECT_THAT(Validate().status().message(), HasSubstr("text: is not valid UTF-8"));
  request_.set_text("the");
  request_.mutable_stopping()->add_stop("\xff");
  EXPECT_THAT(Validate().status().message(), HasSubstr("stopping.stop[0]: is not valid UTF-8"));
}

TEST_F(RequestValidationTest, WithoutTokenizerOnlyTokensAreServed) {
  model_.tokenizer = nullptr;
  EXPECT_EQ(Validate().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Validate().status().message(), HasSubstr("text: needs a tokenizer"));
  request_.mutable_token_ids()->add_ids(3);
  EXPECT_THAT(Valid().request.prompt, ElementsAre(3));
  request_.mutable_stopping()->add_stop("x");
  EXPECT_THAT(Validate().status().message(), HasSubstr("stopping.stop: needs a tokenizer"));
  request_.mutable_stopping()->clear_stop();
  request_.mutable_sampling()->add_bad_words("x");
  EXPECT_THAT(Validate().status().message(), HasSubstr("sampling.bad_words: needs a tokenizer"));
  request_.mutable_sampling()->clear_bad_words();
  request_.set_echo(true);
  EXPECT_THAT(Validate().status().message(), HasSubstr("echo: needs a tokenizer"));
}

TEST_F(RequestValidationTest, WrongFieldsComeBeforeTheMissingTokenizer) {
  model_.tokenizer = nullptr;
  request_.mutable_sampling()->set_top_p(2);
  EXPECT_EQ(Validate().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RequestValidationTest, PromptLogprobsFitIntoOneResponse) {
  model_.max_context_tokens = 10000;
  for (int i = 0; i < 7000; ++i) request_.mutable_token_ids()->add_ids(5);
  request_.set_prompt_logprobs(17);
  EXPECT_TRUE(Validate().ok());
  request_.set_prompt_logprobs(18);
  EXPECT_THAT(Validate().status().message(), HasSubstr("with 7000 prompt tokens 133000 logprobs; at most 131072"));
}

TEST_F(RequestValidationTest, EchoShowsTextAsItCame) {
  request_.set_echo(true);
  ValidRequest valid = Valid();
  EXPECT_EQ(valid.echo, Echo::kText);
  EXPECT_EQ(valid.prompt_text, "the");
  request_.mutable_token_ids()->add_ids(kThe);
  EXPECT_EQ(Valid().echo, Echo::kTokens);
}

TEST_F(RequestValidationTest, GuidesAreCompiledAndKeptWithoutAnnotations) {
  auto vocabulary = std::make_shared<GuideVocabulary>();
  model_.guide_vocabulary = std::make_unique<LazyGuideVocabulary>([&] { return vocabulary; });
  request_.mutable_guided()->set_regex("[ab]{2}");
  ValidRequest valid = Valid();
  ASSERT_NE(valid.request.sampling.guide, nullptr);
  EXPECT_EQ(valid.request.sampling.guide->kind, Guide::Kind::kRegex);
  EXPECT_THAT(valid.request.sampling.guide->texts, ElementsAre("[ab]{2}"));
  EXPECT_EQ(valid.request.sampling.guide->vocabulary, vocabulary);
  request_.mutable_guided()->mutable_choice()->add_texts("yes");
  EXPECT_THAT(Valid().request.sampling.guide->texts, ElementsAre("yes"));
  request_.mutable_guided()->set_json_object(true);
  EXPECT_THAT(Valid().request.sampling.guide->texts, IsEmpty());
  request_.mutable_guided()->set_json_schema(R"({"type": "null", "description": "nothing"})");
  EXPECT_THAT(Valid().request.sampling.guide->texts, ElementsAre(R"({"type":"null"})"));
}

TEST_F(RequestValidationTest, WrongGuidesAreRefusedWithFieldAndPlace) {
  model_.guide_vocabulary = std::make_unique<LazyGuideVocabulary>([] { return std::make_shared<GuideVocabulary>(); });
  const auto message = [&] { return std::string(Validate().status().message()); };
  v1::Guide* const guide = request_.mutable_guided();
  EXPECT_THAT(message(), HasSubstr("guided: is empty"));
  guide->set_json_object(false);
  EXPECT_THAT(message(), HasSubstr("guided.json_object: is false, it must be true"));
  guide->set_json_schema(R"({"items": {"disallow": true}})");
  EXPECT_THAT(message(),
              HasSubstr("guided.json_schema: at #/items/disallow: the keyword \"disallow\" is not supported"));
  guide->set_regex("a(?=b)");
  EXPECT_THAT(message(), HasSubstr("guided.regex: at byte 1, \"(\": lookahead"));
  guide->set_grammar("root ::= x");
  EXPECT_THAT(message(), HasSubstr("guided.grammar: at byte 9, \"x\": the rule \"x\" is not defined"));
  guide->mutable_choice();
  EXPECT_THAT(message(), HasSubstr("guided.choice: has no choice"));
  guide->mutable_choice()->add_texts("a");
  request_.mutable_stopping()->set_ignore_eos(true);
  EXPECT_THAT(message(), HasSubstr("stopping.ignore_eos: is true, it cannot be combined with guided.choice"));
  request_.mutable_stopping()->Clear();
  request_.mutable_stopping()->set_min_tokens(1);
  EXPECT_THAT(message(), HasSubstr("stopping.min_tokens: is 1, it cannot be combined with guided.choice"));
}

TEST_F(RequestValidationTest, GuidesNeedATokenizerAndAnEndToken) {
  request_.mutable_guided()->set_regex("a");
  EXPECT_EQ(Validate().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Validate().status().message(),
              HasSubstr("guided.regex: needs a model with a tokenizer and an end token"));
}

TEST_F(RequestValidationTest, ContinuedTokensFollowTheGuide) {
  model_.guide_vocabulary = std::make_unique<LazyGuideVocabulary>([] { return std::make_shared<GuideVocabulary>(); });
  request_.mutable_guided()->set_regex("(the)+!");
  request_.mutable_sampling()->set_seed(1);
  v1::ContinuedSample* const sample = request_.add_continue_from();
  sample->add_token_ids(kThe);
  sample->add_token_ids(kThe);
  Valid();
  sample->add_token_ids(kSpaceThe);
  EXPECT_THAT(Validate().status().message(), HasSubstr("continue_from: has tokens of sample 0 that do not follow"));
}

TEST_F(RequestValidationTest, ContinuedTokensHaveALimitOfStepsTogether) {
  model_.guide_vocabulary = std::make_unique<LazyGuideVocabulary>([] { return std::make_shared<GuideVocabulary>(); });
  model_.tokenizer = std::make_unique<ToyTokenizer>(std::vector<std::string>{"the", " the", std::string(40'000, 'a')});
  model_.vocab_size = kVocabSize + 1;
  request_.mutable_guided()->set_regex("a+");
  request_.mutable_sampling()->set_seed(1);
  request_.mutable_stopping()->set_max_tokens(50);
  request_.set_n(16);
  for (uint32_t i = 0; i < 16; ++i) {
    v1::ContinuedSample* const sample = request_.add_continue_from();
    sample->set_index(i);
    for (int k = 0; k < 40; ++k) sample->add_token_ids(kVocabSize);
    if (i == 0) Valid();
  }
  EXPECT_THAT(Validate().status().message(),
              HasSubstr("continue_from: has tokens that need more than 20000000 steps of guided.regex"));
}

TEST_F(RequestValidationTest, DetokenizeNamesTheTokenOutOfRange) {
  v1::DetokenizeRequest request;
  request.add_token_ids(259);
  EXPECT_TRUE(ValidateDetokenize(request, model_).ok());
  request.add_token_ids(260);
  EXPECT_THAT(ValidateDetokenize(request, model_).message(),
              HasSubstr("token_ids[1]: is 260, the vocabulary has 260 tokens"));
}

TEST_F(RequestValidationTest, TokenizeLimitsTheText) {
  v1::TokenizeRequest request;
  request.set_text(std::string(101, 'a'));
  EXPECT_THAT(ValidateTokenize(request, model_, RequestLimits{.max_prompt_bytes = 100}).message(),
              HasSubstr("text: has 101 bytes, at most 100 are allowed"));
}

}  // namespace
}  // namespace quire
