// SPDX-License-Identifier: Apache-2.0

#include "client/commands/sample_printer.h"

#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/terminal/output.h"

namespace quire {
namespace {

bool IsLast(const v1::GenerateResponse& response) {
  return response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace

void SamplePrinter::Add(const v1::GenerateResponse& response) {
  if (response.index() >= samples_.size()) samples_.resize(response.index() + 1);
  samples_[response.index()].waiting.push_back(response);
  PrintWaiting(/*all=*/false);
}

void SamplePrinter::End() {
  PrintWaiting(/*all=*/true);
  EndLine();
  if (numerics_changes_.empty()) return;
  FlushOutput();
  for (const auto& [index, position] : numerics_changes_) {
    const std::string whose = is_one_of_several() ? absl::StrCat("sample ", index, ": ") : "";
    std::fprintf(
        stderr,
        "quirectl: %sthe tokens from position %u on come from a worker with other numerics, so another run may "
        "give others\n",
        whose.c_str(), position);
  }
}

void SamplePrinter::PrintWaiting(bool all) {
  while (turn_ < samples_.size()) {
    Sample& sample = samples_[turn_];
    bool is_over = false;
    if (!sample.waiting.empty()) {
      const v1::GenerateResponse& last = sample.waiting.back();
      is_over = IsLast(last);
      if (options_.is_ranked && is_one_of_several() && !is_over && !all) return;
      PrintHeading(turn_, last);
      for (const v1::GenerateResponse& response : sample.waiting) Print(response);
      if (is_over) PrintEnd(turn_, last);
      sample.waiting.clear();
    }
    if (!is_over && !all) return;
    ++turn_;
  }
}

void SamplePrinter::PrintHeading(uint32_t index, const v1::GenerateResponse& last) {
  if (!is_one_of_several() || std::exchange(samples_[index].has_heading, true)) return;
  EndLine();
  const std::string score = last.has_score() ? absl::StrFormat(", score %.4f", last.score()) : "";
  std::printf("%s--- %u%s ---\n", index == 0 ? "" : "\n", index, score.c_str());
}

void SamplePrinter::Print(const v1::GenerateResponse& response) {
  samples_[response.index()].num_tokens += response.token_ids_size();
  if (response.has_numerics_changed_at()) numerics_changes_[response.index()] = response.numerics_changed_at();
  for (const v1::PositionLogprobs& logprobs : response.prompt_logprobs()) PrintLogprobs(logprobs);
  for (const v1::PositionLogprobs& logprobs : response.logprobs()) PrintLogprobs(logprobs);
  if (options_.shows_logprobs) return;
  if (options_.shows_ids) return PrintIds(response);
  const std::string& text = response.text_delta();
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  line_is_open_ = text.back() != '\n';
}

void SamplePrinter::PrintIds(const v1::GenerateResponse& response) {
  for (const uint32_t id : response.token_ids()) {
    std::printf("%s%u", line_is_open_ ? " " : "", id);
    line_is_open_ = true;
  }
}

void SamplePrinter::PrintEnd(uint32_t index, const v1::GenerateResponse& last) {
  if (!options_.shows_ends || !is_one_of_several()) return;
  EndLine();
  FlushOutput();
  std::fprintf(stderr, "[%d tokens, finished: %s]\n", samples_[index].num_tokens, EndInWords(last).c_str());
}

void SamplePrinter::EndLine() {
  if (std::exchange(line_is_open_, false)) std::printf("\n");
}

std::string EndInWords(const v1::GenerateResponse& last) {
  if (last.stop_match_case() == v1::GenerateResponse::kStop) return absl::StrCat("stop at \"", last.stop(), "\"");
  switch (last.finish_reason()) {
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_ABORT:
      return "aborted";
    default:
      return "stop";
  }
}

}  // namespace quire
