// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_PYTHON_CALL_FINDER_H_
#define QUIRE_GATEWAY_OPENAI_PYTHON_CALL_FINDER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/call_finder.h"

namespace quire {

// Finds lists of calls in Python or JSON between two tags, once they are complete.
class PythonCallFinder : public CallFinder {
 public:
  PythonCallFinder(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id);

 private:
  bool Step(bool is_last, AnswerText* out) override;
  bool IsInCall() const override { return is_in_list_; }

  // Looks for the tag at the end outside of strings. Returns whether it begins at num_searched_.
  bool SearchClose();

  const std::vector<absl::string_view> tags_;
  bool is_in_list_ = false;
  size_t num_searched_ = 0;  // Bytes of pending_ in which the tag at the end does not begin.
  char quote_ = '\0';        // The quote of the string in which these bytes end.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_PYTHON_CALL_FINDER_H_
