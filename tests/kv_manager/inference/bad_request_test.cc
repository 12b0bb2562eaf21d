// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "kv_manager/rpc/message_bytes.h"
#include "tests/kv_manager/inference/batch_client.h"
#include "tests/kv_manager/inference/service_harness.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A wrong request: how it is made from a valid one, the wrong field, and the description in the answer.
struct BadRequestCase {
  const char* name;
  std::function<void(v1::GenerateRequest*)> spoil;
  const char* field;
  const char* description;
};

v1::BeamParams* Beam(v1::GenerateRequest* request, uint32_t width) {
  request->mutable_beam()->set_width(width);
  return request->mutable_beam();
}

// A conversation of one message.
v1::Chat* Hello(v1::GenerateRequest* request) {
  v1::ChatMessage* const message = request->mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hello");
  return request->mutable_chat();
}

v1::ToolCall* CallTool(v1::GenerateRequest* request) {
  v1::ToolCall* const call = Hello(request)->mutable_messages(0)->add_tool_calls();
  call->set_name("f");
  return call;
}

// The model has 258 tokens and a context of 128.
const BadRequestCase kBadRequests[] = {
    {"NoPrompt", [](auto* r) { r->clear_prompt(); }, "prompt", "is not set: give text, token_ids or chat"},
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
    {"NegativeTopNSigma", [](auto* r) { r->mutable_sampling()->set_top_n_sigma(-1); }, "sampling.top_n_sigma",
     "is -1, must be at least 0 and finite"},
    {"InfiniteTopNSigma", [](auto* r) { r->mutable_sampling()->set_top_n_sigma(INFINITY); }, "sampling.top_n_sigma",
     "is inf, must be at least 0 and finite"},
    {"XtcProbabilityOverOne", [](auto* r) { r->mutable_sampling()->set_xtc_probability(1.5f); },
     "sampling.xtc_probability", "is 1.5, must be in [0, 1]"},
    {"NanXtcThreshold", [](auto* r) { r->mutable_sampling()->set_xtc_threshold(NAN); }, "sampling.xtc_threshold",
     "is nan, must be in [0, 1]"},
    {"TopKOverVocabulary", [](auto* r) { r->mutable_sampling()->set_top_k(259); }, "sampling.top_k",
     "is 259, the vocabulary has 258 tokens"},
    {"ZeroTopP", [](auto* r) { r->mutable_sampling()->set_top_p(0); }, "sampling.top_p", "is 0, must be in (0, 1]"},
    {"TopPOverOne", [](auto* r) { r->mutable_sampling()->set_top_p(1.1f); }, "sampling.top_p",
     "is 1.1, must be in (0, 1]"},
    {"TopPBarelyOverOne", [](auto* r) { r->mutable_sampling()->set_top_p(1.0000001f); }, "sampling.top_p",
     "is 1.0000001, must be in (0, 1]"},
    {"PenaltyBarelyTooLarge", [](auto* r) { r->mutable_sampling()->set_presence_penalty(2.0000002f); },
     "sampling.presence_penalty", "is 2.0000002, must be in [-2, 2]"},
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
     "is \"\", which has no token; a bad word needs at least one"},
    {"LongBadWord", [](auto* r) { r->mutable_sampling()->add_bad_words(std::string(65, 'a')); },
     "sampling.bad_words[0]", "has 65 tokens, at most 64 are allowed"},
    {"HugeBadWord", [](auto* r) { r->mutable_sampling()->add_bad_words(std::string(1025, 'a')); },
     "sampling.bad_words[0]", "has 1025 bytes, at most 1024 are allowed"},
    {"TooManyBadWords",
     [](auto* r) {
       for (int i = 0; i < 257; ++i) r->mutable_sampling()->add_bad_words("a");
     },
     "sampling.bad_words", "has 257 entries, at most 256 are allowed"},
    {"PromptAloneOverContext",
     [](auto* r) {
       for (int i = 0; i < 129; ++i) r->mutable_token_ids()->add_ids(7);
       r->mutable_stopping()->set_max_tokens(0);
     },
     "token_ids.ids", "has 129 tokens, the model's context is 128"},
    {"MinTokensOfNoTokens",
     [](auto* r) {
       r->mutable_stopping()->set_max_tokens(0);
       r->mutable_stopping()->set_min_tokens(1);
     },
     "stopping.min_tokens", "is 1, stopping.max_tokens is 0"},
    {"BeamsOfNoTokens",
     [](auto* r) {
       r->mutable_stopping()->set_max_tokens(0);
       r->mutable_beam()->set_width(2);
     },
     "beam", "cannot be set when stopping.max_tokens is 0: there is nothing to search"},
    {"MaxTokensOverContext", [](auto* r) { r->mutable_stopping()->set_max_tokens(126); }, "stopping.max_tokens",
     "is 126, with the prompt's 3 tokens 129; the model's context is 128"},
    {"MaxTokensBeyondInt", [](auto* r) { r->mutable_stopping()->set_max_tokens(0xffffffff); }, "stopping.max_tokens",
     "is 4294967295, with the prompt's 3 tokens 4294967298; the model's context is 128"},
    {"MinTokensOverMaxTokens",
     [](auto* r) {
       r->mutable_stopping()->set_max_tokens(4);
       r->mutable_stopping()->set_min_tokens(5);
     },
     "stopping.min_tokens", "is 5, stopping.max_tokens is 4"},
    {"MinTokensOverContext", [](auto* r) { r->mutable_stopping()->set_min_tokens(126); }, "stopping.min_tokens",
     "is 126, with the prompt's 3 tokens 129; the model's context is 128"},
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
    {"ZeroSamples", [](auto* r) { r->set_n(0); }, "n", "is 0, must be in [1, 256]"},
    {"TooManySamples", [](auto* r) { r->set_n(257); }, "n", "is 257, must be in [1, 256]"},
    {"BestOfFewerThanN",
     [](auto* r) {
       r->set_n(3);
       r->set_best_of(2);
     },
     "best_of", "is 2, must be in [3, 256]"},
    {"TooManyToPickFrom", [](auto* r) { r->set_best_of(0xffffffff); }, "best_of", "is 4294967295, must be in [1, 256]"},
    {"GreedySamples",
     [](auto* r) {
       r->set_n(2);
       r->mutable_sampling()->set_temperature(0);
     },
     "n",
     "is 2, must be 1 at temperature 0, where all samples would be equal; a temperature above 0 makes them differ"},
    {"BestOfGreedySamples",
     [](auto* r) {
       r->set_best_of(2);
       r->mutable_sampling()->set_temperature(1e-6f);
     },
     "best_of",
     "is 2, must be 1 at temperature 0, where all samples would be equal; a temperature above 0 makes them differ"},
    {"NoBeam", [](auto* r) { r->mutable_beam(); }, "beam.width", "is 0, must be in [1, 256]"},
    {"TooManyBeams", [](auto* r) { Beam(r, 257); }, "beam.width", "is 257, must be in [1, 256]"},
    {"TooManyCandidates",
     [](auto* r) {
       Beam(r, 256);
       r->mutable_stopping()->add_stop("x");
       for (int i = 2; i < 6; ++i) r->mutable_stopping()->add_stop_token_ids(i);
     },
     "beam.width", "is 256, with 5 stop and end tokens and stop strings 1536 candidates in a step; at most 1024"},
    {"LengthPenalty", [](auto* r) { Beam(r, 2)->set_length_penalty(5.5f); }, "beam.length_penalty",
     "is 5.5, must be in [-5, 5]"},
    {"NanLengthPenalty", [](auto* r) { Beam(r, 2)->set_length_penalty(NAN); }, "beam.length_penalty",
     "is nan, must be in [-5, 5]"},
    {"UnknownEarlyStopping", [](auto* r) { Beam(r, 2)->set_early_stopping(static_cast<v1::EarlyStopping>(4)); },
     "beam.early_stopping", "is 4, which is not known to this server; known are 0 .. 3"},
    {"MoreHypothesesThanBeams", [](auto* r) { Beam(r, 2)->set_num_return_sequences(3); }, "beam.num_return_sequences",
     "is 3, must be in [1, 2]"},
    {"NoHypothesis", [](auto* r) { Beam(r, 2)->set_num_return_sequences(0); }, "beam.num_return_sequences",
     "is 0, must be in [1, 2]"},
    {"MoreGroupsThanBeams",
     [](auto* r) {
       Beam(r, 2)->set_num_groups(3);
       r->mutable_beam()->set_diversity_penalty(1);
     },
     "beam.num_groups", "is 3, must be in [1, 2]"},
    {"UnevenGroups",
     [](auto* r) {
       Beam(r, 4)->set_num_groups(3);
       r->mutable_beam()->set_diversity_penalty(1);
     },
     "beam.num_groups", "is 3, must divide beam.width, which is 4"},
    {"EqualGroups", [](auto* r) { Beam(r, 4)->set_num_groups(2); }, "beam.diversity_penalty",
     "is 0, must be in (0, 100] with 2 groups, which would find the same"},
    {"DiversityOfOneGroup", [](auto* r) { Beam(r, 4)->set_diversity_penalty(1); }, "beam.diversity_penalty",
     "is 1, must be 0 or unset unless beam.num_groups is above 1"},
    {"NanDiversityOfOneGroup", [](auto* r) { Beam(r, 4)->set_diversity_penalty(NAN); }, "beam.diversity_penalty",
     "is nan, must be 0 or unset unless beam.num_groups is above 1"},
    {"BeamAndN",
     [](auto* r) {
       Beam(r, 4);
       r->set_n(4);
     },
     "n",
     "is 4 in a beam search (beam.width is 4), must be unset: beam.num_return_sequences tells how many hypotheses "
     "return"},
    {"BeamAndBestOf",
     [](auto* r) {
       Beam(r, 4);
       r->set_best_of(4);
     },
     "best_of", "is 4 in a beam search (beam.width is 4), which draws nothing: must be unset"},
    {"BeamAndTemperature",
     [](auto* r) {
       Beam(r, 4);
       r->mutable_sampling()->set_temperature(0.5f);
     },
     "sampling.temperature", "is 0.5 in a beam search (beam.width is 4), which draws nothing: must be 0, 1 or unset"},
    {"BeamAndTopNSigma",
     [](auto* r) {
       Beam(r, 4);
       r->mutable_sampling()->set_top_n_sigma(1.5f);
     },
     "sampling.top_n_sigma", "is 1.5 in a beam search (beam.width is 4), which draws nothing: must be 0 or unset"},
    {"BeamAndXtc",
     [](auto* r) {
       Beam(r, 4);
       r->mutable_sampling()->set_xtc_threshold(0.25f);
     },
     "sampling.xtc_threshold",
     "is 0.25 in a beam search (beam.width is 4), which draws nothing: must be 0, 0.1 or unset"},
    {"BeamAndTopK",
     [](auto* r) {
       Beam(r, 4);
       r->mutable_sampling()->set_top_k(5);
     },
     "sampling.top_k", "is 5 in a beam search (beam.width is 4), which draws nothing: must be 0 or unset"},
    {"BeamAndTopP",
     [](auto* r) {
       Beam(r, 4);
       r->mutable_sampling()->set_top_p(0.5f);
     },
     "sampling.top_p", "is 0.5 in a beam search (beam.width is 4), which draws nothing: must be 1 or unset"},
    {"BeamAndMinP",
     [](auto* r) {
       Beam(r, 4);
       r->mutable_sampling()->set_min_p(0.5f);
     },
     "sampling.min_p", "is 0.5 in a beam search (beam.width is 4), which draws nothing: must be 0 or unset"},
    {"BeamAndTopLogprobs",
     [](auto* r) {
       Beam(r, 4);
       r->set_logprobs(1);
     },
     "logprobs",
     "is 1 in a beam search (beam.width is 4), must be 0: there are no alternatives to a hypothesis' tokens"},
    {"LongCacheSalt", [](auto* r) { r->set_cache_salt(std::string(257, 'a')); }, "cache_salt",
     "has 257 bytes, at most 256 are allowed"},
    {"LongTenant", [](auto* r) { r->set_tenant(std::string(129, 'a')); }, "tenant",
     "has 129 bytes, at most 128 are allowed"},
    {"TenantWithSpace", [](auto* r) { r->set_tenant("a b"); }, "tenant",
     "is \"a b\", only visible ASCII characters are allowed"},
    {"NoMessages", [](auto* r) { r->mutable_chat(); }, "chat.messages", "a conversation needs at least one message"},
    {"TooManyMessages",
     [](auto* r) {
       for (int i = 0; i < 4097; ++i) r->mutable_chat()->add_messages();
     },
     "chat.messages", "has 4097 entries, at most 4096 are allowed"},
    {"LongConversation", [](auto* r) { Hello(r)->mutable_messages(0)->set_content(std::string(1000, 'a')); }, "chat",
     "has 1004 bytes, at most 1000 are allowed"},
    {"MessageWithoutRole", [](auto* r) { Hello(r)->mutable_messages(0)->clear_role(); }, "chat.messages[0].role",
     "is not set"},
    {"LongRole", [](auto* r) { Hello(r)->mutable_messages(0)->set_role(std::string(65, 'a')); },
     "chat.messages[0].role", "has 65 bytes, at most 64 are allowed"},
    {"ToolsThatAreNotJson", [](auto* r) { Hello(r)->set_tools("[{]"); }, "chat.tools",
     "is not JSON in UTF-8: byte 2 of 3 is wrong"},
    {"ToolsThatAreNoArray", [](auto* r) { Hello(r)->set_tools("{}"); }, "chat.tools", "is not a JSON array"},
    {"TooManyToolCalls",
     [](auto* r) {
       CallTool(r);
       for (int i = 0; i < 4096; ++i) r->mutable_chat()->mutable_messages(0)->add_tool_calls();
     },
     "chat.messages[0].tool_calls", "has 4097 entries, at most 4096 are allowed"},
    {"KwargsThatAreNoObject", [](auto* r) { Hello(r)->set_template_kwargs("[]"); }, "chat.template_kwargs",
     "is not a JSON object"},
    {"KwargsWithAField", [](auto* r) { Hello(r)->set_template_kwargs(R"({"tools": []})"); }, "chat.template_kwargs",
     "has \"tools\", which has a field of its own"},
    {"ContinueAndGenerate",
     [](auto* r) {
       Hello(r)->set_continue_final_message(true);
       r->mutable_chat()->set_add_generation_prompt(true);
     },
     "chat.continue_final_message", "cannot be combined with add_generation_prompt"},
    {"ContinueNothing",
     [](auto* r) {
       Hello(r)->set_continue_final_message(true);
       r->mutable_chat()->mutable_messages(0)->set_content("");
     },
     "chat.continue_final_message", "needs a last message with content"},
    {"ChatWithSpecialTokens",
     [](auto* r) {
       Hello(r);
       r->set_add_special_tokens(true);
     },
     "add_special_tokens", "cannot be set with chat"},
    {"ChatThatParsesSpecialTokens",
     [](auto* r) {
       Hello(r);
       r->set_parse_special_tokens(true);
     },
     "parse_special_tokens", "cannot be set with chat"},
    {"ChatThatTheTemplateRefuses", [](auto* r) { Hello(r)->mutable_messages(0)->set_role("robot"); }, "chat",
     "is refused by the chat template: line 2: "},
    {"ChatOverContext", [](auto* r) { Hello(r)->mutable_messages(0)->set_content(std::string(128, 'a')); }, "chat",
     "tokens, the model's context is 128 and must have room for one more"},
    {"UnknownFieldOfAMessage",
     [](auto* r) {
       v1::ChatMessage* message = Hello(r)->mutable_messages(0);
       message->GetReflection()->MutableUnknownFields(message)->AddVarint(50, 1);
     },
     "chat.messages[0].50", "field number 50 of quire.v1.ChatMessage is not known to this server"},
    {"UnknownBeamField",
     [](auto* r) {
       v1::BeamParams* beam = Beam(r, 2);
       beam->GetReflection()->MutableUnknownFields(beam)->AddVarint(50, 1);
     },
     "beam.50", "field number 50 of quire.v1.BeamParams is not known to this server"},
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
  return {.limits = {.max_prompt_bytes = 1000}};
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
  request.mutable_stopping()->add_stop("");
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(result.status).field_violations_size(), 3);
  EXPECT_EQ(result.status.error_message(), "stopping.stop[0]: is empty (and 2 more errors)");
}

