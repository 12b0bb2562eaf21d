// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/generate_exchange.h"

#include <stdlib.h>
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/anthropic/message_call.h"
#include "gateway/process/body_reader.h"
#include "gateway/responses/response_call.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/gateway/loop.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

v1::GenerateBatchEntry Text(const std::string& text) {
  v1::GenerateBatchEntry entry;
  entry.mutable_response()->set_text_delta(text);
  entry.mutable_response()->add_token_ids(7);
  return entry;
}

v1::GenerateBatchEntry Finish(const std::string& text) {
  v1::GenerateBatchEntry entry = Text(text);
  entry.mutable_response()->set_finish_reason(v1::FINISH_REASON_STOP);
  return entry;
}

v1::GenerateBatchEntry End(grpc::StatusCode code = grpc::StatusCode::OK) {
  v1::GenerateBatchEntry entry;
  entry.mutable_end()->set_code(code);
  if (code != grpc::StatusCode::OK) entry.mutable_end()->add_details();  // A manager's own errors have details.
  return entry;
}

v1::GenerateBatchEntry WithResumeToken(v1::GenerateBatchEntry entry) {
  entry.mutable_response()->set_resume_token("token");
  return entry;
}

// The end that gRPC gives all calls of a connection when somebody has sent too many headers through it.
v1::GenerateBatchEntry EndOfConnection() {
  v1::GenerateBatchEntry entry = End(grpc::StatusCode::RESOURCE_EXHAUSTED);
  entry.mutable_end()->clear_details();
  entry.mutable_end()->set_message("received initial metadata size exceeds limit");
  return entry;
}

// Sends every request the entries that Allow has given out.
class FakeManager : public v1::InferenceService::Service {
 public:
  static constexpr int kContext = 100;

  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*, v1::GetModelResponse* response) override {
    response->set_name("model");
    response->set_reasoning_format("think");
    response->set_max_message_bytes(1 << 20);
    response->set_max_context_tokens(kContext);
    return grpc::Status::OK;
  }

  grpc::Status RenderChat(grpc::ServerContext*, const v1::RenderChatRequest*,
                          v1::RenderChatResponse* response) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    response->set_text(rendered_chat_);
    for (int i = 0; i < num_prompt_tokens_; ++i) response->add_token_ids(7);
    return grpc::Status::OK;
  }

  grpc::Status GenerateBatch(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::GenerateBatchResponse, v1::GenerateBatchRequest>* stream) override {
    v1::GenerateBatchRequest request;
    while (stream->Read(&request)) {
      if (!request.has_start() && !request.has_resume()) continue;
      std::unique_lock<std::mutex> lock(mutex_);
      ++num_requests_;
      grammar_ = request.start().guided().grammar();
      max_tokens_ = request.start().stopping().max_tokens();
      resume_ = request.resume();
      timeout_ms_ = request.has_timeout_ms() ? std::optional(request.timeout_ms()) : std::nullopt;
      changed_.wait(lock, [this] { return !entries_.empty(); });
      for (v1::GenerateBatchEntry& entry : std::exchange(entries_, {})) {
        v1::GenerateBatchResponse response;
        entry.set_tag(request.tag());
        *response.add_entries() = std::move(entry);
        stream->Write(response);
      }
    }
    return grpc::Status::OK;
  }

  // For the next request, or for the one that waits.
  void Allow(std::vector<v1::GenerateBatchEntry> entries) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_ = std::move(entries);
    changed_.notify_one();
  }
  void SetRenderedChat(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    rendered_chat_ = text;
  }
  void SetPromptTokens(int num_tokens) {
    const std::lock_guard<std::mutex> lock(mutex_);
    num_prompt_tokens_ = num_tokens;
  }
  uint32_t max_tokens() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return max_tokens_;
  }
  std::string grammar() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return grammar_;
  }
  int num_requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return num_requests_;
  }
  v1::ResumeRequest resume() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return resume_;
  }
  std::optional<uint64_t> timeout_ms() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return timeout_ms_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::GenerateBatchEntry> entries_;
  std::string rendered_chat_;
  int num_prompt_tokens_ = 0;
  uint32_t max_tokens_ = 0;  // Of the last request.
  std::string grammar_;      // Of the last request.
  int num_requests_ = 0;
  v1::ResumeRequest resume_;            // The last request, if it was one.
  std::optional<uint64_t> timeout_ms_;  // Of the last request.
};

