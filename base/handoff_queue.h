// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_HANDOFF_QUEUE_H_
#define QUIRE_BASE_HANDOFF_QUEUE_H_

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

namespace quire {

// Values that many threads push, and that one thread at a time takes, all at once. It has no lock: a thread that pushes
// never waits for another one. A consumer becomes due with the first push and stays due until it finds the queue empty.
// Push may be called by any thread; TakeAll and BecomeIdle are for the consumer that is due. What a consumer has done
// happens before the next consumer's TakeAll.
template <typename T>
class HandoffQueue {
 public:
  HandoffQueue() = default;
  ~HandoffQueue() { TakeAll(); }
  HandoffQueue(const HandoffQueue&) = delete;
  HandoffQueue& operator=(const HandoffQueue&) = delete;

  // Returns true when no consumer was due: now one is, and the caller must see to it that it comes.
  bool Push(T value) {
    auto* const node = new Node(std::move(value));
    Link* head = head_.load(std::memory_order_relaxed);
    do {
      node->next = head;
    } while (!head_.compare_exchange_weak(head, node, std::memory_order_acq_rel, std::memory_order_relaxed));
    return head == nullptr;
  }

  // Everything that was pushed and not taken, in the order of the pushes.
  std::vector<T> TakeAll() {
    std::vector<T> values;
    Link* link = head_.exchange(&end_, std::memory_order_acq_rel);
    while (link != nullptr && link != &end_) {
      auto* const node = static_cast<Node*>(link);
      link = node->next;
      values.push_back(std::move(node->value));
      delete node;
    }
    std::reverse(values.begin(), values.end());
    return values;
  }

  // No consumer is due any more, if the queue is empty. Returns false, and changes nothing, when it is not.
  bool BecomeIdle() {
    Link* end = &end_;
    return head_.compare_exchange_strong(end, nullptr, std::memory_order_acq_rel, std::memory_order_relaxed);
  }

  // Returns whether no consumer is due. Whoever sees true has also seen everything that the consumers have done.
  bool is_idle() const { return head_.load(std::memory_order_acquire) == nullptr; }

 private:
  struct Link {
    Link* next = nullptr;
  };
  struct Node : Link {
    explicit Node(T v) : value(std::move(v)) {}
    T value;
  };

  Link end_;  // End of the list while a consumer is due and has taken something.
  // The last value that was pushed; the list goes from there to the first one. Null: no consumer is due.
  std::atomic<Link*> head_ = nullptr;
};

}  // namespace quire

#endif  // QUIRE_BASE_HANDOFF_QUEUE_H_
