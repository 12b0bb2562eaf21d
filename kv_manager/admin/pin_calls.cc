// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/pin_calls.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/admin/loop_answers.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/requests/pin_validation.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/rpc/rpc_status.h"
#include "security/authorizer.h"

namespace quire {
namespace {

// The prompt that a pin keeps.
struct PinnedPrompt {
  std::vector<TokenId> tokens;
  std::string cache_salt;
  GenerationId generation{0};  // The generation whose tokens they are.
};

// The prompt is checked like that of a request.
template <typename PinRequest>
v1::GenerateRequest AsGenerate(const PinRequest& in) {
  v1::GenerateRequest out;
  if (in.has_text()) out.set_text(in.text());
  if (in.has_token_ids()) *out.mutable_token_ids() = in.token_ids();
  if (in.has_add_special_tokens()) out.set_add_special_tokens(in.add_special_tokens());
  if (in.has_parse_special_tokens()) out.set_parse_special_tokens(in.parse_special_tokens());
  out.set_cache_salt(in.cache_salt());
  return out;
}

template <typename PinRequest>
absl::StatusOr<PinnedPrompt> ReadPrompt(const PinRequest& in, const AdminCall& call, const RequestEnvironment& requests,
                                        const ServedModel* model) {
  if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
  if (in.prompt_case() == PinRequest::PROMPT_NOT_SET) {
    FieldErrors errors;
    errors.Add("prompt", "is not set: give text or token_ids");
    return errors.ToStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(ValidRequest valid,
                         ValidateGenerate(AsGenerate(in), *model, requests.options.limits, /*drawn_seed=*/0));
  QUIRE_ASSIGN_OR_RETURN(const std::optional<Caller> caller, CallerOf(*call.context(), requests.options.tokens.get()));
  QUIRE_RETURN_IF_ERROR(AssumeTenant(caller, &valid.request));
  return PinnedPrompt{std::move(valid.request.prompt), std::move(valid.request.cache_salt), model->generation};
}

struct PinAnswer {
  v1::WorkerPin pin;
  int block_size = 0;            // 0 for a worker that has not joined.
  bool is_of_generation = true;  // Whether the worker could use the pin.
};

// Refuses a prompt that fills no block of any worker.
absl::Status CheckFillsBlock(size_t num_prompt_tokens, const std::map<std::string, PinAnswer>& answers) {
  int smallest = 0;
  for (const auto& [address, answer] : answers) {
    if (answer.block_size > 0 && (smallest == 0 || answer.block_size < smallest)) smallest = answer.block_size;
  }
  if (num_prompt_tokens >= static_cast<size_t>(smallest)) return absl::OkStatus();
  const std::string message = absl::StrCat("the prompt has ", num_prompt_tokens, " tokens and a block has ", smallest,
                                           ": nothing of it can be pinned");
  return WithReason(absl::FailedPreconditionError(message), "PROMPT_FILLS_NO_BLOCK");
}

// Makes the response from the answers of the workers. RESOURCE_EXHAUSTED when no worker pins anything and one refuses.
absl::StatusOr<v1::PinPrefixResponse> PinResult(size_t num_prompt_tokens, std::map<std::string, PinAnswer> answers) {
  QUIRE_RETURN_IF_ERROR(CheckFillsBlock(num_prompt_tokens, answers));
  v1::PinPrefixResponse response;
  response.set_prompt_tokens(static_cast<uint32_t>(num_prompt_tokens));
  bool has_pin = false;
  std::string refusal;
  for (auto& [address, answer] : answers) {
    v1::WorkerPin& pin = answer.pin;
    has_pin = has_pin || pin.pinned_tokens() > 0;
    if (answer.is_of_generation && !pin.refusal().empty()) {
      refusal = absl::StrCat("worker ", address, ": ", pin.refusal());
    }
    *response.add_workers() = std::move(pin);
  }
  if (has_pin || refusal.empty()) return response;
  return WithReason(absl::ResourceExhaustedError(refusal), "TOO_MANY_PINS");
}

}  // namespace

template <typename Request>
void PinCalls::RunOnText(const Request& request, const AdminCall& call,
                         void (PinCalls::*start)(const Request&, const AdminCall&)) {
  const size_t num_bytes = TextWork(AsGenerate(request));
  const absl::Status status = requests_->text_threads.RunInput(
      /*tenant=*/"", num_bytes,
      [this, start, call, request = std::make_shared<const Request>(request)] { (this->*start)(*request, call); });
  if (!status.ok()) call.Finish(status);
}

void PinCalls::PinPrefix(const v1::PinPrefixRequest& request, const AdminCall& call) {
  RunOnText(request, call, &PinCalls::Pin);
}

void PinCalls::UnpinPrefix(const v1::UnpinPrefixRequest& request, const AdminCall& call) {
  RunOnText(request, call, &PinCalls::Unpin);
}

void PinCalls::Pin(const v1::PinPrefixRequest& request, const AdminCall& call) {
  const uint32_t ttl_seconds = request.has_ttl_seconds() ? request.ttl_seconds() : kDefaultPinSeconds;
  if (const absl::Status status = CheckRange("ttl_seconds", ttl_seconds, 1, kMaxPinSeconds); !status.ok()) {
    return call.Finish(status);
  }
  absl::StatusOr<PinnedPrompt> read = ReadPrompt(request, call, *requests_, engine_->model().get());
  if (!read.ok()) return call.Finish(read.status());
  const auto prompt = std::make_shared<const PinnedPrompt>(*std::move(read));
  const auto answers = std::make_shared<Gathered<std::map<std::string, PinAnswer>>>();
  engine_->AskAll(
      [prompt, answers, ttl_us = ttl_seconds * int64_t{1'000'000}](const LoopView& loop) {
        PinAnswer answer;
        v1::WorkerPin& pin = answer.pin;
        pin.set_address(loop.address);
        if (loop.blocks != nullptr && loop.generation != prompt->generation) {
          answer.is_of_generation = false;
          pin.set_refusal("the worker has another model than the one for new requests");
        } else if (loop.blocks != nullptr) {
          answer.block_size = loop.blocks->block_size();
          const absl::StatusOr<int> num_tokens =
              loop.blocks->Pin(prompt->cache_salt, prompt->tokens, loop.now_us + ttl_us);
          if (num_tokens.ok()) pin.set_pinned_tokens(*num_tokens);
          if (!num_tokens.ok()) pin.set_refusal(std::string(num_tokens.status().message()));
        }
        const MutexLock lock(&answers->mutex);
        answers->all[loop.address] = std::move(answer);
      },
      [prompt, answers, call](const absl::Status& status) {
        if (!status.ok()) return call.Finish(status);
        const absl::StatusOr<v1::PinPrefixResponse> response = PinResult(prompt->tokens.size(), answers->Take());
        return response.ok() ? call.Finish(*response) : call.Finish(response.status());
      });
}

void PinCalls::Unpin(const v1::UnpinPrefixRequest& request, const AdminCall& call) {
  absl::StatusOr<PinnedPrompt> prompt = ReadPrompt(request, call, *requests_, engine_->model().get());
  if (!prompt.ok()) return call.Finish(prompt.status());
  // A pin may be older than the generation that is served now. An older generation may have other tokens for the text,
  // or none for it at all; then it has no pin of it.
  const auto prompts = std::make_shared<std::map<GenerationId, PinnedPrompt>>();
  for (const std::shared_ptr<const ServedModel>& model : engine_->models()) {
    if (model->generation == prompt->generation) continue;
    absl::StatusOr<PinnedPrompt> older = ReadPrompt(request, call, *requests_, model.get());
    if (older.ok()) prompts->emplace(model->generation, *std::move(older));
  }
  const size_t num_tokens = prompt->tokens.size();
  prompts->emplace(prompt->generation, *std::move(prompt));
  const auto num_workers = std::make_shared<std::atomic<int>>(0);
  engine_->AskAll(
      [prompts, num_workers](const LoopView& loop) {
        const auto pinned = prompts->find(loop.generation);
        if (loop.blocks == nullptr || pinned == prompts->end()) return;
        if (loop.blocks->Unpin(pinned->second.cache_salt, pinned->second.tokens)) ++*num_workers;
      },
      [num_tokens, num_workers, call](const absl::Status& status) {
        if (!status.ok()) return call.Finish(status);
        v1::UnpinPrefixResponse response;
        response.set_num_workers(*num_workers);
        if (response.num_workers() > 0) return call.Finish(response);
        call.Finish(WithReason(
            absl::NotFoundError(absl::StrCat("no worker has a pin of these ", num_tokens, " tokens")), "NOT_PINNED"));
      });
}

}  // namespace quire