// Records what a client gets.
class FakeExchange : public WebExchange {
 public:
  explicit FakeExchange(WebRequest request = WebRequest()) : request_(std::move(request)) {}
  const WebRequest& request() const override { return request_; }
  std::shared_ptr<const std::string> TakeBody() override { return std::make_shared<std::string>(); }
  void OnGone(std::function<void()> gone) override { gone_ = std::move(gone); }
  void Keep(std::shared_ptr<void> something) override { kept = std::move(something); }
  void Respond(WebResponse response) override {
    code = response.code;
    text = response.body;
    headers = std::move(response.headers);
    has_ended = true;
    gone_ = nullptr;
  }
  void BeginEvents() override { ++num_begins; }
  void Send(const std::string& piece) override { text += piece; }
  void EndEvents() override {
    has_ended = true;
    gone_ = nullptr;
  }

  void Leave() { std::exchange(gone_, nullptr)(); }

  int code = 0;        // Of an answer that is no stream.
  int num_begins = 0;  // Of a stream.
  std::string text;
  std::vector<std::pair<std::string, std::string>> headers;
  std::shared_ptr<void> kept;
  bool has_ended = false;

 private:
  const WebRequest request_;
  std::function<void()> gone_;
};

// Has a loop instead of a thread and a port.
class FakeServer : public WebServer {
 public:
  absl::Status Listen(Handler /*handler*/) override { return absl::OkStatus(); }
  void Post(std::function<void()> function) override { loop.PostAfter(milliseconds(0), std::move(function)); }
  void PostAfter(milliseconds delay, std::function<void()> function) override {
    loop.PostAfter(delay, std::move(function));
  }
  void Stop(milliseconds /*grace*/) override {}
  bool is_stopping() const override { return false; }
  PortStats stats() const override { return {}; }
  std::string address() const override { return ""; }

  Loop loop;
};

