// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_LAZY_GUIDE_VOCABULARY_H_
#define QUIRE_KV_MANAGER_ENGINE_LAZY_GUIDE_VOCABULARY_H_

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "scheduler/guide.h"

namespace quire {

// Makes what workers need for guides. With 131,072 tokens it takes more than a megabyte and some milliseconds, so it is
// made when the first request with a guide needs it. Thread-safe.
class LazyGuideVocabulary {
 public:
  using Make = std::function<std::shared_ptr<const GuideVocabulary>()>;

  // `make` is called at most once, on the thread of the first call of Get.
  explicit LazyGuideVocabulary(Make make) : make_(std::move(make)) {}

  // Returns the same object each time. Other threads that call it meanwhile wait for the first call.
  std::shared_ptr<const GuideVocabulary> Get() const {
    std::call_once(once_, [this] { vocabulary_ = make_(); });
    return vocabulary_;
  }

 private:
  const Make make_;
  // ThreadSanitizer does not see when a thread waits in absl::call_once of the versions that Debian ships.
  mutable std::once_flag once_;
  mutable std::shared_ptr<const GuideVocabulary> vocabulary_;  // Written once.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_LAZY_GUIDE_VOCABULARY_H_