// Clients in languages that do not check their strings can send this.
TEST(BadRequestsTest, StringsThatAreNotUtf8AreNamed) {
  const google::protobuf::LogSilencer silencer;  // The client logs that it sends text that is not UTF-8.
  ServiceHarness harness(ToyModel());
  v1::GenerateRequest request;
  request.set_text("ab");
  request.mutable_stopping()->add_stop("x");
  request.mutable_stopping()->add_stop("yz\xff");
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(result.status.error_message(), "stopping.stop[1]: is not valid UTF-8: byte 2 of 3 is 0xff");
  EXPECT_EQ(Detail<google::rpc::BadRequest>(result.status).field_violations(0).field(), "stopping.stop[1]");
  EXPECT_THAT(harness.engine.requests(), IsEmpty());

  grpc::ClientContext context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text("\xc3");
  v1::TokenizeResponse response;
  const grpc::Status status = harness.stub->Tokenize(&context, tokenize, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "text: is not valid UTF-8: byte 0 of 1 is 0xc3");
}

TEST(BadRequestsTest, BytesThatAreNoMessageAreRefusedWithItsName) {
  const std::string encoded =
      "\x0a\x05"
      "abc";  // It announces 5 bytes and has 3.
  const grpc::Slice slice(encoded);
  v1::GenerateRequest request;
  const absl::Status status = FromBytes(grpc::ByteBuffer(&slice, 1), &request);
  EXPECT_EQ(status,
            absl::InvalidArgumentError("the 5 bytes of the request are not a message quire.v1.GenerateRequest"));
}

