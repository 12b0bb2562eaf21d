// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_REQUESTS_RESUMABLE_STREAM_HARNESS_H_
#define QUIRE_TESTS_KV_MANAGER_REQUESTS_RESUMABLE_STREAM_HARNESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kv_manager/requests/token_stream.h"
#include "tests/kv_manager/requests/token_stream_harness.h"

namespace quire {

class CountingKeeper : public StreamKeeper {
 public:
  std::string MakeResumeToken() override { return absl::StrCat("token-", ++num_tokens); }
  bool Grow(int64_t bytes) override {
    if (on_grow != nullptr) on_grow();
    if (num_bytes + bytes > max_bytes) return false;
    num_bytes += bytes;
    return true;
  }
  void OnForgotten() override { ++num_forgotten; }
  void OnAttached() override { ++num_attached; }
  bool OnDetached() override {
    ++num_detached;
    return keeps;
  }
  void OnEnded(bool is_ok) override { ends.push_back(is_ok); }
  void OnClosed() override { ++num_closed; }

  int num_tokens = 0;
  int64_t num_bytes = 0;
  int64_t max_bytes = 1 << 20;
  bool keeps = true;
  int num_forgotten = 0;
  int num_attached = 0;
  int num_detached = 0;
  int num_closed = 0;
  std::vector<bool> ends;
  std::function<void()> on_grow;
};

// A stream that can outlive its readers.
class ResumableStreamTest : public TokenStreamTest {
 protected:
  // A reader, with what it has to take over.
  struct Client {
    ManualWriter writer;
    uint64_t id;
    size_t num_read = 0;
  };

  TokenStream* MakeResumable(size_t max_outbox_tokens = 100) {
    keeper_ = counting_ = std::make_shared<CountingKeeper>();
    return MakeStream(max_outbox_tokens);
  }

  StreamReader ReaderOf(Client* client) {
    return {&client->writer, [this](std::function<void()> job) { jobs_.push_back(std::move(job)); }, client->id};
  }

  std::shared_ptr<CountingKeeper> counting_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_REQUESTS_RESUMABLE_STREAM_HARNESS_H_
