#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/kv_manager/service_harness.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// One wrong request: what is done to a sound one, the field that is at fault and what the answer says of it.
struct BadRequestCase {
  const char* name;
  std::function<void(v1::GenerateRequest*)> spoil;
  const char* field;
  const char* description;
};

// The model has 258 tokens and a context of 128.
const BadRequestCase kBadRequests[] = {
    {"NoPrompt", [](auto* r) { r->clear_prompt(); }, "prompt", "is not set: give text or token_ids"},
    {"NoTokens", [](auto* r) { r->mutable_token_ids(); }, "token_ids.ids", "has no token"},
    {"TextWithoutToken",
     [](auto* r) {
       r->set_text("");
       r->set_add_special_tokens(false);
     },
     "text", "has no token"},
    {"TokenOutOfRange",
     [](auto* r) {
       r->mutable_token_ids()->add_ids(257);
       r->mutable_token_ids()->add_ids(258);
     },
     "token_ids.ids[1]", "is 258, the vocabulary has 258 tokens"},
    {"TokenBeyondInt", [](auto* r) { r->mutable_token_ids()->add_ids(0xffffffff); }, "token_ids.ids[0]",
     "is 4294967295, the vocabulary has 258 tokens"},
    {"PromptOverContext",
     [](auto* r) {
       for (int i = 0; i < 128; ++i) r->mutable_token_ids()->add_ids(7);
     },
     "token_ids.ids", "has 128 tokens, the model's context is 128 and must have room for one more"},
    {"TextTooLong", [](auto* r) { r->set_text(std::string(1001, 'a')); }, "text",
     "has 1001 bytes, at most 1000 are allowed"},
    {"RequestIdTooLong", [](auto* r) { r->set_request_id(std::string(129, 'a')); }, "request_id",
     "has 129 bytes, at most 128 are allowed"},
    {"RequestIdWithNewline", [](auto* r) { r->set_request_id("a\nb"); }, "request_id",
     "is \"a\\nb\", only visible ASCII characters are allowed"},
    {"NegativeTemperature", [](auto* r) { r->mutable_sampling()->set_temperature(-1); }, "sampling.temperature",
     "is -1, must be at least 0 and finite"},
    {"NanTemperature", [](auto* r) { r->mutable_sampling()->set_temperature(NAN); }, "sampling.temperature",
     "is nan, must be at least 0 and finite"},
    {"InfiniteTemperature", [](auto* r) { r->mutable_sampling()->set_temperature(INFINITY); }, "sampling.temperature",
     "is inf, must be at least 0 and finite"},
    {"TopKOverVocabulary", [](auto* r) { r->mutable_sampling()->set_top_k(259); }, "sampling.top_k",
     "is 259, the vocabulary has 258 tokens"},
    {"ZeroTopP", [](auto* r) { r->mutable_sampling()->set_top_p(0); }, "sampling.top_p", "is 0, must be in (0, 1]"},
    {"TopPOverOne", [](auto* r) { r->mutable_sampling()->set_top_p(1.1f); }, "sampling.top_p",
     "is 1.1, must be in (0, 1]"},
    {"NanTopP", [](auto* r) { r->mutable_sampling()->set_top_p(NAN); }, "sampling.top_p", "is nan, must be in (0, 1]"},
    {"NegativeMinP", [](auto* r) { r->mutable_sampling()->set_min_p(-0.1f); }, "sampling.min_p",
     "is -0.1, must be in [0, 1]"},
    {"MinPOverOne", [](auto* r) { r->mutable_sampling()->set_min_p(1.5f); }, "sampling.min_p",
     "is 1.5, must be in [0, 1]"},
    {"PresencePenalty", [](auto* r) { r->mutable_sampling()->set_presence_penalty(2.5f); }, "sampling.presence_penalty",
     "is 2.5, must be in [-2, 2]"},
    {"FrequencyPenalty", [](auto* r) { r->mutable_sampling()->set_frequency_penalty(NAN); },
     "sampling.frequency_penalty", "is nan, must be in [-2, 2]"},
    {"ZeroRepetitionPenalty", [](auto* r) { r->mutable_sampling()->set_repetition_penalty(0); },
     "sampling.repetition_penalty", "is 0, must be in [0.01, 10]"},
    {"BiasOfUnknownToken", [](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[300] = 1; },
     "sampling.logit_bias[300]", "is for token 300, the vocabulary has 258 tokens"},
    {"BiasTooLarge", [](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[3] = 101; }, "sampling.logit_bias[3]",
     "is 101, must be in [-100, 100]"},
    {"InfiniteBias", [](auto* r) { (*r->mutable_sampling()->mutable_logit_bias())[3] = -INFINITY; },
     "sampling.logit_bias[3]", "is -inf, must be in [-100, 100]"},
    {"TooManyBiases",
     [](auto* r) {
       for (int i = 0; i < 1025; ++i) (*r->mutable_sampling()->mutable_logit_bias())[i] = 1;
     },
     "sampling.logit_bias", "has 1025 entries, at most 1024 are allowed"},
    {"AllowedTokenOutOfRange", [](auto* r) { r->mutable_sampling()->add_allowed_token_ids(258); },
     "sampling.allowed_token_ids[0]", "is 258, the vocabulary has 258 tokens"},
    {"TooManyAllowedTokens",
     [](auto* r) {
       for (int i = 0; i < 259; ++i) r->mutable_sampling()->add_allowed_token_ids(5);
     },
     "sampling.allowed_token_ids", "has 259 entries, at most 258 are allowed"},
    {"EmptyBadWord", [](auto* r) { r->mutable_sampling()->add_bad_words(""); }, "sampling.bad_words[0]",
     "has no token"},
    {"LongBadWord", [](auto* r) { r->mutable_sampling()->add_bad_words(std::string(65, 'a')); },
     "sampling.bad_words[0]", "has 65 tokens, at most 64 are allowed"},
    {"HugeBadWord", [](auto* r) { r->mutable_sampling()->add_bad_words(std::string(1025, 'a')); },
     "sampling.bad_words[0]", "has 1025 bytes, at most 1024 are allowed"},
    {"TooManyBadWords",
     [](auto* r) {
       for (int i = 0; i < 257; ++i) r->mutable_sampling()->add_bad_words("a");
     },
     "sampling.bad_words", "has 257 entries, at most 256 are allowed"},
    {"ZeroMaxTokens", [](auto* r) { r->mutable_stopping()->set_max_tokens(0); }, "stopping.max_tokens",
     "is 0, must be at least 1"},
    {"MaxTokensOverContext", [](auto* r) { r->mutable_stopping()->set_max_tokens(126); }, "stopping.max_tokens",
     "is 126, with the prompt's 3 tokens 129; the model's context is 128"},
    {"MaxTokensBeyondInt", [](auto* r) { r->mutable_stopping()->set_max_tokens(0xffffffff); }, "stopping.max_tokens",
     "is 4294967295, with the prompt's 3 tokens 4294967298; the model's context is 128"},
    {"MinTokensOverMaxTokens",
     [](auto* r) {
       r->mutable_stopping()->set_max_tokens(4);
       r->mutable_stopping()->set_min_tokens(5);
     },
     "stopping.min_tokens", "is 5, max_tokens is 4"},
    {"TooManyStops",
     [](auto* r) {
       for (int i = 0; i < 17; ++i) r->mutable_stopping()->add_stop("x");
     },
     "stopping.stop", "has 17 entries, at most 16 are allowed"},
    {"EmptyStop",
     [](auto* r) {
       r->mutable_stopping()->add_stop("x");
       r->mutable_stopping()->add_stop("");
     },
     "stopping.stop[1]", "is empty"},
    {"LongStop", [](auto* r) { r->mutable_stopping()->add_stop(std::string(1025, 'x')); }, "stopping.stop[0]",
     "has 1025 bytes, at most 1024 are allowed"},
    {"StopTokenOutOfRange", [](auto* r) { r->mutable_stopping()->add_stop_token_ids(258); },
     "stopping.stop_token_ids[0]", "is 258, the vocabulary has 258 tokens"},
    {"TooManyStopTokens",
     [](auto* r) {
       for (int i = 0; i < 1025; ++i) r->mutable_stopping()->add_stop_token_ids(5);
     },
     "stopping.stop_token_ids", "has 1025 entries, at most 1024 are allowed"},
    {"TooManyLogprobs", [](auto* r) { r->set_logprobs(21); }, "logprobs", "is 21, at most 20 are allowed"},
    {"TooManyPromptLogprobs", [](auto* r) { r->set_prompt_logprobs(21); }, "prompt_logprobs",
     "is 21, at most 20 are allowed"},
    {"UnknownField", [](auto* r) { r->GetReflection()->MutableUnknownFields(r)->AddVarint(99, 1); }, "99",
     "field number 99 of quire.v1.GenerateRequest is not known to this server"},
    {"UnknownNestedField",
     [](auto* r) {
       auto* sampling = r->mutable_sampling();
       sampling->GetReflection()->MutableUnknownFields(sampling)->AddLengthDelimited(77, "x");
     },
     "sampling.77", "field number 77 of quire.v1.SamplingParams is not known to this server"},
};