class GenerateExchangeTest : public ::testing::Test {
 protected:
  GenerateExchangeTest() {
    char directory[] = "/tmp/quire-exchange.XXXXXX";
    QUIRE_CHECK(mkdtemp(directory) != nullptr);
    directory_ = directory;
    const std::string address = absl::StrCat("unix:", directory_, "/manager");
    StartManager(address);
    options_.formats = {.tool_calls = "none", .reasoning = "none"};
    options_.max_answer_bytes = kMaxAnswerBytes;
    options_.max_answer_logprobs = 100;
    link_ = std::make_unique<ManagerLink>(
        std::vector<std::shared_ptr<grpc::Channel>>{grpc::CreateChannel(address, grpc::InsecureChannelCredentials())},
        [this, call = calls_](std::function<void()> function) { server_.Post(std::move(function)); },
        [this](milliseconds delay, std::function<void()> function) { server_.PostAfter(delay, std::move(function)); },
        /*max_callers=*/4, milliseconds(60'000), kMaxWaitingBytes);
  }
  ~GenerateExchangeTest() override {
    manager_.Allow({End()});  // No request waits any more.
    grpc_server_->Shutdown(std::chrono::system_clock::now());
    // Each call of gRPC that has not ended has a copy, and may still use the loop.
    server_.loop.RunUntil([this] { return calls_.use_count() == 2; });
    link_.reset();
    std::filesystem::remove_all(directory_);
  }

  void StartManager(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&manager_);
    grpc_server_ = builder.BuildAndStart();
  }

  // Begins a completion whose prompt has `num_bytes` bytes.
  std::shared_ptr<FakeExchange> Start(size_t num_bytes, bool streams = true) {
    return Complete({{"prompt", std::string(num_bytes, 'x')}, {"stream", streams}});
  }
  std::shared_ptr<FakeExchange> Complete(const Json& body, WebRequest request = WebRequest()) {
    auto exchange = std::make_shared<FakeExchange>(std::move(request));
    auto call = std::get<GenerateCall>(ReadCompletionCall(body));
    for (const v1::GenerateRequest& generate : call.requests) call.num_bytes += generate.ByteSizeLong();
    GenerateExchange::Start(std::move(call), "", exchange, environment());
    return exchange;
  }
  // Begins a message with these members.
  std::shared_ptr<FakeExchange> Message(const Json& members) {
    Json body = {{"max_tokens", 9}, {"messages", {{{"role", "user"}, {"content", "x"}}}}};
    body.update(members);
    return Begin(std::get<GenerateCall>(ReadMessageCall(body)));
  }
  // Begins a response with these members.
  std::shared_ptr<FakeExchange> Respond(const Json& members) {
    Json body = {{"input", "x"}};
    body.update(members);
    return Begin(std::get<GenerateCall>(ReadResponseCall(body)));
  }
  std::shared_ptr<FakeExchange> Begin(GenerateCall call) {
    auto exchange = std::make_shared<FakeExchange>();
    GenerateExchange::Start(std::move(call), "", exchange, environment());
    return exchange;
  }
  GenerateExchange::Environment environment() { return {&options_, link_.get(), &server_, &bodies_, &memory_}; }
  void RunFor(milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    server_.loop.RunUntil([end] { return std::chrono::steady_clock::now() >= end; });
  }
  void RunUntilEnd(const FakeExchange& exchange) {
    server_.loop.RunUntil([&] { return exchange.has_ended; });
  }
  void RunUntilWaiting(int num_requests) {
    server_.loop.RunUntil([&] { return manager_.num_requests() == num_requests; });
  }

  static constexpr size_t kMaxWaitingBytes = 1000;
  static constexpr size_t kMaxAnswerBytes = 1 << 20;

  std::string directory_;
  FakeManager manager_;
  std::unique_ptr<grpc::Server> grpc_server_;
  GatewayOptions options_ = {};
  AnswerMemory memory_{kMaxAnswerBytes};
  FakeServer server_;
  BodyReader bodies_{&server_};
  const std::shared_ptr<int> calls_ = std::make_shared<int>(0);  // The link and its calls have copies.
  std::unique_ptr<ManagerLink> link_;
};

TEST_F(GenerateExchangeTest, AnErrorBeforeTheFirstEventHasItsHttpCode) {
  manager_.Allow({Text(""), End(grpc::StatusCode::RESOURCE_EXHAUSTED)});  // The first token has no whole character.
  const auto exchange = Start(1);
  RunUntilEnd(*exchange);
  EXPECT_EQ(exchange->num_begins, 0);
  EXPECT_EQ(exchange->code, 429);
  EXPECT_THAT(exchange->headers, ElementsAre(std::pair<std::string, std::string>("Retry-After", "1")));
}

TEST_F(GenerateExchangeTest, AnAnswerHasTheNameOfTheModelThatTheClientUsed) {
  options_.served_names = {"a", "b"};
  const auto complete = [&](const Json& model) {
    manager_.Allow({Finish("x"), End()});
    const auto exchange = Complete({{"prompt", "x"}, {"model", model}});
    RunUntilEnd(*exchange);
    return Json::parse(exchange->text);
  };
  EXPECT_EQ(complete("b")["model"], "b");
  EXPECT_EQ(complete(nullptr)["model"], "a");
  EXPECT_EQ(complete("model")["error"]["code"], "model_not_found") << "the name at the manager is not for clients";
}

TEST_F(GenerateExchangeTest, ARequestWaitsUntilThereIsAManager) {
  options_.manager_wait = absl::Hours(1);
  grpc_server_->Shutdown();
  const auto exchange = Start(100, /*streams=*/false);
  RunFor(milliseconds(300));
  EXPECT_FALSE(exchange->has_ended);
  EXPECT_EQ(link_->Hold(kMaxWaitingBytes), nullptr) << "it counts as waiting";
  manager_.Allow({Finish("x"), End()});
  StartManager(absl::StrCat("unix:", directory_, "/manager"));
  RunUntilEnd(*exchange);
  EXPECT_EQ(exchange->code, 200);
  EXPECT_NE(link_->Hold(kMaxWaitingBytes), nullptr);
}

TEST_F(GenerateExchangeTest, TheWaitForAManagerEndsWithItsTimeAndWithTheDeadline) {
  grpc_server_->Shutdown();
  options_.manager_wait = absl::Milliseconds(300);
  const auto exchange = Start(100);
  RunFor(milliseconds(200));
  EXPECT_FALSE(exchange->has_ended);
  RunUntilEnd(*exchange);
  EXPECT_THAT(exchange->text, HasSubstr("no_manager"));
  options_.manager_wait = absl::Hours(1);
  options_.request_timeout = absl::Milliseconds(300);
  const auto hurried = Start(100);
  RunUntilEnd(*hurried);
  EXPECT_EQ(hurried->code, 503);
}

TEST_F(GenerateExchangeTest, TheWaitForAManagerEndsWhenTheClientLeaves) {
  options_.manager_wait = absl::Hours(1);
  grpc_server_->Shutdown();
  const auto exchange = Start(100);
  RunFor(milliseconds(200));
  exchange->Leave();
  EXPECT_NE(link_->Hold(kMaxWaitingBytes), nullptr);
  server_.loop.RunUntil([&] { return exchange.use_count() == 1; });
}

TEST_F(GenerateExchangeTest, AnErrorAfterTheFirstEventIsAnEvent) {
  manager_.Allow({Text(""), Text("a"), Text("b"), End(grpc::StatusCode::RESOURCE_EXHAUSTED)});
  const auto exchange = Start(1);
  RunUntilEnd(*exchange);
  EXPECT_EQ(exchange->num_begins, 1);
  EXPECT_EQ(exchange->code, 0);
  EXPECT_THAT(exchange->text, HasSubstr(R"("text":"a")"));
  EXPECT_THAT(exchange->text, HasSubstr("data: {\"error\":"));
}

TEST_F(GenerateExchangeTest, AnAnswerGoesOnWhenTheConnectionHasCarriedTooManyHeaders) {
  options_.resume_time = absl::Seconds(30);
  for (const bool streams : {true, false}) {
    const int num_before = manager_.num_requests();
    manager_.Allow({WithResumeToken(Text("a")), EndOfConnection()});
    const auto exchange = Start(1, streams);
    RunUntilWaiting(num_before + 2);
    manager_.Allow({Finish("b"), End()});
    RunUntilEnd(*exchange);
    EXPECT_EQ(exchange->code, streams ? 0 : 200);
    EXPECT_THAT(exchange->text, HasSubstr(streams ? "data: [DONE]" : R"("text":"ab")"));
  }
}

TEST_F(GenerateExchangeTest, AMessageGoesOnWithTheNextManager) {
  options_.resume_time = absl::Seconds(30);
  for (const bool streams : {true, false}) {
    const int num_before = manager_.num_requests();
    manager_.Allow({WithResumeToken(Text("a")), EndOfConnection()});
    const auto exchange = Message({{"stream", streams}});
    RunUntilWaiting(num_before + 2);
    EXPECT_EQ(manager_.resume().resume_token(), "token");
    manager_.Allow({Finish("b"), End()});
    RunUntilEnd(*exchange);
    EXPECT_EQ(exchange->code, streams ? 0 : 200);
    EXPECT_THAT(exchange->text, HasSubstr(streams ? "event: message_stop" : R"({"type":"text","text":"ab"})"));
  }
}

TEST_F(GenerateExchangeTest, TheLossOfAManagerIsAnEventOfMessages) {
  manager_.Allow({Text("a"), End(grpc::StatusCode::RESOURCE_EXHAUSTED)});
  const auto exchange = Message({{"stream", true}});
  RunUntilEnd(*exchange);
  EXPECT_THAT(exchange->text, StartsWith("event: message_start\n"));
  EXPECT_THAT(exchange->text, HasSubstr("event: error\ndata: {\"type\":\"error\""));
}

TEST_F(GenerateExchangeTest, AMessageGetsAtMostWhatItsPromptLeavesInTheContext) {
  manager_.SetPromptTokens(60);
  const auto answer_to = [this](uint32_t max_tokens) {
    v1::GenerateBatchEntry last = Text("a");
    last.mutable_response()->set_finish_reason(v1::FINISH_REASON_LENGTH);
    manager_.Allow({last, End()});
    const auto exchange = Message({{"max_tokens", max_tokens}});
    RunUntilEnd(*exchange);
    return Json::parse(exchange->text)["stop_reason"];
  };
  EXPECT_EQ(answer_to(40), "max_tokens");
  EXPECT_EQ(manager_.max_tokens(), 40u);
  EXPECT_EQ(answer_to(32000), "model_context_window_exceeded");
  EXPECT_EQ(manager_.max_tokens(), static_cast<uint32_t>(FakeManager::kContext - 60));
}

TEST_F(GenerateExchangeTest, AResponseGoesOnWithTheNextManager) {
  options_.resume_time = absl::Seconds(30);
  for (const bool streams : {true, false}) {
    const int num_before = manager_.num_requests();
    manager_.Allow({WithResumeToken(Text("a")), EndOfConnection()});
    const auto exchange = Respond({{"stream", streams}});
    RunUntilWaiting(num_before + 2);
    EXPECT_EQ(manager_.resume().resume_token(), "token");
    manager_.Allow({Finish("b"), End()});
    RunUntilEnd(*exchange);
    EXPECT_EQ(exchange->code, streams ? 0 : 200);
    EXPECT_THAT(exchange->text, HasSubstr(streams ? "event: response.completed" : R"("text":"ab"})"));
  }
}

TEST_F(GenerateExchangeTest, TheLossOfAManagerIsTheFailureOfAResponse) {
  manager_.Allow({Text("a"), End(grpc::StatusCode::RESOURCE_EXHAUSTED)});
  const auto exchange = Respond({{"stream", true}});
  RunUntilEnd(*exchange);
  EXPECT_THAT(exchange->text, StartsWith("event: response.created\n"));
  EXPECT_THAT(exchange->text, HasSubstr("event: error\ndata: {\"type\":\"error\""));
  EXPECT_THAT(exchange->text, HasSubstr("event: response.failed\n"));
}

TEST_F(GenerateExchangeTest, AResponseGetsAtMostWhatItsPromptLeavesInTheContext) {
  manager_.SetPromptTokens(60);
  const auto max_tokens_of = [this](const Json& members) {
    manager_.Allow({Finish("a"), End()});
    const auto exchange = Respond(members);
    RunUntilEnd(*exchange);
    EXPECT_EQ(exchange->code, 200);
    return manager_.max_tokens();
  };
  const auto room = static_cast<uint32_t>(FakeManager::kContext - 60);
  EXPECT_EQ(max_tokens_of({{"max_output_tokens", 40}}), 40u);
  EXPECT_EQ(max_tokens_of({{"max_output_tokens", 32000}}), room);
  EXPECT_EQ(max_tokens_of(Json::object()), room);
}

TEST_F(GenerateExchangeTest, ARequestCountsAsWaitingUntilTheManagerHasSentSomething) {
  const auto first = Start(900);
  const auto expect_full = [this] {
    const auto other = Start(200);
    EXPECT_EQ(other->code, 503);
    EXPECT_THAT(other->text, HasSubstr("at most 1000 are allowed"));
    EXPECT_THAT(other->headers, ElementsAre(std::pair<std::string, std::string>("Retry-After", "1")));
  };
  expect_full();  // The gateway asks for the model.
  RunUntilWaiting(1);
  expect_full();  // The manager has the request and has sent nothing.
  EXPECT_FALSE(first->has_ended);
  manager_.Allow({Text("a")});
  server_.loop.RunUntil([&] { return !first->text.empty(); });
  const auto second = Start(200);
  RunUntilWaiting(2);
  EXPECT_EQ(second->code, 0);
  manager_.Allow({Text("b"), End()});
  RunUntilEnd(*second);
  EXPECT_THAT(second->text, HasSubstr("[DONE]"));
}

TEST_F(GenerateExchangeTest, TheRequestOfAClientThatHasLeftDoesNotWait) {
  for (const bool is_sent : {false, true}) {
    const auto exchange = Start(900);
    if (is_sent) RunUntilWaiting(1);
    exchange->Leave();
    if (is_sent) manager_.Allow({Text("a"), End()});
    // The gateway may need some time, so the test tries again.
    std::shared_ptr<FakeExchange> next;
    server_.loop.RunUntil([&] {
      next = Start(900);
      return next->code == 0;
    });
    next->Leave();
    EXPECT_THAT(exchange->text, IsEmpty());
  }
}

TEST_F(GenerateExchangeTest, TheAnswerOfAGuideIsNotCutIntoThoughts) {
  options_.formats.reasoning = "auto";
  const char* const guides[] = {R"("response_format": {"type": "json_object"})",
                                R"("response_format": {"type": "json_schema", "json_schema": {"schema": true}})",
                                R"("guided_choice": ["a"])",
                                R"("guided_regex": "a")",
                                R"("guided_grammar": "root ::= x")",
                                R"("guided_json": true)",
                                R"("structured_outputs": {"regex": "a"})"};
  for (const char* const guide : guides) {
    for (const char* const streams : {"false", "true"}) {
      manager_.Allow({Text("<think>a</think>"), Finish("b"), End()});
      const auto exchange = std::make_shared<FakeExchange>();
      const std::string body = absl::StrCat(R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, )",
                                            R"("stream": )", streams, ", ", guide, "}");
      GenerateExchange::Start(std::get<GenerateCall>(ReadChatCall(*ParseBody(body))), "", exchange, environment());
      RunUntilEnd(*exchange);
      EXPECT_THAT(exchange->text, HasSubstr("<think>a</think>")) << body;
    }
  }
}