// Two bytes on the wire become about a hundred in memory.
TEST(BadRequestsTest, ManyEmptyMessagesAreRefusedBeforeTheyAreParsed) {
  v1::GenerateRequest request;
  for (int i = 0; i < kMaxMessageParts; ++i) request.mutable_chat()->add_messages();
  const grpc::Slice slice(request.SerializeAsString());
  v1::GenerateRequest parsed;
  const absl::Status status = FromBytes(grpc::ByteBuffer(&slice, 1), &parsed);
  EXPECT_EQ(status, absl::InvalidArgumentError(
                        "the request has more than 262144 messages, strings and unknown fields, which is the limit"));
  EXPECT_EQ(parsed.chat().messages_size(), 0);
  request.mutable_chat()->mutable_messages()->RemoveLast();
  const grpc::Slice allowed(request.SerializeAsString());
  EXPECT_TRUE(FromBytes(grpc::ByteBuffer(&allowed, 1), &parsed).ok());
}

TEST(BadRequestsTest, ABatchGoesOnAfterARequestWithTooManyMessages) {
  ServiceHarness harness(ToyModel());
  BatchClient client(&harness);
  v1::GenerateRequest request;
  for (int i = 0; i < kMaxMessageParts; ++i) request.mutable_chat()->add_messages();
  ASSERT_TRUE(client.Start(1, request));
  request.set_text("ab");
  ASSERT_TRUE(client.Start(2, request));
  ASSERT_TRUE(client.stream->WritesDone());
  while (client.Read()) {
  }
  EXPECT_EQ(client.results[1].status().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(client.results[1].status().error_message(), HasSubstr("262144 messages"));
  EXPECT_TRUE(client.results[2].status().ok()) << client.results[2].status().error_message();
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