InferenceServiceOptions SmallLimits() {
  InferenceServiceOptions options;
  options.limits.max_prompt_bytes = 1000;
  return options;
}

class BadRequestTest : public ::testing::TestWithParam<BadRequestCase> {
 protected:
  BadRequestTest() : harness_(ToyModel(), SmallLimits()) {}

  ServiceHarness harness_;
};

TEST_P(BadRequestTest, IsRefusedWithTheFieldAndTheLimit) {
  v1::GenerateRequest request;
  request.set_text("ab");
  GetParam().spoil(&request);
  const ServiceHarness::Result result = harness_.Generate(request);

  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << result.status.error_message();
  const auto bad_request = Detail<google::rpc::BadRequest>(result.status);
  ASSERT_EQ(bad_request.field_violations_size(), 1) << bad_request.ShortDebugString();
  EXPECT_EQ(bad_request.field_violations(0).field(), GetParam().field);
  EXPECT_THAT(bad_request.field_violations(0).description(), HasSubstr(GetParam().description));
  EXPECT_EQ(result.status.error_message(),
            bad_request.field_violations(0).field() + ": " + bad_request.field_violations(0).description());
  EXPECT_THAT(result.responses, IsEmpty());
  EXPECT_THAT(harness_.engine.requests(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Fields, BadRequestTest, ::testing::ValuesIn(kBadRequests),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BadRequestsTest, AllWrongFieldsAreReportedTogether) {
  ServiceHarness harness(ToyModel());
  v1::GenerateRequest request;
  request.set_text("a");
  request.mutable_sampling()->set_top_p(0);
  request.mutable_sampling()->set_min_p(2);
  request.mutable_stopping()->set_max_tokens(0);
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(result.status).field_violations_size(), 3);
  EXPECT_EQ(result.status.error_message(), "stopping.max_tokens: is 0, must be at least 1 (and 2 more)");
}

TEST(BadRequestsTest, MessageOverTheServersLimitIsRefused) {
  ServiceHarness harness(ToyModel());
  v1::GenerateRequest request;
  request.set_text(std::string(5 << 20, 'a'));
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(harness.engine.requests(), IsEmpty());
}

TEST(BadRequestsTest, OtherCallsNameTheWrongFieldToo) {
  ServiceHarness harness(ToyModel());
  grpc::ClientContext context;
  v1::DetokenizeRequest request;
  request.add_token_ids(3);
  request.add_token_ids(1000);
  v1::DetokenizeResponse response;
  const grpc::Status status = harness.stub->Detokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status).field_violations(0).field(), "token_ids[1]");
}

}  // namespace
}  // namespace quire