TEST_F(GenerateExchangeTest, ThePromptDecidesWhetherACallMayComeAfterThoughts) {
  options_.formats = {.tool_calls = "hermes", .reasoning = "think"};
  const auto grammar_after = [&](const std::string& rendered_chat, const std::string& fields = "") {
    manager_.SetRenderedChat(rendered_chat);
    manager_.Allow({Finish("x"), End()});
    const auto exchange = std::make_shared<FakeExchange>();
    const std::string body =
        absl::StrCat(R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, )",
                     R"("tools": [{"function": {"name": "f"}}], "tool_choice": "required")", fields, "}");
    GenerateExchange::Start(std::get<GenerateCall>(ReadChatCall(*ParseBody(body))), "", exchange, environment());
    RunUntilEnd(*exchange);
    EXPECT_EQ(exchange->code, 200) << exchange->text;
    return manager_.grammar();
  };
  EXPECT_THAT(grammar_after("a"), StartsWith("start: [\"<think>\" thoughts] "));
  EXPECT_THAT(grammar_after("a<think>\n"), StartsWith("start: thoughts "));
  EXPECT_THAT(grammar_after("a<think>\n\n</think>\n\n"), StartsWith("start: (\"<tool_call>"));
  EXPECT_THAT(grammar_after("a", R"(, "continue_final_message": true)"), StartsWith("start: (\"<tool_call>"));
}

