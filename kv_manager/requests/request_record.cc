// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_record.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/message_numbers.h"
#include "security/digest.h"

namespace quire {
namespace {

constexpr absl::string_view kPurpose = "request record";
constexpr absl::string_view kRecordVersion = "record 1";
constexpr absl::string_view kVersionWithPins = "record 2";  // Has one field more.
constexpr char kNoDeadline[] = "never";
constexpr size_t kNumFields = 10;

std::string DigestText(const Sha256Digest& digest) {
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

// Two numbers for each pin.
std::string PinsText(const std::vector<Request::PrefixPin>& pins) {
  return absl::StrJoin(pins, " ", [](std::string* text, const Request::PrefixPin& pin) {
    absl::StrAppend(text, pin.num_tokens, " ", pin.ttl_us);
  });
}

std::optional<std::vector<Request::PrefixPin>> ParsePins(absl::string_view text) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(text, ' ');
  if (numbers.size() % 2 != 0) return std::nullopt;
  std::vector<Request::PrefixPin> pins(numbers.size() / 2);
  for (size_t i = 0; i < pins.size(); ++i) {
    if (!absl::SimpleAtoi(numbers[2 * i], &pins[i].num_tokens) ||
        !absl::SimpleAtoi(numbers[2 * i + 1], &pins[i].ttl_us)) {
      return std::nullopt;
    }
  }
  return pins;
}

}  // namespace

v1::GenerateRequest WithoutPrompt(const v1::GenerateRequest& request, const ValidRequest& valid) {
  v1::GenerateRequest out = request;
  out.clear_prompt();
  if (valid.echo == Echo::kText) out.set_text(valid.prompt_text);
  out.clear_tenant();
  out.clear_cache_salt();
  out.clear_pins();  // They name messages. The record has their tokens.
  // The rows have these tokens.
  out.clear_continue_from();
  out.clear_continue_numerics();
  const SamplingParams& sampling = valid.request.sampling;
  out.mutable_stopping()->set_max_tokens(valid.request.is_prompt_only ? 0 : valid.request.max_tokens);
  v1::SamplingParams* const params = out.mutable_sampling();
  params->set_seed(sampling.seed);
  // Another model may recommend other values.
  for (const SamplingField& field : kSamplingFields) {
    const bool is_used = !request.has_beam() || !field.is_for_draws;
    if (field.is_recommended() && is_used) SetNumber(field.name, field.Of(sampling), params);
  }
  return out;
}

// Fields that have no newline, and then the request.
std::string EncodeRequestRecord(const RequestRecord& record, const SealKey& key) {
  const bool has_pins = !record.pins.empty();
  std::vector<std::string> fields = {
      std::string(has_pins ? kVersionWithPins : kRecordVersion),
      record.identity.owner,
      record.identity.name,
      record.identity.tenant,
      DigestText(record.identity.digest),
      absl::StrCat(record.nonce),
      absl::BytesToHexString(record.cache_salt),
      absl::StrCat(record.arrival_unix_us),
      record.deadline_unix_us.has_value() ? absl::StrCat(*record.deadline_unix_us) : kNoDeadline,
      record.request.SerializeAsString()};
  if (has_pins) fields.insert(fields.end() - 1, PinsText(record.pins));
  return key.For(kPurpose).Seal(absl::StrJoin(fields, "\n"));
}

std::optional<RequestRecord> DecodeRequestRecord(absl::string_view bytes, const SealKey& key) {
  const std::optional<std::string> message = key.For(kPurpose).Open(bytes);
  if (!message.has_value()) return std::nullopt;
  const bool has_pins = absl::StartsWith(*message, absl::StrCat(kVersionWithPins, "\n"));
  const size_t num_fields = kNumFields + (has_pins ? 1 : 0);
  const std::vector<std::string> fields = absl::StrSplit(*message, absl::MaxSplits('\n', num_fields - 1));
  RequestRecord record;
  if (fields.size() != num_fields || (!has_pins && fields[0] != kRecordVersion)) return std::nullopt;
  const std::optional<Sha256Digest> digest = ParseSha256(fields[4]);
  const std::optional<std::string> cache_salt = ParseHex(fields[6]);
  if (!digest.has_value() || !cache_salt.has_value() || !absl::SimpleAtoi(fields[5], &record.nonce) ||
      !absl::SimpleAtoi(fields[7], &record.arrival_unix_us) || !record.request.ParseFromString(fields.back())) {
    return std::nullopt;
  }
  if (fields[8] != kNoDeadline) {
    int64_t deadline_unix_us = 0;
    if (!absl::SimpleAtoi(fields[8], &deadline_unix_us)) return std::nullopt;
    record.deadline_unix_us = deadline_unix_us;
  }
  if (has_pins) {
    std::optional<std::vector<Request::PrefixPin>> pins = ParsePins(fields[kNumFields - 1]);
    if (!pins.has_value()) return std::nullopt;
    record.pins = *std::move(pins);
  }
  record.identity.owner = fields[1];
  record.identity.name = fields[2];
  record.identity.tenant = fields[3];
  record.identity.digest = *digest;
  record.cache_salt = *cache_salt;
  return record;
}

}  // namespace quire
