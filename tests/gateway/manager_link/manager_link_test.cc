// SPDX-License-Identifier: Apache-2.0

#include "gateway/manager_link/manager_link.h"

#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/gateway/loop.h"

// Tests how the gateway finds the manager that leads among several ones.

namespace quire {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr int kMaxMessageBytes = 1000;  // Of the managers.

google::rpc::Status Unavailable(const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  google::rpc::Status status;
  status.set_code(grpc::StatusCode::UNAVAILABLE);
  status.set_message(reason == "NOT_LEADER"  ? "this manager stands by"
                     : reason == "DRAINING"  ? "this manager stops"
                     : reason == "NO_WORKER" ? "this manager has no worker"
                                             : "this manager restores its requests");
  status.add_details()->PackFrom(info);
  return status;
}

grpc::Status ToGrpc(const google::rpc::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message(), status.SerializeAsString());
}

// Refuses everything while it stands by. A request gets one response with the name of the manager, and then its end.
class FakeManager : public v1::InferenceService::Service {
 public:
  explicit FakeManager(std::string name) : name_(std::move(name)) {}

  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest*,
                        v1::GetModelResponse* response) override {
    ++num_calls;
    ++num_models;
    response->set_name(name_);
    response->set_max_message_bytes(kMaxMessageBytes);
    response->set_max_batch_requests(max_batch_requests);
    if (waits_for_cancel) WaitForCancel(context);
    if (lacks_worker) return ToGrpc(Unavailable("NO_WORKER"));
    if (num_restoring-- > 0) return ToGrpc(Unavailable("RESTORING"));
    return leads ? grpc::Status::OK : ToGrpc(Unavailable("NOT_LEADER"));
  }

  grpc::Status Embed(grpc::ServerContext* context, const v1::EmbedRequest*, v1::EmbedResponse*) override {
    WaitForCancel(context);
    return grpc::Status::OK;
  }

  grpc::Status GenerateBatch(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::GenerateBatchResponse, v1::GenerateBatchRequest>* stream) override {
    ++num_calls;
    ++num_batches;
    if (!leads) return ToGrpc(Unavailable("NOT_LEADER"));
    uint64_t last_tag = 0;
    v1::GenerateBatchRequest request;
    while (stream->Read(&request)) {
      ++num_messages;
      if (request.has_cancel()) {
        if (ends_cancelled) {
          SendCancelled(request.tag(), last_tag, stream);
        } else {
          ++num_kept;
        }
        continue;
      }
      last_tag = request.tag();
      if (is_lost) {
        while (leads) std::this_thread::sleep_for(milliseconds(1));
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
      }
      if (num_together > 0) {
        SendTogether(request.tag(), stream);
        continue;
      }
      v1::GenerateBatchResponse response;
      timeout_ms = request.timeout_ms();
      if (stops || lacks_worker || num_restoring-- > 0) {
        response.add_entries()->set_tag(request.tag());
        *response.mutable_entries(0)->mutable_end() = Unavailable(stops          ? "DRAINING"
                                                                  : lacks_worker ? "NO_WORKER"
                                                                                 : "RESTORING");
        stream->Write(response);
        continue;
      }
      v1::GenerateBatchEntry* const begin = response.add_entries();
      begin->set_tag(request.tag());
      begin->mutable_response()->set_text_delta(
          absl::StrCat(name_, request.has_start() ? request.start().request_id() : "resumed"));
      stream->Write(response);
      if (is_cut) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
      if (is_endless) continue;
      response.Clear();
      response.add_entries()->set_tag(request.tag());
      response.mutable_entries(0)->mutable_end();
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

  std::atomic<bool> leads = true;
  // Calls of GetModel wait until their client cancels them.
  std::atomic<bool> waits_for_cancel = false;
  std::promise<void> waiting;
  std::promise<void> cancelled;
  std::atomic<bool> stops = false;  // Refuses requests, and keeps calls open.
  std::atomic<bool> lacks_worker = false;
  std::atomic<uint64_t> timeout_ms = 0;  // Of the last request.
  std::atomic<bool> is_cut = false;      // The call breaks after the first response.
  std::atomic<bool> is_endless = false;  // Requests have no end.
  std::atomic<bool> is_lost = false;     // The call breaks before the first response, when it leads no more.
  // When a request was cancelled, it gets its end, and then the last request of the call gets a text. Otherwise the end
  // does not come.
  std::atomic<bool> ends_cancelled = false;
  std::atomic<int> num_kept = 0;                 // Number of requests that were cancelled and did not get their end.
  std::atomic<uint32_t> max_batch_requests = 0;  // What GetModel says. The manager itself takes any number.
  std::atomic<int> num_restoring = 0;  // Number of first requests that find that the manager still restores others.
  // Number of requests at which each of them gets a text with the same message. When one more is there, each gets
  // another text and its end.
  std::atomic<int> num_together = 0;
  std::atomic<int> num_positions = 0;  // Number of logprobs of each of these texts.
  std::atomic<int> num_calls = 0;
  std::atomic<int> num_models = 0;    // Calls of GetModel.
  std::atomic<int> num_batches = 0;   // Calls of GenerateBatch.
  std::atomic<int> num_messages = 0;  // Messages of calls of GenerateBatch.

 private:
  void WaitForCancel(grpc::ServerContext* context) {
    waiting.set_value();
    while (!context->IsCancelled()) std::this_thread::sleep_for(milliseconds(1));
    cancelled.set_value();
  }
  void SendCancelled(uint64_t tag, uint64_t last_tag,
                     grpc::ServerReaderWriter<v1::GenerateBatchResponse, v1::GenerateBatchRequest>* stream) {
    v1::GenerateBatchResponse response;
    response.add_entries()->set_tag(tag);
    response.mutable_entries(0)->mutable_end()->set_code(grpc::StatusCode::CANCELLED);
    response.add_entries()->set_tag(last_tag);
    response.mutable_entries(1)->mutable_response()->set_text_delta("text");
    stream->Write(response);
  }
  void SendTogether(uint64_t tag,
                    grpc::ServerReaderWriter<v1::GenerateBatchResponse, v1::GenerateBatchRequest>* stream) {
    tags_.push_back(tag);
    const int num_tags = static_cast<int>(tags_.size());
    if (num_tags < num_together) return;
    v1::GenerateBatchResponse response;
    for (const uint64_t other : tags_) {
      v1::GenerateBatchEntry* const entry = response.add_entries();
      entry->set_tag(other);
      entry->mutable_response()->set_text_delta("text");
      for (int i = 0; i < num_positions; ++i) entry->mutable_response()->add_prompt_logprobs();
      if (num_tags > num_together) entry->mutable_end();
    }
    stream->Write(response);
  }

  std::vector<uint64_t> tags_;
  const std::string name_;
};

class ManagerLinkTest : public ::testing::Test {
 protected:
  ManagerLinkTest() {
    grpc::EnableDefaultHealthCheckService(true);
    char directory[] = "/tmp/quire-link.XXXXXX";
    QUIRE_CHECK(mkdtemp(directory) != nullptr);
    directory_ = directory;
    for (int i = 0; i < 2; ++i) Start(i);
    MakeLink(milliseconds(10'000));
  }
  ~ManagerLinkTest() override {
    link_.reset();
    replaced_links_.clear();
    for (const auto& server : servers_) {
      if (server != nullptr) server->Shutdown(std::chrono::system_clock::now());
    }
    std::filesystem::remove_all(directory_);
  }

  std::string Address(int i) const { return absl::StrCat("unix:", directory_, "/", i); }
  void Start(int i) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(Address(i), grpc::InsecureServerCredentials());
    builder.RegisterService(&managers_[i]);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    servers_[i] = builder.BuildAndStart();
  }
  void Stop(int i) {
    servers_[i]->Shutdown(std::chrono::system_clock::now());
    servers_[i] = nullptr;
  }
  void MakeLink(milliseconds timeout, int num_managers = 2, size_t max_waiting_bytes = 1 << 20) {
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (int i = 0; i < num_managers; ++i)
      channels.push_back(grpc::CreateChannel(Address(i), grpc::InsecureChannelCredentials()));
    if (link_ != nullptr) replaced_links_.push_back(std::move(link_));
    link_ = std::make_unique<ManagerLink>(
        channels, [this](std::function<void()> function) { loop_.PostAfter(milliseconds(0), std::move(function)); },
        [this](milliseconds delay, std::function<void()> function) { loop_.PostAfter(delay, std::move(function)); },
        /*max_callers=*/4, timeout, max_waiting_bytes);
  }

  std::string ModelName() {
    std::string name;
    link_->GetModel("", [&](const google::rpc::Status& status, const v1::GetModelResponse& model) {
      name = status.code() == 0 ? model.name() : status.message();
    });
    loop_.RunUntil([&] { return !name.empty(); });
    return name;
  }
  // The text of a request, and the message of its error if it has one.
  std::string Generate(const std::string& id) {
    v1::GenerateRequest request;
    request.set_request_id(id);
    return Await([&](EntryHandler handler) { return link_->Start("", request, std::move(handler)); });
  }
  std::string Await(const std::function<ManagerLink::Ticket(EntryHandler)>& send) {
    std::string text;
    bool has_ended = false;
    send([&](const v1::GenerateBatchEntry& entry) {
      text += entry.response().text_delta() + entry.end().message();
      has_ended |= entry.has_end();
    });
    loop_.RunUntil([&] { return has_ended; });
    return text;
  }

  std::string directory_;
  Loop loop_;
  FakeManager managers_[2] = {FakeManager("a"), FakeManager("b")};
  std::unique_ptr<grpc::Server> servers_[2];
  std::unique_ptr<ManagerLink> link_;
  std::vector<std::unique_ptr<ManagerLink>> replaced_links_;  // The loop may still run functions for them.
};

TEST_F(ManagerLinkTest, CallsAndRequestsGoPastTheOneThatStandsByAndStayWithTheLeader) {
  managers_[0].leads = false;
  EXPECT_EQ(Generate("1"), "b1");
  EXPECT_EQ(ModelName(), "b");
  EXPECT_EQ(Generate("2"), "b2");
  EXPECT_EQ(managers_[0].num_calls, 1);
  EXPECT_EQ(Await([&](EntryHandler handler) { return link_->Resume("", v1::ResumeRequest(), std::move(handler)); }),
            "bresumed");
}

TEST_F(ManagerLinkTest, RequestsGoPastTheManagerThatStops) {
  managers_[0].stops = true;
  EXPECT_EQ(Generate("1"), "b1");
  EXPECT_EQ(Generate("2"), "b2");
  EXPECT_EQ(managers_[0].num_calls, 1);
}

TEST_F(ManagerLinkTest, ARequestWaitsUntilTheNextManagerLeadsAfterTheOneThatStops) {
  managers_[0].stops = true;
  managers_[1].leads = false;
  std::thread election([this] {
    while (managers_[1].num_calls < 3) std::this_thread::sleep_for(milliseconds(1));
    managers_[1].leads = true;
  });
  EXPECT_EQ(Generate("1"), "b1");
  election.join();
  MakeLink(milliseconds(10'000), /*num_managers=*/1);
  EXPECT_EQ(Generate("2"), "this manager stops");
}

// With one manager and with two.
class NumManagersTest : public ManagerLinkTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Managers, NumManagersTest, ::testing::Values(1, 2));

TEST_P(NumManagersTest, CallsAndRequestsWaitWhileTheManagerRestoresItsRequests) {
  MakeLink(milliseconds(10'000), GetParam());
  managers_[0].num_restoring = 2;
  EXPECT_EQ(ModelName(), "a");
  managers_[0].num_restoring = 2;
  EXPECT_EQ(Generate("1"), "a1");
  EXPECT_EQ(managers_[1].num_calls, 0);
}

TEST_P(NumManagersTest, ACallOrARequestThatMayWaitDoesSoUntilThereIsAManager) {
  MakeLink(milliseconds(300), GetParam());  // The wait may be longer than a call.
  Stop(0);
  Stop(1);
  const auto start = steady_clock::now();
  int num_asked = 0;
  const auto may_wait = [&num_asked] { return ++num_asked > 0; };
  std::string name, text;
  link_->GetModel(
      "", [&](const google::rpc::Status& status, const auto& model) { name = status.message() + model.name(); },
      may_wait);
  v1::GenerateRequest request;
  request.set_request_id("1");
  bool has_ended = false;
  link_->Start(
      "", request,
      [&](const v1::GenerateBatchEntry& entry) {
        text += entry.response().text_delta() + entry.end().message();
        has_ended |= entry.has_end();
      },
      /*hold=*/nullptr, /*timeout=*/std::nullopt, may_wait);
  loop_.RunUntil([&] { return steady_clock::now() > start + milliseconds(600) && num_asked > 4; });
  EXPECT_EQ(name + text, "");
  Start(0);
  loop_.RunUntil([&] { return !name.empty() && has_ended; });
  EXPECT_EQ(name, "a");
  EXPECT_EQ(text, "a1");
}

// The manager has kept a request for --worker-grace before it says that it has no worker.
TEST_P(NumManagersTest, OnlyACallWaitsForTheFirstWorker) {
  MakeLink(milliseconds(10'000), GetParam());
  managers_[0].lacks_worker = true;
  const auto may_wait = [] { return true; };
  EXPECT_THAT(Await([&](EntryHandler handler) {
                return link_->Start("", v1::GenerateRequest(), std::move(handler), nullptr, std::nullopt, may_wait);
              }),
              HasSubstr("no worker"));
  std::string name;
  link_->GetModel(
      "", [&](const google::rpc::Status& status, const auto& model) { name = status.message() + model.name(); },
      may_wait);
  loop_.RunUntil([&] { return managers_[0].num_models >= 3; });
  managers_[0].lacks_worker = false;
  loop_.RunUntil([&] { return !name.empty(); });
  EXPECT_EQ(name, "a");
}

TEST_P(NumManagersTest, TheTimeOfARequestGoesOnWhileItWaits) {
  MakeLink(milliseconds(10'000), GetParam());
  Stop(0);
  Stop(1);
  int num_asked = 0;
  const auto may_wait = [&] {
    if (++num_asked == 3) Start(0);
    return true;
  };
  EXPECT_EQ(Await([&](EntryHandler handler) {
              v1::GenerateRequest request;
              request.set_request_id("1");
              return link_->Start("", request, std::move(handler), nullptr, milliseconds(60'000), may_wait);
            }),
            "a1");
  EXPECT_GT(managers_[0].timeout_ms, 50'000u);
  EXPECT_LE(managers_[0].timeout_ms, 59'800u);
}

TEST_P(NumManagersTest, ACallOrARequestThatMayNotWaitAnyLongerEnds) {
  MakeLink(milliseconds(10'000), GetParam());
  Stop(0);
  Stop(1);
  int num_left = 3;
  const auto may_wait = [&num_left] { return num_left-- > 0; };
  std::string message;
  link_->GetModel(
      "", [&](const google::rpc::Status& status, const auto&) { message = status.message(); }, may_wait);
  loop_.RunUntil([&] { return !message.empty(); });
  EXPECT_THAT(message, HasSubstr("failed to connect"));
  EXPECT_EQ(num_left, -1);
  num_left = 3;
  EXPECT_THAT(Await([&](EntryHandler handler) {
                return link_->Start("", v1::GenerateRequest(), std::move(handler), nullptr, std::nullopt, may_wait);
              }),
              HasSubstr("failed to connect"));
  EXPECT_EQ(num_left, -1);
}

TEST_P(NumManagersTest, AManagerThatRestoresForTooLongIsGivenUp) {
  MakeLink(milliseconds(300), GetParam());
  managers_[0].num_restoring = 1'000'000;
  EXPECT_THAT(Generate("1"), HasSubstr("restores its requests"));
}

// A handler owns the exchange with its client, which keeps the ticket.
TEST_P(NumManagersTest, TheEndAndCancelFreeAHandlerAlthoughItsTicketIsKept) {
  MakeLink(milliseconds(10'000), GetParam());
  for (const bool cancels : {false, true}) {
    const auto was_called = std::make_shared<bool>(false);
    managers_[0].is_endless = cancels;
    const ManagerLink::Ticket ticket =
        link_->Start("", v1::GenerateRequest(), [was_called](const v1::GenerateBatchEntry&) { *was_called = true; });
    loop_.RunUntil([&] { return *was_called; });
    if (cancels) link_->Cancel(ticket);
    loop_.RunUntil([&] { return was_called.use_count() == 1; });
  }
}

TEST_F(ManagerLinkTest, RequestsFollowTheLeader) {
  EXPECT_EQ(ModelName(), "a");
  EXPECT_EQ(Generate("1"), "a1");
  managers_[0].leads = false;
  Stop(0);
  EXPECT_EQ(Generate("2"), "b2");
  EXPECT_EQ(ModelName(), "b");
}

TEST_F(ManagerLinkTest, TheModelIsRenewedSoThatNoCallWaitsForIt) {
  EXPECT_EQ(Generate("1"), "a1");
  EXPECT_EQ(ModelName(), "a");
  EXPECT_EQ(managers_[0].num_models, 1);
  loop_.RunUntil([&] { return managers_[0].num_models == 3; });  // Nobody calls.
}

TEST_F(ManagerLinkTest, ARequestGoesToTheNextLeaderHoweverLongItHasWaited) {
  MakeLink(milliseconds(300));
  managers_[0].is_lost = true;
  std::thread loss([this] {
    while (managers_[0].num_calls == 0) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(400));  // Longer than a search for the leader.
    managers_[0].leads = false;
  });
  EXPECT_EQ(Generate("1"), "b1");
  loss.join();
}

TEST_F(ManagerLinkTest, ARequestThatHasBegunIsNotSentAgain) {
  managers_[0].is_cut = true;
  EXPECT_EQ(Generate("1"), "a1Socket closed");
  EXPECT_EQ(managers_[1].num_calls, 0);
}

TEST_F(ManagerLinkTest, ARequestWaitsForALeaderUntilItsTimeIsUp) {
  MakeLink(milliseconds(300));
  for (FakeManager& manager : managers_) manager.leads = false;
  EXPECT_EQ(Generate("1"), "this manager stands by");
  EXPECT_EQ(ModelName(), "this manager stands by");
  MakeLink(milliseconds(60'000));
  std::thread election([this] {
    for (const int before = managers_[1].num_calls; managers_[1].num_calls < before + 3;) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    managers_[1].leads = true;
  });
  EXPECT_EQ(Generate("2"), "b2");
  election.join();
}

TEST_F(ManagerLinkTest, ARequestThatWaitsForALeaderCanBeCancelled) {
  for (FakeManager& manager : managers_) manager.leads = false;
  v1::GenerateRequest request;
  const ManagerLink::Ticket ticket =
      link_->Start("", request, [](const v1::GenerateBatchEntry&) { ADD_FAILURE() << "it was cancelled"; });
  loop_.RunUntil([&] { return managers_[1].num_calls > 0; });
  link_->Cancel(ticket);
  managers_[0].leads = managers_[1].leads = true;
  EXPECT_EQ(Generate("2").substr(1), "2");
}

// A request whose message has `num_message_bytes` bytes. The tag takes two of them.
v1::GenerateRequest RequestOf(size_t num_message_bytes) {
  v1::GenerateBatchRequest message;
  message.set_tag(1);
  std::string* const text = message.mutable_start()->mutable_text();
  text->assign(num_message_bytes - 20, 'x');
  text->append(num_message_bytes - message.ByteSizeLong(), 'x');
  EXPECT_EQ(message.ByteSizeLong(), num_message_bytes);
  return message.start();
}

TEST_F(ManagerLinkTest, SmallRequestsDoNotWaitUntilLargeOnesAreSent) {
  EXPECT_EQ(ModelName(), "a");  // It says how long a message may be.
  const std::string large(kMaxMessageBytes / ManagerLink::kLargePart, 'x');
  EXPECT_EQ(Generate("small"), "asmall");
  EXPECT_EQ(managers_[0].num_batches, 1);
  EXPECT_EQ(Generate(large), "a" + large);
  EXPECT_EQ(managers_[0].num_batches, 2);
  EXPECT_EQ(Generate("small too"), "asmall too");
  EXPECT_EQ(Generate(large), "a" + large);
  EXPECT_EQ(managers_[0].num_batches, 2);
}

TEST_F(ManagerLinkTest, AMessageThatIsTooLongEndsItsOwnRequestOnly) {
  managers_[0].is_endless = true;
  EXPECT_EQ(ModelName(), "a");
  int num_responses = 0;
  const auto start = [&](const v1::GenerateRequest& request) {
    link_->Start("", request, [&](const v1::GenerateBatchEntry& entry) {
      EXPECT_FALSE(entry.has_end()) << entry.end().message();
      ++num_responses;
    });
  };
  start(v1::GenerateRequest());
  loop_.RunUntil([&] { return num_responses == 1; });
  start(RequestOf(kMaxMessageBytes));
  loop_.RunUntil([&] { return num_responses == 2; });
  EXPECT_EQ(Await([&](EntryHandler handler) {
              return link_->Start("", RequestOf(kMaxMessageBytes + 1), std::move(handler));
            }),
            "start.text takes 996 of the 1001 bytes of the message to the manager; at most 1000 are allowed for the "
            "message");
  start(v1::GenerateRequest());
  loop_.RunUntil([&] { return num_responses == 3; });
  EXPECT_EQ(managers_[0].num_calls, 3)
      << "there was one call of GetModel, and two of GenerateBatch, one for large ones";
}

TEST_F(ManagerLinkTest, ACallWhoseMessageIsTooLongIsNotMade) {
  EXPECT_EQ(ModelName(), "a");
  v1::Chat chat;
  chat.set_tools(std::string(600, 'x'));
  chat.add_messages()->set_content(std::string(500, 'x'));
  google::rpc::Status end;
  link_->RenderChat("", chat, [&](const google::rpc::Status& status, const auto&) { end = status; });
  loop_.RunUntil([&] { return end.code() != 0; });
  EXPECT_EQ(end.code(), grpc::StatusCode::INVALID_ARGUMENT);
  google::rpc::BadRequest error;
  ASSERT_TRUE(end.details_size() == 1 && end.details(0).UnpackTo(&error));
  EXPECT_EQ(error.field_violations(0).field(), "chat.tools");
}

TEST_F(ManagerLinkTest, ARequestThatIsCancelledBeforeItWasSentIsNotSent) {
  managers_[0].is_endless = true;
  int num_responses = 0;
  const auto start = [&] {
    return link_->Start("", v1::GenerateRequest(), [&](const v1::GenerateBatchEntry&) { ++num_responses; });
  };
  start();
  // The first message is under way until the loop runs.
  const ManagerLink::Ticket second = start();
  link_->Cancel(second);
  start();
  loop_.RunUntil([&] { return num_responses == 2; });
  EXPECT_EQ(managers_[0].num_messages, 2);
  const ManagerLink::Ticket last = start();
  loop_.RunUntil([&] { return num_responses == 3; });
  link_->Cancel(last);
  loop_.RunUntil([&] { return managers_[0].num_messages == 4; });
}

TEST_F(ManagerLinkTest, AnotherCallIsOpenedForMoreRequestsThanTheManagerTakes) {
  managers_[0].is_endless = true;
  managers_[0].max_batch_requests = 2;
  EXPECT_EQ(ModelName(), "a");
  int num_responses = 0;
  const auto await_response = [&] {
    loop_.RunUntil([&, expected = num_responses + 1] { return num_responses == expected; });
  };
  const auto start = [&] {
    const ManagerLink::Ticket ticket =
        link_->Start("", v1::GenerateRequest(), [&](const v1::GenerateBatchEntry&) { ++num_responses; });
    await_response();
    return ticket;
  };
  const ManagerLink::Ticket first = start();
  start();
  EXPECT_EQ(managers_[0].num_batches, 1);
  link_->Cancel(first);
  const ManagerLink::Ticket third = start();
  EXPECT_EQ(managers_[0].num_batches, 2) << "the manager may still count the request that was cancelled";
  start();
  EXPECT_EQ(managers_[0].num_batches, 2);
  while (managers_[0].num_kept == 0) std::this_thread::sleep_for(milliseconds(1));
  managers_[0].ends_cancelled = true;
  link_->Cancel(third);
  await_response();  // It comes after the end of the third request.
  start();
  EXPECT_EQ(managers_[0].num_batches, 2) << "the second call has room again";
  start();
  EXPECT_EQ(managers_[0].num_batches, 3);
}

// With the limits of managers that take many requests in a call, or do not say how many they take.
class BatchLimitTest : public ManagerLinkTest, public ::testing::WithParamInterface<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Limits, BatchLimitTest, ::testing::Values(0, 100'000));

TEST_P(BatchLimitTest, ACallHasAtMost512Requests) {
  managers_[0].is_endless = true;
  managers_[0].max_batch_requests = GetParam();
  EXPECT_EQ(ModelName(), "a");
  int num_responses = 0;
  const auto start = [&](int num_requests) {
    for (int i = 0; i < num_requests; ++i) {
      link_->Start("", v1::GenerateRequest(), [&](const v1::GenerateBatchEntry&) { ++num_responses; });
    }
    loop_.RunUntil([&, expected = num_responses + num_requests] { return num_responses == expected; });
  };
  start(512);
  EXPECT_EQ(managers_[0].num_batches, 1);
  start(1);
  EXPECT_EQ(managers_[0].num_batches, 2);
}

TEST_F(ManagerLinkTest, RequestsCountUntilTheManagerSendsSomethingOrTheyAreCancelled) {
  MakeLink(milliseconds(10'000), 1, /*max_waiting_bytes=*/1000);
  managers_[0].is_endless = true;
  std::shared_ptr<void> hold = link_->Hold(600);
  ASSERT_NE(hold, nullptr);
  EXPECT_EQ(link_->Hold(401), nullptr);
  EXPECT_EQ(link_->BusyError().message(),
            "the requests that wait for the manager have 600 bytes, at most 1000 are allowed with this one; try again");
  EXPECT_NE(link_->Hold(400), nullptr);
  bool has_begun = false;
  link_->Start(
      "", v1::GenerateRequest(), [&](const v1::GenerateBatchEntry&) { has_begun = true; }, std::move(hold));
  EXPECT_EQ(link_->Hold(401), nullptr) << "the manager has sent nothing yet";
  loop_.RunUntil([&] { return has_begun; });
  hold = link_->Hold(1000);
  ASSERT_NE(hold, nullptr);

  const auto text = std::make_shared<v1::TokenizeRequest>();
  text->set_text("Once");
  google::rpc::Status end;
  link_->Tokenize("", text, [&](const google::rpc::Status& status, const auto&) { end = status; });
  loop_.RunUntil([&] { return end.code() != 0; });
  EXPECT_THAT(end.message(), HasSubstr("have 1000 bytes"));

  const ManagerLink::Ticket cancelled = link_->Start(
      "", v1::GenerateRequest(), [](const v1::GenerateBatchEntry&) {}, std::move(hold));
  link_->Cancel(cancelled);
  EXPECT_NE(link_->Hold(1000), nullptr);
}

TEST_F(ManagerLinkTest, FirstTokensAndOtherWorkDoNotWaitForTheTokensOfManyRequests) {
  constexpr int kNumRequests = 3 * BatchCall::kMaxEntriesAtOnce;
  managers_[0].num_together = kNumRequests;
  std::vector<int> handled;  // The numbers of the requests in the order of their texts.
  size_t num_handled_before_other_work = 0;
  const auto start = [&](int i) {
    v1::GenerateRequest request;
    request.set_request_id(absl::StrCat(i));
    link_->Start("", request, [&, i](const v1::GenerateBatchEntry&) {
      if (handled.empty()) {
        loop_.PostAfter(milliseconds(0), [&] { num_handled_before_other_work = handled.size(); });
      }
      handled.push_back(i);
    });
  };
  for (int i = 0; i < kNumRequests; ++i) start(i);
  loop_.RunUntil([&] { return handled.size() == kNumRequests; });
  EXPECT_EQ(num_handled_before_other_work, size_t{BatchCall::kMaxEntriesAtOnce});
  handled.clear();
  start(kNumRequests);
  loop_.RunUntil([&] { return handled.size() == kNumRequests + 1; });
  EXPECT_EQ(handled[0], kNumRequests) << "its first text must not wait for the texts of the others";
  EXPECT_EQ(handled[1], 0);
  EXPECT_EQ(handled.back(), kNumRequests - 1);
}

TEST_F(ManagerLinkTest, OtherWorkDoesNotWaitForTheLogprobsOfSeveralRequests) {
  managers_[0].num_together = 3;
  managers_[0].num_positions = BatchCall::kMaxEntriesAtOnce * BatchCall::kPositionsPerEntry;
  int num_handled = 0;
  int num_handled_before_other_work = 0;
  for (int i = 0; i < 3; ++i) {
    link_->Start("", v1::GenerateRequest(), [&](const v1::GenerateBatchEntry&) {
      if (num_handled++ == 0) loop_.PostAfter(milliseconds(0), [&] { num_handled_before_other_work = num_handled; });
    });
  }
  loop_.RunUntil([&] { return num_handled == 3; });
  EXPECT_EQ(num_handled_before_other_work, 1);
}

TEST_F(ManagerLinkTest, WithoutAnyManagerARequestFailsAtOnce) {
  Stop(0);
  Stop(1);
  const auto start = steady_clock::now();
  MakeLink(milliseconds(600'000));
  EXPECT_THAT(Generate("1"), HasSubstr("failed to connect"));
  EXPECT_LT(steady_clock::now() - start, seconds(60));
}

// The executors of a gateway are gone when their server is.
TEST_F(ManagerLinkTest, ACallThatTakesTooLongSaysWhichLimitHasPassed) {
  MakeLink(milliseconds(300), /*num_managers=*/1);
  managers_[0].waits_for_cancel = true;
  std::optional<google::rpc::Status> end;
  link_->GetModel("", [&](const google::rpc::Status& status, const v1::GetModelResponse&) { end = status; });
  loop_.RunUntil([&] { return end.has_value(); });
  EXPECT_EQ(end->code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(end->message(), "the manager has not answered the gateway within 300ms (--call-timeout)");
  google::rpc::ErrorInfo info;
  ASSERT_EQ(end->details_size(), 1);
  ASSERT_TRUE(end->details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "CALL_TIMEOUT");
  managers_[0].cancelled.get_future().wait();
}

TEST_F(ManagerLinkTest, ACallThatEndsWithTheTimeOfItsClientSaysSo) {
  MakeLink(milliseconds(60'000), /*num_managers=*/1);
  std::optional<google::rpc::Status> end;
  link_->Embed("", std::make_shared<v1::EmbedRequest>(), steady_clock::now() + milliseconds(300),
               [&](const google::rpc::Status& status, const v1::EmbedResponse&) { end = status; });
  loop_.RunUntil([&] { return end.has_value(); });
  EXPECT_EQ(end->message(), "the call's deadline passed before the manager had answered");
  google::rpc::ErrorInfo info;
  ASSERT_EQ(end->details_size(), 1);
  ASSERT_TRUE(end->details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "DEADLINE_EXCEEDED");
  managers_[0].cancelled.get_future().wait();
}

TEST_F(ManagerLinkTest, ALinkThatIsDestroyedCancelsItsCallsAndUsesItsExecutorNoMore) {
  managers_[0].waits_for_cancel = true;
  auto posts = std::make_shared<std::atomic<int>>(0);
  auto link = std::make_unique<ManagerLink>(
      std::vector<std::shared_ptr<grpc::Channel>>{grpc::CreateChannel(Address(0), grpc::InsecureChannelCredentials())},
      [posts](const std::function<void()>&) { ++*posts; }, [](milliseconds, const std::function<void()>&) {},
      /*max_callers=*/4, milliseconds(3'600'000));
  link->GetModel("", [](const google::rpc::Status&, const v1::GetModelResponse&) { FAIL(); });
  managers_[0].waiting.get_future().wait();
  v1::GenerateRequest request;
  link->Start("", request, [](const v1::GenerateBatchEntry&) { FAIL(); });
  const int num_posts = *posts;
  link.reset();
  EXPECT_EQ(*posts, num_posts);
  EXPECT_EQ(posts.use_count(), 1) << "nobody has the executor any more";
  managers_[0].cancelled.get_future().wait();
}

TEST_F(ManagerLinkTest, HealthIsThatOfTheOneThatServes) {
  const auto is_serving = [this] {
    std::optional<bool> result;
    link_->CheckHealth([&](const google::rpc::Status& status, const grpc::health::v1::HealthCheckResponse& health) {
      result = status.code() == 0 && health.status() == grpc::health::v1::HealthCheckResponse::SERVING;
    });
    loop_.RunUntil([&] { return result.has_value(); });
    return *result;
  };
  const std::string service = v1::InferenceService::service_full_name();
  servers_[0]->GetHealthCheckService()->SetServingStatus(service, false);
  servers_[1]->GetHealthCheckService()->SetServingStatus(service, true);
  EXPECT_TRUE(is_serving());
  servers_[1]->GetHealthCheckService()->SetServingStatus(service, false);
  EXPECT_FALSE(is_serving());
}

}  // namespace
}  // namespace quire
