// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/guide_validation.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "grammar/grammar.h"
#include "grammar/guide_source.h"
#include "grammar/matcher.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/requests/text_threads.h"

namespace quire {
namespace {

// Compiling a guide takes at most about the time of tokenizing this number of bytes.
constexpr size_t kCompilationWork = kVeryLongTextBytes;

constexpr int64_t kMaxContinuedWork = 20'000'000;  // Of Matcher::Accept, for all samples that a request continues.

// The field of a guide that says what the output must be.
const char* FieldOf(const grammar::Source& source) {
  switch (source.kind) {
    case grammar::Source::Kind::kJsonSchema:
      return "guided.json_schema";
    case grammar::Source::Kind::kRegex:
      return "guided.regex";
    case grammar::Source::Kind::kEbnf:
      return "guided.grammar";
    case grammar::Source::Kind::kChoice:
      return "guided.choice";
    case grammar::Source::Kind::kJsonObject:
      break;
  }
  return "guided.json_object";
}

Guide::Kind KindOf(const grammar::Source& source) {
  switch (source.kind) {
    case grammar::Source::Kind::kJsonSchema:
      return Guide::Kind::kJsonSchema;
    case grammar::Source::Kind::kRegex:
      return Guide::Kind::kRegex;
    case grammar::Source::Kind::kEbnf:
      return Guide::Kind::kGrammar;
    case grammar::Source::Kind::kChoice:
      return Guide::Kind::kChoice;
    case grammar::Source::Kind::kJsonObject:
      break;
  }
  return Guide::Kind::kJsonObject;
}

// The tokens of samples that are continued must be the beginning of a text that the guide allows.
void CheckContinued(const std::shared_ptr<const grammar::Automaton>& automaton, const ServedModel& model,
                    const ValidRequest& valid, absl::string_view guide, FieldErrors* errors) {
  const grammar::Matcher begin(automaton);
  int64_t work = kMaxContinuedWork;
  for (size_t i = 0; i < valid.continued.size(); ++i) {
    grammar::Matcher matcher = begin;
    for (const TokenId token : valid.continued[i].tokens) {
      const bool follows = matcher.Accept(model.GuideBytes(token), &work);
      if (work < 0) {
        errors->Add("continue_from", absl::StrCat("has tokens that need more than ", kMaxContinuedWork, " steps of ",
                                                  guide, ", reached in sample ", i));
        return;
      }
      if (!follows) break;
    }
    if (matcher.is_exhausted()) {
      errors->Add("continue_from",
                  absl::StrCat("has a token of sample ", i, " that needs more than ", grammar::kMaxAcceptWork,
                               " steps of ", guide, ", or can be read in too many ways"));
    } else if (matcher.is_dead()) {
      errors->Add("continue_from", absl::StrCat("has tokens of sample ", i, " that do not follow ", guide));
    }
  }
}

}  // namespace

size_t GuideWork(const v1::GenerateRequest& in, const std::optional<Caller>& caller, const GuideCache& guides) {
  if (!in.has_guided()) return 0;
  const GuideUser user = GuideUserOf(caller, in.cache_salt());
  const bool is_compiled = in.continue_from_size() > 0 || !guides.Knows(user, in.guided());
  return in.guided().ByteSizeLong() + (is_compiled ? kCompilationWork : 0);
}

absl::Status ReadGuide(const v1::GenerateRequest& in, const ServedModel& model, const GuideUser& user,
                       GuideCache* guides, ValidRequest* out, FieldErrors* errors) {
  const v1::Guide& guide = in.guided();
  if (guide.kind_case() == v1::Guide::KIND_NOT_SET) {
    errors->Add("guided", "is empty: give json_schema, json_object, regex, choice or grammar");
    return absl::OkStatus();
  }
  if (guide.has_json_object() && !guide.json_object()) errors->Add("guided.json_object", "is false, it must be true");
  grammar::Source source = grammar::SourceOf(guide);
  const char* const field = FieldOf(source);
  if (in.stopping().ignore_eos()) {
    errors->Add("stopping.ignore_eos", absl::StrCat("is true, it cannot be combined with ", field));
  }
  if (in.stopping().min_tokens() > 0) {
    errors->Add("stopping.min_tokens",
                absl::StrCat("is ", in.stopping().min_tokens(), ", it cannot be combined with ", field));
  }
  const absl::Status status = guides == nullptr ? grammar::Compile(source).status() : guides->Check(user, guide);
  if (absl::IsResourceExhausted(status)) return status;
  if (!status.ok()) {
    errors->Add(field, std::string(status.message()));
    return absl::OkStatus();
  }
  if (model.guide_vocabulary == nullptr) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          field,
                          ": needs a model with a tokenizer and an end token, and the model's checkpoint came "
                          "without one of them")),
                      "NO_TOKENIZER");
  }
  if (!out->continued.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const auto automaton, grammar::Compile(source));
    CheckContinued(automaton, model, *out, field, errors);
  }
  auto kept = std::make_shared<Guide>();
  kept->kind = KindOf(source);
  if (kept->kind == Guide::Kind::kChoice) {
    kept->texts = std::move(source.choices);
  } else if (kept->kind != Guide::Kind::kJsonObject) {
    // Workers get the guide with each row, so what has no effect stays here.
    kept->texts = {grammar::WithoutAnnotations(std::move(source)).text};
  }
  kept->vocabulary = model.guide_vocabulary->Get();
  out->request.sampling.guide = std::move(kept);
  return absl::OkStatus();
}

}  // namespace quire
