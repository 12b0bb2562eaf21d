// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_RECORDED_STREAM_H_
#define QUIRE_TESTS_CHAOS_RECORDED_STREAM_H_

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/library/client.h"

namespace quire {

// One call of Generate: what came, and when.
class RecordedStream {
 public:
  // `on_token` gets the number of tokens of sample 0 after each response that has some.
  using OnToken = std::function<void(int num_tokens)>;

  void Run(Client* client, const v1::GenerateRequest& request, const OnToken& on_token);

  // While it runs, and later:
  int num_tokens() const { return num_tokens_; }
  bool is_over() const { return is_over_; }

  // When it is over:
  const absl::Status& status() const { return status_; }
  const std::vector<absl::Time>& arrivals() const { return arrivals_; }  // Of responses with tokens.
  const std::string& text() const { return samples_.at(0).text; }
  // Everything that its caller has received, except what says how it was computed. Equal streams have equal content.
  std::string Content() const;
  // The longest time without a token that ends after `start`.
  absl::Duration GapAfter(absl::Time start) const;

 private:
  struct Sample {
    std::string text;
    v1::GenerateResponse merged;  // Without the text.
    int num_gaps = 0;             // Responses that do not begin where the one before has ended.
  };

  void Take(const v1::GenerateResponse& response);

  std::vector<Sample> samples_;
  v1::Usage usage_;
  int num_usages_ = 0;
  std::vector<absl::Time> arrivals_;
  absl::Status status_;
  std::atomic<int> num_tokens_ = 0;
  std::atomic<bool> is_over_ = false;
};

// Says where the contents of two streams part.
std::string FirstDifference(absl::string_view recorded, absl::string_view now);

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_RECORDED_STREAM_H_
