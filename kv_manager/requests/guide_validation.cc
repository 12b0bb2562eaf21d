#include "kv_manager/requests/guide_validation.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"

namespace quire {
namespace {

using SourceKind = grammar::Source::Kind;

struct ReadSource {
  const char* field;
  Guide::Kind kind;
  grammar::Source source;
};

ReadSource SourceOf(const v1::Guide& guide) {
  switch (guide.kind_case()) {
    case v1::Guide::kJsonSchema:
      return {"guided.json_schema",
              Guide::Kind::kJsonSchema,
              {.kind = SourceKind::kJsonSchema, .text = guide.json_schema()}};
    case v1::Guide::kRegex:
      return {"guided.regex", Guide::Kind::kRegex, {.kind = SourceKind::kRegex, .text = guide.regex()}};
    case v1::Guide::kGrammar:
      return {"guided.grammar", Guide::Kind::kGrammar, {.kind = SourceKind::kEbnf, .text = guide.grammar()}};
    case v1::Guide::kChoice:
      return {"guided.choice",
              Guide::Kind::kChoice,
              {.kind = SourceKind::kChoice, .choices = {guide.choice().texts().begin(), guide.choice().texts().end()}}};
    case v1::Guide::kJsonObject:
    case v1::Guide::KIND_NOT_SET:
      break;
  }
  return {"guided.json_object", Guide::Kind::kJsonObject, {.kind = SourceKind::kJsonObject}};
}

// The tokens of samples that are continued must be the beginning of a text that the guide allows.
void CheckContinued(const std::shared_ptr<const grammar::Automaton>& automaton, const ServedModel& model,
                    const ValidRequest& valid, FieldErrors* errors) {
  for (size_t i = 0; i < valid.continued.size(); ++i) {
    grammar::Matcher matcher(automaton);
    for (const TokenId token : valid.continued[i].tokens) {
      if (!model.tokenizer->IsSpecial(token)) matcher.Accept(model.tokenizer->TokenBytes(token));
    }
    if (matcher.is_dead()) {
      errors->Add("continue_from", absl::StrCat("has tokens of sample ", i, " that do not follow guided"));
    }
  }
}

}  // namespace

absl::Status ReadGuide(const v1::GenerateRequest& in, const ServedModel& model, ValidRequest* out,
                       FieldErrors* errors) {
  const v1::Guide& guide = in.guided();
  if (guide.kind_case() == v1::Guide::KIND_NOT_SET) {
    errors->Add("guided", "is empty: give json_schema, json_object, regex, choice or grammar");
    return absl::OkStatus();
  }
  if (guide.has_json_object() && !guide.json_object()) errors->Add("guided.json_object", "is false, it must be true");
  if (in.stopping().ignore_eos()) errors->Add("stopping.ignore_eos", "cannot be combined with guided");
  if (in.stopping().min_tokens() > 0) errors->Add("stopping.min_tokens", "cannot be combined with guided");
  ReadSource read = SourceOf(guide);
  const absl::StatusOr<std::shared_ptr<const grammar::Automaton>> automaton = grammar::Compile(read.source);
  if (!automaton.ok()) {
    errors->Add(read.field, std::string(automaton.status().message()));
    return absl::OkStatus();
  }
  if (model.guide_vocabulary == nullptr) {
    return WithReason(absl::FailedPreconditionError("guided needs a model with a tokenizer and an end token, and the "
                                                    "model's checkpoint came without one of them"),
                      "NO_TOKENIZER");
  }
  CheckContinued(*automaton, model, *out, errors);
  auto kept = std::make_shared<Guide>();
  kept->kind = read.kind;
  if (read.kind == Guide::Kind::kChoice) {
    kept->texts = std::move(read.source.choices);
  } else if (read.kind != Guide::Kind::kJsonObject) {
    kept->texts = {std::move(read.source.text)};
  }
  kept->vocabulary = model.guide_vocabulary;
  out->request.sampling.guide = std::move(kept);
  return absl::OkStatus();
}

}  // namespace quire
