// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_BATCH_PACKER_H_
#define QUIRE_KV_MANAGER_REQUESTS_BATCH_PACKER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Packs the responses and the ends of many requests into the messages of one GenerateBatch stream. An entry goes into
// the last message that waits, or into a new one when that would become too large. One message is written at a time.
// Not thread-safe.
class BatchPacker {
 public:
  // Called once, when the message with the entry was written (true) or was dropped (false).
  using OnWritten = std::function<void(bool ok)>;

  // A new message begins beyond this size: clients take 4 MiB unless they were told otherwise.
  static constexpr size_t kMessageBytes = 1 << 20;

  // No message is larger than `max_message_bytes`.
  explicit BatchPacker(size_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}

  // RESOURCE_EXHAUSTED when the entry does not even fit into a message of its own.
  absl::Status CheckSize(const v1::GenerateBatchEntry& entry) const;

  // Adds a response of a request that continues. REQUIRES: CheckSize(entry) is OK, as for AddEnd.
  void AddResponse(v1::GenerateBatchEntry entry, OnWritten on_written);
  // Adds the end of a request, with its last response if there is one.
  void AddEnd(v1::GenerateBatchEntry entry, OnWritten on_written);

  // The next message to write; null when none waits or a write is under way. It stays as it is until FinishWrite.
  const v1::GenerateBatchResponse* StartWrite();
  // The write is over. Returns what the caller must call, without its locks. REQUIRES: is_writing().
  std::vector<OnWritten> FinishWrite();
  // Drops the messages that wait; a write under way continues. Returns what the caller must call, as above.
  std::vector<OnWritten> DropWaiting();

  bool is_writing() const { return written_.has_value(); }
  // Nothing waits and nothing is being written.
  bool is_empty() const { return waiting_.empty() && !is_writing(); }
  // Returns how many ends wait or are being written.
  size_t num_unread_ends() const { return num_unread_ends_; }
  // Returns about how much memory the messages take that wait or are being written.
  int64_t num_unread_bytes() const { return num_unread_bytes_; }

 private:
  struct Message {
    v1::GenerateBatchResponse response = {};
    size_t num_bytes = 0;  // An upper bound.
    int64_t num_memory_bytes = 0;
    size_t num_ends = 0;
    std::vector<OnWritten> on_written = {};
  };

  Message& Add(v1::GenerateBatchEntry entry, OnWritten on_written);

  const size_t max_message_bytes_;
  std::deque<Message> waiting_;
  std::optional<Message> written_;  // The message of the write under way.
  size_t num_unread_ends_ = 0;
  int64_t num_unread_bytes_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_BATCH_PACKER_H_
