// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_ANSWER_MEMORY_H_
#define QUIRE_GATEWAY_PROCESS_ANSWER_MEMORY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>

namespace quire {

// The memory of all answers that the gateway collects, or that wait for clients which read slowly. A caller may use at
// most what it leaves for all others together. So one alone gets half of it, two get a third each, and one caller
// cannot fill it. Only the server's thread uses it.
class AnswerMemory {
 private:
  struct State {
    size_t max_bytes;
    size_t num_bytes = 0;
    std::map<std::string, size_t> callers = {};  // What each one takes, which is above 0.
  };

 public:
  // One answer. Frees its memory when it is destroyed, also after the AnswerMemory.
  class Hold {
   public:
    Hold(std::shared_ptr<State> state, std::string caller) : state_(std::move(state)), caller_(std::move(caller)) {}
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { Resize(0); }

    // Sets the present size of the answer. Returns false if it has grown beyond the share of its caller; the answer
    // must then be given up.
    bool Resize(size_t num_bytes);

   private:
    const std::shared_ptr<State> state_;
    const std::string caller_;
    size_t num_bytes_ = 0;
  };

  explicit AnswerMemory(size_t max_bytes) : state_(std::make_shared<State>(State{.max_bytes = max_bytes})) {}

  size_t max_bytes() const { return state_->max_bytes; }
  // `caller` is who gets the answer: a token or an address.
  std::shared_ptr<Hold> Begin(std::string caller) { return std::make_shared<Hold>(state_, std::move(caller)); }

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_ANSWER_MEMORY_H_
