// SPDX-License-Identifier: Apache-2.0

// Prints as JSON what the grammar engine does with guides, so that another engine can be given the same work
// (bench/compare/grammars.py).

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/escaping.h"
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
ABSL_FLAG(int32_t, tokens, 200, "The largest number of tokens of a text.");
ABSL_FLAG(std::string, schemas, "",
          "The folder draft2020-12 of the public test suite of JSON schemas; empty uses none of them.");

namespace quire {
namespace {

using grammar::Source;
using Json = nlohmann::ordered_json;

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{"guide_trace",
                                                    "prints what the grammar engine does with guides, as JSON.",
                                                    "[flags]",
                                                    {{"Load:", {"vocabulary", "texts", "tokens", "schemas"}}}};
  return *flags;
}

const char* KindName(Source::Kind kind) {
  switch (kind) {
    case Source::Kind::kJsonSchema:
      return "json_schema";
    case Source::Kind::kJsonObject:
      return "json_object";
    case Source::Kind::kRegex:
      return "regex";
    case Source::Kind::kChoice:
      return "choice";
    case Source::Kind::kEbnf:
      return "grammar";
  }
  return "";
}

bool Accepts(const std::shared_ptr<const grammar::Automaton>& automaton, const std::string& text) {
  grammar::Matcher matcher(automaton);
  return matcher.Accept(text) && matcher.can_end();
}

// Times are in seconds of CPU time. Times of masks are without the first text, which fills the masks that are kept.
Json Trace(const NamedSource& named, const std::shared_ptr<const grammar::TokenTable>& tokens, const Json& instances) {
  Json out = {{"name", named.name}, {"kind", KindName(named.source.kind)}, {"text", named.source.text}};
  const double compile_start = ThreadCpuSeconds();
  const auto automaton = grammar::Compile(named.source);
  out["compile"] = ThreadCpuSeconds() - compile_start;
  if (!automaton.ok()) {
    out["error"] = std::string(automaton.status().message());
    return out;
  }
  grammar::TokenMasks masks(tokens);
  const double prepare_start = ThreadCpuSeconds();
  grammar::TokenMasks::Preparation preparation;
  masks.Prepare(*automaton, grammar::TokenMasks::kMaxPreparedWork, &preparation);
  out["prepare"] = ThreadCpuSeconds() - prepare_start;
  std::vector<uint32_t> mask(masks.num_words());
  Random random(3);
  out["masks"] = Json::array();
  out["texts"] = Json::array();
  for (int text = 0; text < absl::GetFlag(FLAGS_texts); ++text) {
    grammar::Matcher matcher(*automaton);
    Json ids = Json::array();
    for (int i = 0; i < absl::GetFlag(FLAGS_tokens); ++i) {
      int64_t work = std::numeric_limits<int64_t>::max();
      const double start = ThreadCpuSeconds();
      masks.Fill(matcher, absl::MakeSpan(mask), &work);
      if (text > 0) out["masks"].push_back(ThreadCpuSeconds() - start);
      const TokenId token = DrawToken(mask, *tokens, &random);
      if (token < 0 || !matcher.Accept(tokens->bytes(token))) break;
      ids.push_back(token);
    }
    out["texts"].push_back(std::move(ids));
  }
  out["cases"] = Json::array();
  for (const Json& instance : instances) {
    const std::string text = instance["data"].dump();
    out["cases"].push_back({{"text", text}, {"valid", instance["valid"]}, {"accepted", Accepts(*automaton, text)}});
  }
  return out;
}

absl::Status AddSuite(const std::shared_ptr<const grammar::TokenTable>& tokens, Json* traces) {
  const std::filesystem::path folder = absl::GetFlag(FLAGS_schemas);
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    const auto groups = Json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!groups.is_array()) return InvalidArgument("--schemas: ", entry.path().string(), " is no list of test groups");
    for (const auto& group : groups) {
      const NamedSource named = {
          .name = absl::StrCat(entry.path().stem().string(), ": ", group["description"].get<std::string>()),
          .source = {.kind = Source::Kind::kJsonSchema, .text = group["schema"].dump()}};
      traces->push_back(Trace(named, tokens, group["tests"]));
    }
  }
  return error ? InvalidArgument("--schemas: ", folder.string(), ": ", error.message()) : absl::OkStatus();
}

absl::Status Run() {
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("vocabulary", absl::GetFlag(FLAGS_vocabulary), 300, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("texts", absl::GetFlag(FLAGS_texts), 2, 1 << 10));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("tokens", absl::GetFlag(FLAGS_tokens), 1, 1 << 10));
  const auto tokens = grammar::TrialVocabulary(absl::GetFlag(FLAGS_vocabulary), 1);
  Json bytes = Json::array();
  for (TokenId token = 0; token < tokens->vocab_size(); ++token) {
    bytes.push_back(absl::BytesToHexString(std::string(tokens->bytes(token))));
  }
  Json guides = Json::array(), suite = Json::array();
  for (const NamedSource& named : TrialGuides()) guides.push_back(Trace(named, tokens, Json::array()));
  QUIRE_RETURN_IF_ERROR(AddSuite(tokens, &suite));
  const Json end_tokens(std::vector<TokenId>(tokens->end_tokens().begin(), tokens->end_tokens().end()));
  const Json all = {{"tokens", bytes}, {"end_tokens", end_tokens}, {"guides", guides}, {"suite", suite}};
  std::printf("%s\n", all.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