TEST_F(GenerateExchangeTest, AStrictToolRestrictsTheCallsThatTheModelChooses) {
  const auto grammar_with = [&](const std::string& format, const char* strict) {
    options_.formats = {.tool_calls = format, .reasoning = "none"};
    manager_.Allow({Finish("x"), End()});
    const auto exchange = std::make_shared<FakeExchange>();
    const std::string body = absl::StrCat(R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 9, )",
                                          R"("tools": [{"function": {"name": "f", "strict": )", strict, "}}]}");
    GenerateExchange::Start(std::get<GenerateCall>(ReadChatCall(*ParseBody(body))), "", exchange, environment());
    RunUntilEnd(*exchange);
    EXPECT_EQ(exchange->code, 200) << exchange->text;
    return manager_.grammar();
  };
  EXPECT_THAT(grammar_with("hermes", "true"), StartsWith("start: /"));
  EXPECT_EQ(grammar_with("hermes", "false"), "");
  EXPECT_EQ(grammar_with("mistral", "true"), "") << "a grammar cannot name its tag";
  EXPECT_EQ(grammar_with("none", "true"), "");
}

TEST_F(GenerateExchangeTest, AnAnswerWithTooManyLogprobsIsRefusedBeforeTheManagerHasIt) {
  const auto exchange = Complete({{"prompt", std::vector<uint32_t>(51, 5)}, {"echo", true}, {"logprobs", 1}});
  RunUntilEnd(*exchange);
  EXPECT_EQ(exchange->code, 400);
  EXPECT_THAT(exchange->text, HasSubstr("logprobs is 1, and with 1 prompt and n 1 the answer has at least 102"));
  EXPECT_EQ(manager_.num_requests(), 0);
}

