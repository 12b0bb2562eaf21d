#ifndef QUIRE_CLIENT_SAMPLE_PRINTER_H_
#define QUIRE_CLIENT_SAMPLE_PRINTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "quire/v1/inference.pb.h"

namespace quire {

// Prints the samples of one request as text for people: one after the other, each as it comes once it is its turn. With
// several of them each has a heading.
class SamplePrinter {
 public:
  struct Options {
    uint32_t num_samples = 1;
    bool is_ranked = false;       // Headings of several show scores, which the last response of a sample brings.
    bool shows_logprobs = false;  // One line per token in place of text.
    bool shows_ends = false;      // With several: how many tokens each has and why it ended, on standard error.
  };

  explicit SamplePrinter(const Options& options) : options_(options) {}

  void Add(const v1::GenerateResponse& response);

  // No response follows: prints what has waited for its turn, and ends the line.
  void End();

 private:
  struct Sample {
    std::vector<v1::GenerateResponse> waiting;  // Not printed yet.
    int num_tokens = 0;                         // That were printed.
    bool has_heading = false;
  };

  bool is_one_of_several() const { return options_.num_samples > 1; }
  // Prints what waits of samples whose turn it is, or with `all` of every one.
  void PrintWaiting(bool all);
  void PrintHeading(uint32_t index, const v1::GenerateResponse& last);
  void Print(const v1::GenerateResponse& response);
  void PrintEnd(uint32_t index, const v1::GenerateResponse& last);
  void EndLine();

  const Options options_;
  std::vector<Sample> samples_;  // Of which something has come, and those before.
  uint32_t turn_ = 0;            // Whose it is.
  bool line_is_open_ = false;
};

// Why a sample ended, in words: "length", or "stop at \"...\"".
std::string EndInWords(const v1::GenerateResponse& last);

}  // namespace quire

#endif  // QUIRE_CLIENT_SAMPLE_PRINTER_H_
