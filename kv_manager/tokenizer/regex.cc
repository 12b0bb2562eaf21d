// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/encode_stop.h"
#include "kv_manager/tokenizer/regex_syntax.h"
#include "kv_manager/tokenizer/unicode.h"

namespace quire {
namespace {

constexpr size_t kJitStackBytes = 1 << 20;
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;

// What one thread needs for matching. It is made once per thread, because PCRE2 forbids sharing it between threads.
struct MatchState {
  MatchState()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)) {
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~MatchState() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

MatchState& ThreadMatchState() {
  static thread_local MatchState state;
  return state;
}

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  pcre2_code* code;
};

void Regex::CodeDeleter::operator()(Code* code) const {
  pcre2_code_free(code->code);
  delete code;
}

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  QUIRE_ASSIGN_OR_RETURN(const std::string translated, TranslateOniguruma(pattern));
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &error,
                                   &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("regular expression does not compile: ", ErrorText(error)));
  }
  // Without a just-in-time compiler PCRE2 interprets; the result is the same.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(std::unique_ptr<Code, CodeDeleter>(new Code{code}));
}

absl::Status Regex::FindAll(std::string_view text, std::vector<TextSpan>* spans) const {
  spans->clear();
  if (text.empty()) return absl::OkStatus();
  std::string storage;
  const std::string_view subject = WithKnownCharacters(text, &storage);
  size_t start = 0;    // The search continues here.
  size_t covered = 0;  // The end of the last match.
  bool has_match = false;
  while (start <= subject.size() && !EncodeStop::IsDue()) {
    bool found = false;
    TextSpan match{};
    QUIRE_RETURN_IF_ERROR(Search(subject, start, &found, &match));
    if (!found) break;
    if (match.begin == match.end && has_match && match.end == covered) {
      // An empty match right behind the last one does not count.
      start += start < subject.size() ? Utf8Length(subject[start]) : 1;
      continue;
    }
    if (covered != match.begin) spans->push_back({covered, match.begin, false});
    spans->push_back(match);
    start = covered = match.end;
    has_match = true;
  }
  if (covered != subject.size()) spans->push_back({covered, subject.size(), false});
  return absl::OkStatus();
}

absl::Status Regex::Search(std::string_view text, size_t start, bool* found, TextSpan* match) const {
  MatchState& state = ThreadMatchState();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int result = pcre2_match(code_->code, subject, text.size(), start, PCRE2_NO_UTF_CHECK, state.data, state.context);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    // The interpreter keeps its backtracking points on the heap.
    result = pcre2_match(code_->code, subject, text.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data,
                         state.context);
  }
  *found = result >= 0;
  if (result == PCRE2_ERROR_NOMATCH) return absl::OkStatus();
  if (result < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer's regular expression gave up at byte ", start, " of ",
                                                   text.size(), ": ", ErrorText(result)));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data);
  // \K can move the start of a match behind its end. Such a match is empty.
  *match = {bounds[0] < bounds[1] ? bounds[0] : bounds[1], bounds[1], true};
  return absl::OkStatus();
}

}  // namespace quire
