// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/mixed_work.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr char kFable[] =
    "Once upon a time there was a little fox with a red hat. She lived in a house near the river with her mother and "
    "two brothers. Every morning she took her basket and walked through the tall trees to look for berries. ";

bool BeginsWith(const Output& whole, const Output& part) {
  return part.tokens.size() <= whole.tokens.size() &&
         std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin()) &&
         absl::StartsWith(whole.text, part.text);
}

bool IsBeginning(const Outputs& whole, const Outputs& part) {
  if (part.size() > whole.size()) return false;
  for (size_t i = 0; i < part.size(); ++i) {
    if (!BeginsWith(whole[i], part[i])) return false;
  }
  return true;
}

}  // namespace

void AddResponse(const v1::GenerateResponse& response, Outputs* outputs) {
  if (outputs->size() <= response.index()) outputs->resize(response.index() + 1);
  Output& output = (*outputs)[response.index()];
  output.tokens.insert(output.tokens.end(), response.token_ids().begin(), response.token_ids().end());
  output.text += response.text_delta();
}

std::vector<WorkItem> MixedWork() {
  std::vector<WorkItem> work;
  const auto add = [&](const std::string& name, const std::string& text, uint32_t max_tokens) -> v1::GenerateRequest& {
    WorkItem& item = work.emplace_back();
    item.name = name;
    item.request.set_text(text);
    item.request.mutable_sampling()->set_temperature(0);
    item.request.mutable_stopping()->set_max_tokens(max_tokens);
    item.request.mutable_stopping()->set_ignore_eos(true);
    return item.request;
  };
  const auto draw = [](v1::GenerateRequest& request, uint64_t seed) {
    request.mutable_sampling()->set_temperature(0.8f);
    request.mutable_sampling()->set_top_p(0.95f);
    request.mutable_sampling()->set_seed(seed);
  };
  for (uint32_t i = 0; i < 6; ++i) {
    v1::GenerateRequest& chat = add(absl::StrCat("chat ", i), absl::StrCat("One day number ", i), 20 + 12 * i);
    if (i % 2 == 1) draw(chat, 100 + i);
    chat.set_priority(static_cast<int32_t>(i) - 3);
    chat.set_tenant(absl::StrCat("tenant", i % 3));
  }
  for (uint32_t i = 0; i < 3; ++i) {
    v1::GenerateRequest& prompt =
        add(absl::StrCat("long prompt ", i), absl::StrCat("Tale ", i, ". ", kFable, kFable, "Then she met a bear"), 30);
    draw(prompt, 200 + i);
    if (i == 1) prompt.set_bypass_prefix_cache(true);
    if (i == 2) prompt.set_prompt_logprobs(1);
  }
  for (uint32_t i = 0; i < 3; ++i) {
    v1::GenerateRequest& follow_up = add(absl::StrCat("shared prefix ", i), absl::StrCat(kFable, "Question ", i), 24);
    if (i == 2) follow_up.set_cache_salt("pepper");
  }
  v1::GenerateRequest& samples = add("samples", kFable, 32);
  draw(samples, 300);
  samples.set_n(4);
  v1::GenerateRequest& best = add("best of 4", "A boat sailed", 24);
  draw(best, 400);
  best.set_n(2);
  best.set_best_of(4);
  v1::GenerateRequest& beams = add("beams", absl::StrCat(kFable, "The sun"), 24);
  beams.mutable_beam()->set_width(4);
  beams.mutable_beam()->set_num_return_sequences(2);
  beams.mutable_stopping()->set_ignore_eos(false);
  v1::GenerateRequest& penalties = add("penalties", "The cat and the dog", 40);
  draw(penalties, 500);
  penalties.mutable_sampling()->set_frequency_penalty(0.5f);
  penalties.mutable_sampling()->set_repetition_penalty(1.1f);
  v1::GenerateRequest& stop = add("stop string", kFable, 60);
  stop.mutable_stopping()->add_stop("the");
  stop.mutable_stopping()->add_stop(".");
  add("long answer", "Once upon a time", 300).set_logprobs(1);
  return work;
}

absl::Status AnswerBook::Learn(Client* client) {
  std::vector<Outputs>& answers = answers_.emplace_back();
  for (const WorkItem& item : work_) {
    const std::unique_ptr<GenerateStream> stream = client->Generate(item.request, absl::Minutes(5));
    Outputs outputs;
    v1::GenerateResponse response;
    while (stream->Next(&response)) AddResponse(response, &outputs);
    const absl::Status status = stream->Finish();
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(item.name, ": ", status.message()));
    answers.push_back(std::move(outputs));
  }
  return absl::OkStatus();
}

std::string AnswerBook::Check(int i, const Outputs& outputs, bool is_whole) const {
  for (const std::vector<Outputs>& answers : answers_) {
    if (is_whole ? outputs == answers[i] : IsBeginning(answers[i], outputs)) return "";
  }
  std::string text = absl::StrCat(work_[i].name, ": ", outputs.size(), " outputs that no model gives:");
  for (const Output& output : outputs) {
    absl::StrAppend(&text, " [", output.tokens.size(), " tokens '", output.text, "']");
  }
  return text;
}

}  // namespace quire
