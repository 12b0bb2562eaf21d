// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_SAMPLE_PRINTER_H_
#define QUIRE_CLIENT_COMMANDS_SAMPLE_PRINTER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "quire/v1/inference.pb.h"

namespace quire {

// Prints the samples of one request for people, one after the other. The first unfinished sample is printed as
// it comes; the others wait. If there are several, each has a heading.
class SamplePrinter {
 public:
  struct Options {
    uint32_t num_samples = 1;
    bool is_ranked = false;       // The headings show scores. The last response of a sample has its score.
    bool shows_logprobs = false;  // Prints one line per token instead of the text.
    bool shows_ids = false;       // Prints token ids instead of the text.
    bool shows_ends = false;      // Prints the token count and the end of each of several samples to standard error.
  };

  explicit SamplePrinter(const Options& options) : options_(options) {}

  void Add(const v1::GenerateResponse& response);

  // Call it after the last response. Prints what is still waiting, and ends the line. Prints to standard error which
  // samples have changed their numerics.
  void End();

 private:
  struct Sample {
    std::vector<v1::GenerateResponse> waiting;  // The responses that are not printed yet.
    int num_tokens = 0;                         // The number of tokens that were printed.
    bool has_heading = false;
  };

  bool is_one_of_several() const { return options_.num_samples > 1; }
  // Prints the waiting responses of the samples whose turn has come, or with `all` the responses of every sample.
  void PrintWaiting(bool all);
  void PrintHeading(uint32_t index, const v1::GenerateResponse& last);
  void Print(const v1::GenerateResponse& response);
  void PrintIds(const v1::GenerateResponse& response);
  void PrintEnd(uint32_t index, const v1::GenerateResponse& last);
  void EndLine();

  const Options options_;
  std::map<uint32_t, uint32_t> numerics_changes_;  // The key is the index: GenerateResponse.numerics_changed_at.
  std::vector<Sample> samples_;                    // [the largest index that has come + 1]
  uint32_t turn_ = 0;                              // The sample that is being printed.
  bool line_is_open_ = false;
};

// Returns why a sample ended, in words: "length", or "stop at \"...\"".
std::string EndInWords(const v1::GenerateResponse& last);

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_SAMPLE_PRINTER_H_