TEST_F(GenerateExchangeTest, LogprobsThatTheRequestDoesNotTellAreCountedWhenTheyCome) {
  v1::GenerateBatchEntry entry = Text("a");
  for (int i = 0; i < 51; ++i) {
    v1::PositionLogprobs* const position = entry.mutable_response()->add_prompt_logprobs();
    position->mutable_chosen();
    position->add_top();
  }
  manager_.Allow({entry, End()});
  const auto exchange = Complete({{"prompt", "x"}, {"prompt_logprobs", 1}});
  RunUntilEnd(*exchange);
  EXPECT_EQ(exchange->code, 400);
  EXPECT_THAT(exchange->text, HasSubstr("prompt_logprobs is 1, and with 1 prompt and n 1 the answer has at least 102"));
}

TEST_F(GenerateExchangeTest, TheMemoryOfAnswersIsBoundedUntilTheyAreRead) {
  const std::string part(kMaxAnswerBytes / 6, 'y');
  manager_.Allow({Text(part), Finish(part), End()});
  auto first = Start(1, /*streams=*/false);
  RunUntilEnd(*first);
  EXPECT_EQ(first->code, 200) << first->text;
  manager_.Allow({Text(part), Text(part), Finish(part), End()});
  const auto second = Start(1, /*streams=*/false);
  RunUntilEnd(*second);
  EXPECT_EQ(second->code, 429) << "the first answer was not read";
  EXPECT_THAT(second->text, HasSubstr("--max-answer-bytes"));
  EXPECT_THAT(second->text, HasSubstr("or ask for a stream"));
  first = nullptr;
  manager_.Allow({Text(part), Finish(part), End()});
  const auto third = Start(1, /*streams=*/false);
  RunUntilEnd(*third);
  EXPECT_EQ(third->code, 200) << third->text;
}

