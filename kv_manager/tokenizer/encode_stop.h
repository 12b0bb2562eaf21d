// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_ENCODE_STOP_H_
#define QUIRE_KV_MANAGER_TOKENIZER_ENCODE_STOP_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace quire {

// Lets the loops that encode a text end early when nobody waits for the tokens any more. The loops stand deep below
// Tokenizer::Encode, so they find the stop of their thread by themselves. They may leave anything behind, because
// Encode then returns an error. Not thread-safe.
class EncodeStop {
 public:
  // Holds for this thread until the destructor. `has_left` is borrowed, and says whether nobody waits any more. Null:
  // somebody does.
  explicit EncodeStop(const std::function<bool()>* has_left) : has_left_(has_left), outer_(current_) {
    current_ = this;
  }
  ~EncodeStop() { current_ = outer_; }
  EncodeStop(const EncodeStop&) = delete;
  EncodeStop& operator=(const EncodeStop&) = delete;

  // Returns whether the loop must end. Each of a thousand calls costs almost nothing.
  static bool IsDue() { return current_ != nullptr && current_->Ask(); }

  // CANCELLED if a loop has ended early.
  absl::Status status() const {
    return is_due_ ? absl::CancelledError("nobody waits for the tokens any more") : absl::OkStatus();
  }

 private:
  static constexpr uint32_t kCallsPerQuestion = 1024;

  bool Ask() {
    if (has_left_ != nullptr && !is_due_ && ++num_calls_ % kCallsPerQuestion == 0) is_due_ = (*has_left_)();
    return is_due_;
  }

  static inline thread_local EncodeStop* current_ = nullptr;

  const std::function<bool()>* const has_left_;
  EncodeStop* const outer_;
  uint32_t num_calls_ = 0;
  bool is_due_ = false;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_ENCODE_STOP_H_
