// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_GUIDE_BUDGET_H_
#define QUIRE_WORKER_GUIDE_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace quire {

// Bounds the work on guides in a step: reading tokens, and finding the tokens that may come next. When the rows of a
// step have used it up, the draws of the others are postponed. A row fails only when its own guide has used up what it
// had. Work is counted as by TokenMasks::Fill. A guide has an account for all rows with this guide. Owned by the
// executor thread.
//
// A row is light if its last draw took little work. Light rows are served first, even when the step has nothing left,
// because most rows are light, and all of them together take little. A light row that suddenly takes much work gets a
// part of the step and counts as heavy from then on. Heavy rows share what the light ones leave. The guides of heavy
// rows take turns.
class GuideBudget {
 public:
  // Work that a guide begins with, for its first masks; it cannot save more.
  static constexpr int64_t kMaxSavedWork = 8'000'000;
  // Work that each draw of a row adds. Most draws take a tenth of it.
  static constexpr int64_t kWorkPerDraw = 20'000;
  // Work of a step, which has 2 more for each node of the vocabulary's tree of bytes: a mask for which the whole tree
  // is visited must fit. With a large vocabulary the model takes longer for a step as well.
  static constexpr int64_t kStepWork = 60'000;
  // Work of each draw where nothing can be postponed, or the work of a whole step if that is more.
  static constexpr int64_t kLateWork = 300'000;
  // Largest number of later steps that pay for what was taken beyond the work of a step.
  static constexpr int64_t kMaxLateSteps = 8;
  // Number of steps in which light rows leave nothing, after which heavy ones get something all the same.
  static constexpr uint64_t kPatience = 8;

  // What a guide has saved.
  class Account {
   public:
    bool is_empty() const { return saved_ <= 0; }
    // The last step in which a heavy row of this guide was served.
    uint64_t last_turn() const { return last_turn_; }

   private:
    friend class GuideBudget;
    int64_t saved_ = kMaxSavedWork;
    uint64_t last_turn_ = 0;
  };

  explicit GuideBudget(int num_nodes) : step_work_(kStepWork + 2 * int64_t{num_nodes}), left_(step_work_) {}

  // What the step before has taken beyond its work is missing in this one.
  void BeginStep(bool may_postpone) {
    ++step_;
    may_postpone_ = may_postpone;
    left_ = std::min(std::max(left_, -kMaxLateSteps * step_work_) + step_work_, step_work_);
  }
  bool may_postpone() const { return may_postpone_; }
  int64_t step_work() const { return step_work_; }
  bool IsLight(int64_t work) const { return work <= step_work_ / 16; }

  // A draw of a row with the guide of this account begins. It may continue in later steps.
  static void BeginDraw(Account* account) { account->saved_ = std::min(account->saved_ + kWorkPerDraw, kMaxSavedWork); }
  // It is the turn of a heavy row. The first one of a step has all of its work, so that the largest mask fits.
  void TakeTurn(Account* account) {
    if (last_turn_ < step_ && (left_ > 0 || step_ > last_turn_ + kPatience)) left_ = step_work_;
    if (left_ > 0) account->last_turn_ = last_turn_ = step_;
  }
  // Returns how much work a draw that has taken `work` in this step may take now. At most 0: none.
  int64_t Allowed(bool is_light, int64_t work, const Account& account) const {
    int64_t allowed = left_;
    if (!may_postpone_) {
      allowed = std::max({left_, kLateWork, step_work_});
    } else if (is_light) {
      const int64_t most = std::clamp(left_, step_work_ / 16, step_work_ / 4);
      allowed = left_ > -step_work_ ? most - work : 0;
    }
    return std::min(allowed, account.saved_);
  }
  void Spend(int64_t work, Account* account) {
    account->saved_ -= work;
    left_ -= work;
  }

  // Returns how much of the step masks may take that are made ahead. No guide pays for that.
  int64_t AllowedAhead() const { return std::min(left_, step_work_ / 8); }
  void SpendAhead(int64_t work) { left_ -= work; }

 private:
  const int64_t step_work_;
  int64_t left_;
  uint64_t step_ = 0;
  uint64_t last_turn_ = 0;  // The last step in which a heavy row was served.
  bool may_postpone_ = false;
};

}  // namespace quire

#endif  // QUIRE_WORKER_GUIDE_BUDGET_H_
