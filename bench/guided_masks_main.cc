// SPDX-License-Identifier: Apache-2.0

// Measures how long it takes to compile guides, and to compute which tokens may come next.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/clocks.h"
#include "bench/trial_guides.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/token_masks.h"
#include "nlohmann/json.hpp"
#include "tests/grammar/trial_vocabulary.h"
#include "tests/random.h"

ABSL_FLAG(int32_t, vocabulary, 131072, "Tokens of the vocabulary, which are drawn.");
ABSL_FLAG(int32_t, texts, 20, "Texts for each guide.");
ABSL_FLAG(std::string, schemas, "",
          "The folder draft2020-12 of the public test suite of JSON schemas; empty measures none of them.");
ABSL_FLAG(int32_t, tokens, 200, "The largest number of tokens of a text.");

namespace quire {
namespace {

using grammar::Source;

const ProgramFlags& Flags() {
  static const auto* const flags =
      new ProgramFlags{"guided_masks",
                       "draws texts of several guides, and measures the compilation and the masks.",
                       "[flags]",
                       {{"Load:", {"vocabulary", "texts", "tokens", "schemas"}}}};
  return *flags;
}

double Quantile(std::vector<double>* seconds, double quantile) {
  if (seconds->empty()) return 0;
  std::sort(seconds->begin(), seconds->end());
  return (*seconds)[static_cast<size_t>(quantile * static_cast<double>(seconds->size() - 1))];
}

void Measure(const NamedSource& named, const std::shared_ptr<const grammar::TokenTable>& tokens) {
  constexpr int kCompilations = 20;
  std::vector<double> compile, first_text, others;
  std::shared_ptr<const grammar::Automaton> automaton;
  for (int i = 0; i < kCompilations; ++i) {
    const double start = ThreadCpuSeconds();
    automaton = *grammar::Compile(named.source);
    compile.push_back(ThreadCpuSeconds() - start);
  }
  grammar::TokenMasks masks(tokens);
  const double prepare_start = ThreadCpuSeconds();
  grammar::TokenMasks::Preparation preparation;
  masks.Prepare(automaton, grammar::TokenMasks::kMaxPreparedWork, &preparation);
  const double prepare = ThreadCpuSeconds() - prepare_start;
  std::vector<uint32_t> mask(masks.num_words());
  Random random(3);
  for (int text = 0; text < absl::GetFlag(FLAGS_texts); ++text) {
    grammar::Matcher matcher(automaton);
    for (int i = 0; i < absl::GetFlag(FLAGS_tokens); ++i) {
      int64_t work = std::numeric_limits<int64_t>::max();
      const double start = ThreadCpuSeconds();
      masks.Fill(matcher, absl::MakeSpan(mask), &work);
      (text == 0 ? first_text : others).push_back(ThreadCpuSeconds() - start);
      const TokenId token = DrawToken(mask, *tokens, &random);
      if (token < 0 || !matcher.Accept(tokens->bytes(token))) break;
    }
  }
  std::printf("%-22s %8d %7.2f %7.2f %8.2f %10.1f %10.1f %9.1f %9.1f %9.1f %7.1f\n", named.name.c_str(),
              automaton->num_states(), 1e3 * Quantile(&compile, 0.5), 1e3 * Quantile(&compile, 1), 1e3 * prepare,
              1e6 * Quantile(&first_text, 0.5), 1e6 * Quantile(&first_text, 1), 1e6 * Quantile(&others, 0.5),
              1e6 * Quantile(&others, 0.99), 1e6 * Quantile(&others, 1),
              static_cast<double>(masks.num_bytes()) / (1 << 20));
}

// Compiles the supported schemas of the public test suite, and prepares their masks, as a worker does.
absl::Status MeasureSuite(const std::shared_ptr<const grammar::TokenTable>& tokens) {
  const std::filesystem::path folder = absl::GetFlag(FLAGS_schemas);
  if (folder.empty()) return absl::OkStatus();
  std::vector<double> compile, prepare;
  grammar::TokenMasks masks(tokens);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    const auto groups = nlohmann::ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!groups.is_array()) return InvalidArgument("--schemas: ", entry.path().string(), " is no list of test groups");
    for (const auto& group : groups) {
      const Source source = {.kind = Source::Kind::kJsonSchema, .text = group["schema"].dump()};
      const double start = ThreadCpuSeconds();
      const auto automaton = grammar::Compile(source);
      if (!automaton.ok()) continue;
      compile.push_back(ThreadCpuSeconds() - start);
      const double prepare_start = ThreadCpuSeconds();
      grammar::TokenMasks::Preparation preparation;
      masks.Prepare(*automaton, grammar::TokenMasks::kMaxPreparedWork, &preparation);
      prepare.push_back(ThreadCpuSeconds() - prepare_start);
    }
  }
  if (error) return InvalidArgument("--schemas: ", folder.string(), ": ", error.message());
  const size_t count = compile.size();
  std::printf("\n%zu supported schemas of %s\ncompile, ms: median %.2f, p99 %.2f, largest %.2f\n", count,
              folder.c_str(), 1e3 * Quantile(&compile, 0.5), 1e3 * Quantile(&compile, 0.99),
              1e3 * Quantile(&compile, 1));
  std::printf("prepare, ms: median %.2f, p99 %.2f, largest %.2f\n", 1e3 * Quantile(&prepare, 0.5),
              1e3 * Quantile(&prepare, 0.99), 1e3 * Quantile(&prepare, 1));
  return absl::OkStatus();
}

absl::Status Run() {
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("vocabulary", absl::GetFlag(FLAGS_vocabulary), 300, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("texts", absl::GetFlag(FLAGS_texts), 2, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("tokens", absl::GetFlag(FLAGS_tokens), 1, 1 << 20));
  const auto tokens = grammar::TrialVocabulary(absl::GetFlag(FLAGS_vocabulary), 1);
  std::printf(
      "A vocabulary of %d tokens, %d texts of each guide. CPU time.\n\n%-22s %8s %15s %8s %21s %29s %7s\n"
      "%-22s %8s %7s %7s %8s %10s %10s %9s %9s %9s %7s\n",
      tokens->vocab_size(), absl::GetFlag(FLAGS_texts), "", "", "compile, ms", "prepare,", "mask of first text, us",
      "mask of other texts, us", "masks,", "guide", "states", "median", "largest", "ms", "median", "largest", "median",
      "p99", "largest", "MiB");
  for (const NamedSource& named : TrialGuides()) Measure(named, tokens);
  return MeasureSuite(tokens);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
