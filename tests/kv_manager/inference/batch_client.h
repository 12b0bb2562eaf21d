// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_INFERENCE_BATCH_CLIENT_H_
#define QUIRE_TESTS_KV_MANAGER_INFERENCE_BATCH_CLIENT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/kv_manager/inference/service_harness.h"

namespace quire {

// One call of GenerateBatch, and the responses to its requests.
class BatchClient {
 public:
  struct Result {
    std::vector<v1::GenerateResponse> responses = {};
    std::vector<google::rpc::Status> ends = {};

    std::string text(uint32_t index = 0) const {
      std::string text;
      for (const auto& response : responses) text += response.index() == index ? response.text_delta() : "";
      return text;
    }
    std::vector<TokenId> tokens(uint32_t index = 0) const {
      std::vector<TokenId> tokens;
      for (const auto& r : responses) {
        if (r.index() == index) tokens.insert(tokens.end(), r.token_ids().begin(), r.token_ids().end());
      }
      return tokens;
    }
    // The end of the only request, as a gRPC status.
    grpc::Status status() const {
      EXPECT_EQ(ends.size(), 1u);
      return ends.empty() ? grpc::Status() : ToGrpc(ends[0]);
    }
  };

  static grpc::Status ToGrpc(const google::rpc::Status& status) {
    return {static_cast<grpc::StatusCode>(status.code()), status.message(), status.SerializeAsString()};
  }

  explicit BatchClient(ServiceHarness* harness, const std::string& authorization = "")
      : stream(Open(harness, authorization)) {}

  bool Start(uint64_t tag, const v1::GenerateRequest& request, std::optional<uint64_t> timeout_ms = std::nullopt) {
    v1::GenerateBatchRequest message;
    message.set_tag(tag);
    *message.mutable_start() = request;
    if (timeout_ms.has_value()) message.set_timeout_ms(*timeout_ms);
    return stream->Write(message);
  }
  bool Cancel(uint64_t tag) {
    v1::GenerateBatchRequest message;
    message.set_tag(tag);
    message.mutable_cancel();
    return stream->Write(message);
  }

  // Reads one message. Returns false at the end of the stream.
  bool Read() {
    v1::GenerateBatchResponse message;
    if (!stream->Read(&message)) return false;
    ++num_messages;
    max_message_bytes = std::max(max_message_bytes, message.ByteSizeLong());
    EXPECT_GT(message.entries_size(), 0);
    for (const v1::GenerateBatchEntry& entry : message.entries()) {
      Result& result = results[entry.tag()];
      EXPECT_TRUE(entry.has_response() || entry.has_end());
      if (entry.has_response()) result.responses.push_back(entry.response());
      if (entry.has_end()) result.ends.push_back(entry.end());
    }
    return true;
  }
  // Reads until `num_ends` requests of this tag have ended. Returns the responses of this tag.
  Result ReadUntilEnd(uint64_t tag, size_t num_ends = 1) {
    while (results[tag].ends.size() < num_ends) {
      if (Read()) continue;
      ADD_FAILURE() << "the stream has ended before request " << tag;
      break;
    }
    return results[tag];
  }
  // Half-closes, and reads to the end of the stream.
  grpc::Status Finish() {
    stream->WritesDone();
    while (Read()) continue;
    return stream->Finish();
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::GenerateBatchRequest, v1::GenerateBatchResponse>> stream;
  std::map<uint64_t, Result> results;  // By tag.
  int num_messages = 0;
  size_t max_message_bytes = 0;

 private:
  decltype(stream) Open(ServiceHarness* harness, const std::string& authorization) {
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    return harness->stub->GenerateBatch(&context);
  }
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_INFERENCE_BATCH_CLIENT_H_
