// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_BODY_MEMORY_H_
#define QUIRE_GATEWAY_WEB_BODY_MEMORY_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace quire {

// The memory for bodies of requests. A body takes it as its bytes come, and keeps it until it has been read. While a
// body is small it needs none of this memory, so small requests are served whatever others send. When the memory is
// used up, the address with the most of it loses a body that still arrives. One address never gets all of it, because
// whole bodies that wait to be read are not dropped. Owned by one thread.
class BodyMemory {
 public:
  // Up to this size, a body takes no memory from the others. The number of connections bounds how many there are.
  static constexpr int64_t kSmallBytes = 64 << 10;

  // The memory of one body. It is given back when the object is destroyed.
  class Share {
   public:
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // The body has `num_bytes` now. Returns false when there is no room for them; then the body must be dropped.
    bool Grow(int64_t num_bytes);
    // The whole body has come, so it is not dropped for others any more.
    void Complete();

   private:
    friend class BodyMemory;
    using Clock = std::chrono::steady_clock;
    Share(BodyMemory* memory, std::string address, std::function<void()> drop)
        : memory_(memory), address_(std::move(address)), drop_(std::move(drop)) {}

    BodyMemory* const memory_;
    const std::string address_;
    std::function<void()> drop_;  // Null after Complete.
    int64_t num_bytes_ = 0;       // Taken from the memory.
    Clock::time_point last_growth_ = Clock::now();
  };

  // All addresses have at most `max_bytes`, and one has at most `max_address_bytes`.
  BodyMemory(int64_t max_bytes, int64_t max_address_bytes)
      : max_bytes_(max_bytes), max_address_bytes_(max_address_bytes) {}

  // Begins a body of a client at `address`. `drop` is called at most once, to drop the body in favour of another one;
  // it must destroy the share. The memory must outlive the share.
  std::shared_ptr<Share> Begin(const std::string& address, std::function<void()> drop);

  int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Address {
    int64_t num_bytes = 0;
    std::set<Share*> shares = {};  // Shares with memory.
  };

  // Sets what the share has taken.
  void Take(Share* share, int64_t num_bytes);
  int64_t BytesOf(const std::string& address) const;
  // Returns the body to drop so that `growing` gets `num_more` bytes, or null if that is `growing` itself.
  Share* Victim(Share* growing, int64_t num_more) const;

  const int64_t max_bytes_;
  const int64_t max_address_bytes_;
  int64_t num_bytes_ = 0;
  std::map<std::string, Address> addresses_;  // Addresses with memory.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_BODY_MEMORY_H_
