// SPDX-License-Identifier: Apache-2.0

#include "worker/model/load_progress.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/number_text.h"

namespace quire {
namespace {

constexpr int64_t kShortestPauseUs = 1'000'000;  // Shortest time between two lines of the log.
constexpr int64_t kLongestPauseUs = 10'000'000;  // Longest time between them as long as tensors come.
constexpr int kNumParts = 10;                    // A line for each part, if the pauses allow it.

}  // namespace

void LoadProgress::Begin(const std::string& directory, int num_files, int64_t total_bytes) {
  const MutexLock lock(&mutex_);
  directory_ = directory;
  snapshot_ = {.total_bytes = total_bytes};
  begin_us_ = logged_us_ = clock_->NowMicros();
  logged_bytes_ = 0;
  QUIRE_LOG(kInfo) << "loading " << directory_ << ": " << FormatBytes(total_bytes) << " of weights in "
                   << Counted(static_cast<uint64_t>(num_files), "file");
}

void LoadProgress::Add(int64_t bytes) {
  const MutexLock lock(&mutex_);
  snapshot_.read_bytes += bytes;
  const int64_t now_us = clock_->NowMicros();
  const int64_t pause_us = now_us - logged_us_;
  const bool is_new_part = snapshot_.read_bytes - logged_bytes_ >= snapshot_.total_bytes / kNumParts;
  if (pause_us < (is_new_part ? kShortestPauseUs : kLongestPauseUs)) return;
  logged_us_ = now_us;
  logged_bytes_ = snapshot_.read_bytes;
  const int64_t percent = 100 * snapshot_.read_bytes / std::max<int64_t>(1, snapshot_.total_bytes);
  QUIRE_LOG(kInfo) << "loading " << directory_ << ": " << Named("percent", percent) << " % of "
                   << FormatBytes(snapshot_.total_bytes) << " after "
                   << absl::StrFormat("%.1f s", Seconds(now_us - begin_us_));
}

void LoadProgress::End() {
  const MutexLock lock(&mutex_);
  snapshot_ = Current(clock_->NowMicros());
  snapshot_.is_done = true;
  QUIRE_LOG(kInfo) << "loaded " << directory_ << ": read " << FormatBytes(snapshot_.read_bytes) << " in "
                   << absl::StrFormat("%.1f s", snapshot_.seconds);
}

LoadProgress::Snapshot LoadProgress::Get() const {
  const MutexLock lock(&mutex_);
  return Current(clock_->NowMicros());
}

LoadProgress::Snapshot LoadProgress::Current(int64_t now_us) const {
  Snapshot snapshot = snapshot_;
  if (snapshot.total_bytes > 0 && !snapshot.is_done) snapshot.seconds = Seconds(now_us - begin_us_);
  return snapshot;
}

}  // namespace quire