TEST_F(GenerateExchangeTest, ABodyThatIsLargerThanItsAnswerMustHaveRoom) {
  manager_.Allow({Finish(std::string(kMaxAnswerBytes / 9, '\1')), End()});  // The body has \u0001 for each of them.
  const auto exchange = Start(1, /*streams=*/false);
  RunUntilEnd(*exchange);
  EXPECT_EQ(exchange->code, 400) << "it would never have room";
  EXPECT_THAT(exchange->text, HasSubstr("at most 524288, half of --max-answer-bytes"));
  EXPECT_THAT(exchange->headers, IsEmpty());
}

TEST_F(GenerateExchangeTest, AStreamThatIsTooLargeIsNotAdvisedToBeAStream) {
  const std::string part(kMaxAnswerBytes / 4, 'y');
  manager_.Allow({Text(part), Text(part), Finish(part), End()});
  const auto exchange = Respond({{"stream", true}});
  RunUntilEnd(*exchange);
  EXPECT_THAT(exchange->text, HasSubstr("half of --max-answer-bytes; ask for less\""));
}

TEST_F(GenerateExchangeTest, APromptBeyondTheContextIsNotSent) {
  const Json prompts = {std::vector<uint32_t>(2, 7), std::vector<uint32_t>(FakeManager::kContext + 1, 7)};
  const auto exchange = Complete({{"prompt", prompts}, {"stream", true}});
  RunUntilEnd(*exchange);
  EXPECT_EQ(exchange->code, 400);
  EXPECT_THAT(exchange->text, HasSubstr("prompt[1] has 101 tokens, the model's context is 100"));
  EXPECT_THAT(exchange->text, HasSubstr("context_length_exceeded"));
  EXPECT_EQ(manager_.num_requests(), 0);
}

TEST_F(GenerateExchangeTest, LargeBodiesAreReadWithALowerPriority) {
  BodyReader reader(&server_);
  WebRequest request;
  request.body = std::string(BodyReader::kSmallBytes + 1, 'x');
  const auto exchange = std::make_shared<FakeExchange>(std::move(request));
  std::optional<int> nice;
  reader.Read<int>(
      exchange, [](const std::string&) { return getpriority(PRIO_PROCESS, 0); }, [&nice](int read) { nice = read; });
  server_.loop.RunUntil([&nice] { return nice.has_value(); });
  EXPECT_GT(*nice, getpriority(PRIO_PROCESS, 0));
}

TEST_F(GenerateExchangeTest, AnAnswerThatWasNotGeneratedCountsAsWell) {
  FakeExchange first;
  RespondWith(std::string(kMaxAnswerBytes / 3, 'x'), "token", &memory_, &first);
  EXPECT_EQ(first.code, 200);
  FakeExchange second;
  RespondWith(std::string(kMaxAnswerBytes / 3, 'x'), "token", &memory_, &second);
  EXPECT_EQ(second.code, 429) << "the client has not read the first one";
  EXPECT_THAT(second.text, HasSubstr("try again, or ask for less"));
  first.kept = nullptr;
  FakeExchange third;
  RespondWith(std::string(kMaxAnswerBytes / 3, 'x'), "token", &memory_, &third);
  EXPECT_EQ(third.code, 200);
}

