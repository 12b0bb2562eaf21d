// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_GUIDE_BUDGET_H_
#define QUIRE_WORKER_GUIDE_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace quire {

// Bounds the work on masks in a step: kStepWork for all rows together, and a little for each draw after that. Compiling
// a guide and reading its tokens do not count. Work is counted as by TokenMasks::Fill. A guide has an account for all
// rows with this guide. Owned by the executor thread.
class GuideBudget {
 public:
  // A guide begins with this much, for its first masks, and cannot save more.
  static constexpr int64_t kMaxSavedWork = 8'000'000;
  // Each draw of a row adds this much. Most draws take a tenth of it.
  static constexpr int64_t kWorkPerDraw = 20'000;
  // All guides together may use this much in a step. After that, each draw has only kWorkPerDraw, or the second number
  // if its guide has used less than half of what it began with.
  static constexpr int64_t kStepWork = 2'000'000;
  static constexpr int64_t kLateWork = 300'000;

  // What a guide has saved.
  class Account {
   public:
    bool is_empty() const { return saved_ < 0; }

   private:
    friend class GuideBudget;
    int64_t saved_ = kMaxSavedWork;
  };

  void BeginStep() { left_ = kStepWork; }

  // Returns how much a draw of a row with the guide of this account may use now.
  int64_t Limit(Account* account) const {
    account->saved_ = std::min(account->saved_ + kWorkPerDraw, kMaxSavedWork);
    const int64_t late = account->saved_ >= kMaxSavedWork / 2 ? kLateWork : kWorkPerDraw;
    return std::min(account->saved_, std::max(left_, late));
  }

  void Spend(int64_t work, Account* account) {
    account->saved_ -= work;
    left_ -= work;
  }

 private:
  int64_t left_ = kStepWork;
};

}  // namespace quire

#endif  // QUIRE_WORKER_GUIDE_BUDGET_H_
