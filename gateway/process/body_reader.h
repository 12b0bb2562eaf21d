// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_BODY_READER_H_
#define QUIRE_GATEWAY_PROCESS_BODY_READER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/fair_queue.h"
#include "base/mutex.h"
#include "gateway/web/web_server.h"

namespace quire {

// Reads bodies of requests. A small one is read at once, on the server's thread, which takes less than a millisecond.
// All others wait for one of two threads, so that they delay nobody else: one reads bodies of at most kLargeBytes, the
// other one larger bodies. On each, the addresses of clients take turns. So at most two bodies are values at the same
// time. These threads have a lower priority than all others. Used on the server's thread.
class BodyReader {
 public:
  static constexpr size_t kSmallBytes = 32 << 10;
  static constexpr size_t kLargeBytes = 1 << 20;

  // `server` must outlive it.
  explicit BodyReader(WebServer* server) : server_(server) {}

  // Calls `read` with the body, and then `use` with the result on the server's thread, unless the client has left.
  // REQUIRES: the handler of the request has not returned.
  template <typename Result>
  void Read(const std::shared_ptr<WebExchange>& exchange, std::function<Result(const std::string& body)> read,
            std::function<void(Result result)> use) {
    const std::string& body = exchange->request().body;
    if (body.size() <= kSmallBytes) return use(read(body));
    const auto result = std::make_shared<std::optional<Result>>();
    ReadLater(
        exchange, [result, read = std::move(read)](const std::string& text) { result->emplace(read(text)); },
        [result, use = std::move(use)] { use(*std::move(*result)); });
  }

  // Makes the body of an answer of about this many bytes for a client with this address: calls `make`, at once or on
  // one of the threads, and then `use` on the server's thread.
  void Make(const std::string& address, size_t num_bytes, std::function<void()> make, std::function<void()> use);

 private:
  struct Job {
    std::shared_ptr<const std::string> body;  // Empty if a body is made.
    size_t num_bytes;
    std::function<void(const std::string& body)> read;
    // This belongs to the server's thread.
    std::function<void()> use;
    std::shared_ptr<bool> has_left;
  };

  // A thread and the bodies that wait for it.
  class Lane {
   public:
    explicit Lane(WebServer* server) : server_(server) {}
    // Waits for the body that is being read. The others are not read any more.
    ~Lane();
    void Push(const std::string& address, Job job) QUIRE_EXCLUDES(mutex_);

   private:
    void Run() QUIRE_EXCLUDES(mutex_);
    // Returns nothing when the lane ends.
    std::optional<Job> Next() QUIRE_EXCLUDES(mutex_);

    WebServer* const server_;
    Mutex mutex_;
    CondVar changed_;
    FairQueue<Job> jobs_ QUIRE_GUARDED_BY(mutex_);
    bool is_ending_ QUIRE_GUARDED_BY(mutex_) = false;
    std::thread thread_{[this] { Run(); }};
  };

  void ReadLater(const std::shared_ptr<WebExchange>& exchange, std::function<void(const std::string& body)> read,
                 std::function<void()> use);

  Lane& LaneFor(size_t num_bytes) { return num_bytes > kLargeBytes ? large_ : medium_; }

  WebServer* const server_;
  Lane medium_{server_};
  Lane large_{server_};
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_BODY_READER_H_