TEST_F(GenerateExchangeTest, ATokenThatNobodyChecksMakesNoCaller) {
  const FakeExchange exchange;
  EXPECT_EQ(CallerOf(options_, "token", exchange), exchange.request().address);
  options_.requires_tokens = true;
  EXPECT_EQ(CallerOf(options_, "token", exchange), "token");
}

TEST_F(GenerateExchangeTest, ManyChoicesTakeMemoryBeforeTheyBegin) {
  const auto exchange = Complete({{"prompt", std::vector<std::string>(64, "x")}, {"n", 64}});
  RunUntilEnd(*exchange);
  EXPECT_EQ(exchange->code, 400) << "it would never have room";
  EXPECT_EQ(manager_.num_requests(), 0);
}

v1::GenerateBatchEntry SlowReader() {
  v1::GenerateBatchEntry entry = End(grpc::StatusCode::RESOURCE_EXHAUSTED);
  google::rpc::ErrorInfo reason;
  reason.set_reason("SLOW_READER");
  entry.mutable_end()->add_details()->PackFrom(reason);
  return entry;
}

TEST_F(GenerateExchangeTest, AStreamThatTheGatewayHasReadTooSlowlyGoesOn) {
  options_.resume_time = absl::Seconds(60);
  for (const bool streams : {false, true}) {
    const int num_before = manager_.num_requests();
    v1::GenerateBatchEntry first = Text("begin");
    first.mutable_response()->set_resume_token("token");
    first.mutable_response()->set_position(5);
    manager_.Allow({first, SlowReader()});
    const auto exchange = Start(1, streams);
    RunUntilWaiting(num_before + 2);
    EXPECT_EQ(manager_.resume().resume_token(), "token");
    ASSERT_EQ(manager_.resume().received_size(), 1);
    EXPECT_EQ(manager_.resume().received(0).next_position(), 6u);
    v1::GenerateBatchEntry last = Finish("rest");
    last.mutable_response()->set_position(6);
    manager_.Allow({last, End()});
    RunUntilEnd(*exchange);
    EXPECT_THAT(exchange->text, HasSubstr("begin"));
    EXPECT_THAT(exchange->text, HasSubstr("rest"));
    EXPECT_THAT(exchange->text, ::testing::Not(HasSubstr("error")));
  }
}

TEST_F(GenerateExchangeTest, AStreamThatBringsNothingBeforeItIsTooSlowAgainIsNotResumedForEver) {
  options_.resume_time = absl::Seconds(60);
  v1::GenerateBatchEntry first = Text("begin");
  first.mutable_response()->set_resume_token("token");
  manager_.Allow({first, SlowReader()});
  const auto exchange = Start(1, /*streams=*/false);
  RunUntilWaiting(2);
  manager_.Allow({SlowReader()});
  RunUntilEnd(*exchange);
  EXPECT_EQ(exchange->code, 429);
  EXPECT_EQ(manager_.num_requests(), 2);
}

TEST_F(GenerateExchangeTest, TheManagerLearnsTheDeadline) {
  options_.request_timeout = absl::Seconds(60);
  const auto with = [](const std::string& timeout) {
    WebRequest request;
    if (!timeout.empty()) request.timeout = timeout;
    return request;
  };
  const auto timeout_of = [&](const std::string& timeout) {
    manager_.Allow({Finish("a"), End()});
    const auto exchange = Complete({{"prompt", "x"}}, with(timeout));
    RunUntilEnd(*exchange);
    return manager_.timeout_ms();
  };
  const auto of_flag = timeout_of("");
  ASSERT_TRUE(of_flag.has_value());
  EXPECT_GT(*of_flag, 20'000u);
  EXPECT_LE(*of_flag, 60'000u);
  EXPECT_LE(timeout_of("20"), 20'000u);
  options_.request_timeout = absl::ZeroDuration();
  EXPECT_EQ(timeout_of(""), std::nullopt);
  const auto wrong = Complete({{"prompt", "x"}}, with("soon"));
  EXPECT_EQ(wrong->code, 400);
}

}  // namespace
}  // namespace quire
