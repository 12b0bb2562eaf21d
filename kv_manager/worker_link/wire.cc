// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/wire.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/listen_address.h"
#include "base/message_numbers.h"
#include "base/status.h"
#include "base/worker_protocol.h"
#include "kv_manager/worker_link/cache_root.h"
#include "kv_manager/worker_link/row_record.h"
#include "kv_manager/worker_link/score_columns.h"

namespace quire {
namespace {

using Fixed32Column = google::protobuf::RepeatedField<uint32_t>;
using FloatColumn = google::protobuf::RepeatedField<float>;

void CopyTokens(const std::vector<TokenId>& tokens, Fixed32Column* out) {
  out->Add(tokens.begin(), tokens.end());
}

void EncodeGuide(const Guide& in, v1::Guide* out) {
  switch (in.kind) {
    case Guide::Kind::kJsonSchema:
      out->set_json_schema(in.texts[0]);
      return;
    case Guide::Kind::kJsonObject:
      out->set_json_object(true);
      return;
    case Guide::Kind::kRegex:
      out->set_regex(in.texts[0]);
      return;
    case Guide::Kind::kChoice:
      for (const std::string& text : in.texts) out->mutable_choice()->add_texts(text);
      return;
    case Guide::Kind::kGrammar:
      out->set_grammar(in.texts[0]);
      return;
  }
}

// The numbers of both are the same.
v1::PoolingKind KindOf(Pooling pooling) {
  static_assert(static_cast<int>(Pooling::kFirstToken) == v1::POOLING_KIND_FIRST_TOKEN);
  return static_cast<v1::PoolingKind>(pooling);
}

void EncodeSampling(const SamplingParams& in, v1::RowSampling* out) {
  for (const SamplingField& field : kSamplingFields) SetNumber(field.name, field.Of(in), out);
  out->set_seed(in.seed);
  for (const LogitBias& bias : in.logit_bias) {
    out->add_bias_token_ids(bias.token);
    out->add_biases(bias.bias);
  }
  CopyTokens(in.allowed_token_ids, out->mutable_allowed_token_ids());
  for (const std::vector<TokenId>& word : in.bad_words) {
    CopyTokens(word, out->mutable_bad_word_token_ids());
    out->add_bad_word_lengths(word.size());
  }
  CopyTokens(in.min_tokens_masked_ids, out->mutable_min_tokens_masked_ids());
  out->set_min_tokens(in.min_tokens);
  out->set_num_logprobs_plus_one(in.num_logprobs + 1);
  out->set_num_prompt_logprobs_plus_one(in.num_prompt_logprobs + 1);
  out->set_num_candidates(in.num_candidates);
  out->set_pooling(KindOf(in.pooling));
  if (in.guide != nullptr) EncodeGuide(*in.guide, out->mutable_guided());
}

// Copies and swaps of blocks.
void EncodeMoves(const StepPlan& plan, v1::StepPlan* out) {
  for (const BlockSwap& swap : plan.swap_outs) {
    out->add_swap_out_blocks(Value(swap.device));
    out->add_swap_out_host_blocks(Value(swap.host));
  }
  for (const BlockSwap& swap : plan.swap_ins) {
    out->add_swap_in_host_blocks(Value(swap.host));
    out->add_swap_in_blocks(Value(swap.device));
  }
  for (const BlockCopy& copy : plan.copies) {
    out->add_copy_sources(Value(copy.source));
    out->add_copy_destinations(Value(copy.destination));
  }
}

absl::Status Malformed(absl::string_view column, uint64_t value, absl::string_view limit) {
  return absl::InternalError(absl::StrCat("worker sent ", column, " ", value, ", expected ", limit));
}

absl::Status DecodeTokens(const v1::StepResult& in, const ExpectedResult& expected, int vocab_size, StepResult* out) {
  if (in.token_ids_size() != expected.num_drawn)
    return Malformed("token_ids: length", in.token_ids_size(), absl::StrCat(expected.num_drawn));
  int next = 0;
  for (size_t i = 0; i < expected.slices.size(); ++i) {
    if (!expected.slices[i].draws()) continue;
    const uint32_t token = in.token_ids(next++);
    if (token >= static_cast<uint32_t>(vocab_size))
      return Malformed("token_ids", token, absl::StrCat("less than ", vocab_size));
    out->slices[i].sampled = true;
    out->slices[i].token.token = static_cast<TokenId>(token);
  }
  return absl::OkStatus();
}

absl::Status CheckCandidateColumns(const v1::StepResult& in, const ExpectedResult& expected) {
  if (in.candidate_lengths_size() != expected.num_candidate_lists) {
    return Malformed("candidate_lengths: length", in.candidate_lengths_size(),
                     absl::StrCat(expected.num_candidate_lists));
  }
  uint64_t num_candidates = 0;
  for (const uint32_t length : in.candidate_lengths()) num_candidates += length;
  if (num_candidates != static_cast<uint64_t>(in.candidate_token_ids_size()))
    return Malformed("candidate_token_ids: length", in.candidate_token_ids_size(), absl::StrCat(num_candidates));
  if (num_candidates != static_cast<uint64_t>(in.candidate_logprobs_size()))
    return Malformed("candidate_logprobs: length", in.candidate_logprobs_size(), absl::StrCat(num_candidates));
  return absl::OkStatus();
}

// One list, from entry `first` on.
absl::Status DecodeCandidateList(const v1::StepResult& in, int first, int length, int vocab_size,
                                 std::vector<TokenLogprob>* out) {
  out->reserve(length);
  for (int i = first; i < first + length; ++i) {
    const uint32_t token = in.candidate_token_ids(i);
    const float logprob = in.candidate_logprobs(i);
    if (token >= static_cast<uint32_t>(vocab_size))
      return Malformed("candidate_token_ids", token, absl::StrCat("less than ", vocab_size));
    if (!std::isfinite(logprob)) return Malformed("candidate_logprobs: no finite number at", i, "one");
    if (!out->empty() && logprob > out->back().logprob)
      return Malformed("candidate_logprobs: a larger one at", i, "falling order");
    out->push_back({static_cast<TokenId>(token), logprob});
  }
  return absl::OkStatus();
}

absl::Status DecodeCandidates(const v1::StepResult& in, const ExpectedResult& expected, int vocab_size,
                              StepResult* out) {
  QUIRE_RETURN_IF_ERROR(CheckCandidateColumns(in, expected));
  int list = 0;
  int first = 0;
  for (size_t i = 0; i < expected.slices.size(); ++i) {
    const ExpectedResult::Slice& slice = expected.slices[i];
    if (!slice.lists_candidates()) continue;
    const uint32_t length = in.candidate_lengths(list++);
    if (length < 1 || length > static_cast<uint32_t>(slice.num_candidates))
      return Malformed("candidate_lengths", length, absl::StrCat("1 .. ", slice.num_candidates));
    out->slices[i].sampled = true;
    QUIRE_RETURN_IF_ERROR(DecodeCandidateList(in, first, length, vocab_size, &out->slices[i].candidates));
    first += length;
  }
  return absl::OkStatus();
}

absl::Status DecodeEmbeddings(const v1::StepResult& in, const ExpectedResult& expected, int embedding_size,
                              StepResult* out) {
  const int64_t num_values = int64_t{expected.num_embeddings} * embedding_size;
  if (in.embeddings_size() != num_values)
    return Malformed("embeddings: length", in.embeddings_size(), absl::StrCat(num_values));
  auto next = in.embeddings().begin();
  for (size_t i = 0; i < expected.slices.size(); ++i) {
    if (!expected.slices[i].embeds()) continue;
    SliceResult& slice = out->slices[i];
    slice.sampled = true;
    slice.embedding.assign(next, next + embedding_size);
    next += embedding_size;
    for (int k = 0; k < embedding_size; ++k) {
      if (!std::isfinite(slice.embedding[k])) return Malformed("embeddings: no finite number at", k, "one");
    }
  }
  return absl::OkStatus();
}

absl::Status DecodeScores(const v1::StepResult& in, const ExpectedResult& expected, int vocab_size, StepResult* out) {
  const bool any_asked = std::any_of(expected.slices.begin(), expected.slices.end(),
                                     [](const auto& slice) { return slice.draws() && slice.num_logprobs >= 0; });
  ScoreReader reader(in.scores(), "scores", vocab_size);
  if (!any_asked) return reader.CheckColumns(in.scores().logprobs_size() == 0 ? 0 : expected.num_drawn);
  QUIRE_RETURN_IF_ERROR(reader.CheckColumns(expected.num_drawn));
  for (size_t i = 0; i < expected.slices.size(); ++i) {
    if (!expected.slices[i].draws()) continue;
    QUIRE_RETURN_IF_ERROR(reader.Next(expected.slices[i].num_logprobs, &out->slices[i].token));
  }
  return absl::OkStatus();
}

absl::Status DecodePromptScores(const v1::StepResult& in, const ExpectedResult& expected, int vocab_size,
                                StepResult* out) {
  for (const v1::PromptScores& scores : in.prompt_scores()) {
    if (scores.slice() >= expected.slices.size())
      return Malformed("prompt_scores.slice", scores.slice(), absl::StrCat("less than ", expected.slices.size()));
    const ExpectedResult::Slice& slice = expected.slices[scores.slice()];
    std::vector<ScoredToken>& tokens = out->slices[scores.slice()].prompt_logprobs;
    if (!tokens.empty()) return Malformed("prompt_scores.slice", scores.slice(), "each slice once");
    ScoreReader reader(scores.scores(), "prompt_scores.scores", vocab_size);
    QUIRE_RETURN_IF_ERROR(reader.CheckColumns(static_cast<int>(slice.prompt_tokens.size())));
    for (const TokenId prompt_token : slice.prompt_tokens) {
      tokens.push_back({.token = prompt_token, .logprob = 0, .rank = 0, .top = {}});
      QUIRE_RETURN_IF_ERROR(reader.Next(slice.num_prompt_logprobs, &tokens.back()));
    }
  }
  for (size_t i = 0; i < expected.slices.size(); ++i) {
    const size_t due = expected.slices[i].prompt_tokens.size();
    if (out->slices[i].prompt_logprobs.size() != due)
      return Malformed("prompt_scores: none for slice", i, absl::StrCat(due));
  }
  return absl::OkStatus();
}

// Adds the sheets of one group to the tables of all slices.
absl::Status DecodeGroupTables(const v1::GroupTables& in, int blocks_per_sheet, StepResult* out) {
  const size_t num_rows = out->tables.size();
  const auto check_length = [](const char* column, uint64_t length, uint64_t limit) {
    return length == limit ? absl::OkStatus() : Malformed(column, length, absl::StrCat(limit));
  };
  QUIRE_RETURN_IF_ERROR(check_length("tables.groups.first_sheets: length", in.first_sheets_size(), num_rows));
  QUIRE_RETURN_IF_ERROR(check_length("tables.groups.num_sheets: length", in.num_sheets_size(), num_rows));
  uint64_t num_blocks = 0;
  for (const uint32_t num_sheets : in.num_sheets()) num_blocks += uint64_t{num_sheets} * blocks_per_sheet;
  QUIRE_RETURN_IF_ERROR(check_length("tables.groups.blocks: length", in.blocks_size(), num_blocks));
  auto next = in.blocks().begin();
  for (size_t i = 0; i < num_rows; ++i) {
    const uint32_t first = in.first_sheets(static_cast<int>(i));
    if (first > std::numeric_limits<int32_t>::max()) {
      return Malformed("tables.groups.first_sheets", first, "at most 2147483647");
    }
    RowTable::Sheets& sheets = out->tables[i].groups.emplace_back(RowTable::Sheets{static_cast<int>(first), {}});
    const uint64_t count = uint64_t{in.num_sheets(static_cast<int>(i))} * blocks_per_sheet;
    for (uint64_t k = 0; k < count; ++k) sheets.blocks.push_back(BlockId{*next++});
  }
  return absl::OkStatus();
}

absl::Status DecodeTables(const v1::RowTables& in, const ExpectedResult& expected, StepResult* out) {
  const size_t num_rows = expected.has_tables ? expected.slices.size() : 0;
  const auto check_length = [num_rows](const char* column, size_t length) {
    return length == num_rows ? absl::OkStatus() : Malformed(column, length, absl::StrCat(num_rows));
  };
  QUIRE_RETURN_IF_ERROR(check_length("tables.sequences: length", in.sequences_size()));
  QUIRE_RETURN_IF_ERROR(check_length("tables.computed_tokens: length", in.computed_tokens_size()));
  QUIRE_RETURN_IF_ERROR(check_length("tables.table_lengths: length", in.table_lengths_size()));
  uint64_t num_blocks = 0;
  for (const uint32_t length : in.table_lengths()) num_blocks += length;
  if (num_blocks != static_cast<uint64_t>(in.blocks_size()))
    return Malformed("tables.blocks: length", in.blocks_size(), absl::StrCat(num_blocks));
  out->tables.reserve(num_rows);
  auto next = in.blocks().begin();
  for (size_t i = 0; i < num_rows; ++i) {
    RowTable& table = out->tables.emplace_back();
    table.sequence = SequenceId{in.sequences(i)};
    table.num_computed = static_cast<int>(in.computed_tokens(i));
    for (uint32_t k = 0; k < in.table_lengths(i); ++k) table.blocks.push_back(BlockId{*next++});
  }
  const size_t num_groups = expected.blocks_per_sheet.size();
  if (static_cast<size_t>(in.groups_size()) != num_groups) {
    return Malformed("tables.groups: length", in.groups_size(), absl::StrCat(num_groups));
  }
  for (size_t i = 0; i < num_groups; ++i) {
    QUIRE_RETURN_IF_ERROR(DecodeGroupTables(in.groups(static_cast<int>(i)), expected.blocks_per_sheet[i], out));
  }
  return absl::OkStatus();
}

SequenceFailure::Reason ReasonFrom(v1::SequenceFailureReason reason) {
  switch (reason) {
    case v1::SEQUENCE_FAILURE_REASON_LOGITS_NOT_FINITE:
      return SequenceFailure::Reason::kLogitsNotFinite;
    case v1::SEQUENCE_FAILURE_REASON_GUIDE_TOO_EXPENSIVE:
      return SequenceFailure::Reason::kGuideTooExpensive;
    default:  // A worker of a later version may have others.
      return SequenceFailure::Reason::kUnknown;
  }
}

// Nothing else is due for a slice with a failure.
absl::Status DecodeFailures(const v1::StepResult& in, ExpectedResult* expected, StepResult* out) {
  for (const v1::SequenceFailure& failure : in.failures()) {
    if (failure.slice() >= expected->slices.size())
      return Malformed("failures.slice", failure.slice(), absl::StrCat("less than ", expected->slices.size()));
    std::optional<SequenceFailure>& read = out->slices[failure.slice()].failure;
    if (read.has_value()) return Malformed("failures.slice", failure.slice(), "each slice once");
    if (failure.message().size() > size_t{kMaxFailureMessageBytes}) {
      return Malformed("failures.message: length", failure.message().size(),
                       absl::StrCat("at most ", kMaxFailureMessageBytes));
    }
    read = {SequenceId{failure.sequence()}, ReasonFrom(failure.reason()), failure.message()};
    ExpectedResult::Slice& slice = expected->slices[failure.slice()];
    expected->num_drawn -= slice.draws() ? 1 : 0;
    expected->num_candidate_lists -= slice.lists_candidates() ? 1 : 0;
    expected->num_embeddings -= slice.embeds() ? 1 : 0;
    slice.sample = false;
    slice.prompt_tokens.clear();
  }
  return absl::OkStatus();
}

// A slice whose draw is postponed owes the scores of the prompt, and nothing else.
absl::Status DecodePostponed(const v1::StepResult& in, ExpectedResult* expected, StepResult* out) {
  for (const uint32_t index : in.postponed_slices()) {
    if (index >= expected->slices.size())
      return Malformed("postponed_slices", index, absl::StrCat("less than ", expected->slices.size()));
    ExpectedResult::Slice& slice = expected->slices[index];
    if (!slice.sample || slice.pools)
      return Malformed("postponed_slices", index, "each slice that samples and has not failed, once");
    out->slices[index].is_postponed = true;
    expected->num_drawn -= slice.draws() ? 1 : 0;
    expected->num_candidate_lists -= slice.lists_candidates() ? 1 : 0;
    slice.sample = false;
  }
  return absl::OkStatus();
}

// The counts of a description, each within 1 .. limit.
absl::Status CheckRange(absl::string_view field, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("worker describes ", field, " ", value, ", expected ", min, " .. ", max));
}

absl::Status BadGroup(int index, absl::string_view field, uint64_t value, absl::string_view expected) {
  return absl::FailedPreconditionError(
      absl::StrCat("worker describes groups[", index, "].", field, " ", value, ", expected ", expected));
}

absl::Status DecodeGroup(const v1::CacheGroup& in, int index, int block_size, CacheGroup* out) {
  const bool is_window = in.retention() == v1::CACHE_RETENTION_WINDOW;
  if (!is_window && in.retention() != v1::CACHE_RETENTION_ALL)
    return BadGroup(index, "retention", in.retention(), "1 or 2");
  const uint32_t width = in.blocks_per_sheet(), window = in.window_tokens();
  const uint32_t most_blocks = index == 0 ? 1 : kMaxBlocksPerSheet;
  constexpr uint32_t kMostTokens = 1 << 30;
  if (in.tokens_per_sheet() != static_cast<uint32_t>(block_size)) {
    return BadGroup(index, "tokens_per_sheet", in.tokens_per_sheet(),
                    absl::StrCat("block_size, which is ", block_size));
  }
  if (width < 1 || width > most_blocks) {
    return BadGroup(index, "blocks_per_sheet", width, absl::StrCat("1 .. ", most_blocks));
  }
  if (is_window ? window < 1 || window > kMostTokens : window != 0) {
    return BadGroup(index, "window_tokens", window, is_window ? absl::StrCat("1 .. ", kMostTokens) : "0");
  }
  *out = {.window_tokens = static_cast<int>(window), .blocks_per_sheet = static_cast<int>(width)};
  return absl::OkStatus();
}

absl::Status DecodeGroups(const v1::DescribeResponse& in, WorkerDescription* out) {
  const uint64_t version = in.groups().empty() ? kWorkerProtocolVersion : kGroupsProtocolVersion;
  QUIRE_RETURN_IF_ERROR(CheckRange("protocol_version", in.protocol_version(), version, version));
  if (in.groups().empty()) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(CheckRange("groups: length", in.groups_size(), 1, kMaxCacheGroups));
  out->groups.resize(in.groups_size());
  for (int i = 0; i < in.groups_size(); ++i) {
    QUIRE_RETURN_IF_ERROR(DecodeGroup(in.groups(i), i, in.block_size(), &out->groups[i]));
  }
  // Block tables keep all tokens.
  if (out->groups[0].window_tokens > 0) return BadGroup(0, "retention", in.groups(0).retention(), "1");
  return absl::OkStatus();
}

// A worker of a later version may have other kinds. Its model then gives no embeddings here.
absl::StatusOr<ModelPooling> DecodePooling(const v1::ModelPooling& in) {
  constexpr uint64_t kMaxEmbeddingSize = 1 << 16;
  if (in.refusal().size() > size_t{kMaxFailureMessageBytes}) {
    return absl::FailedPreconditionError(absl::StrCat("worker describes pooling.refusal with ", in.refusal().size(),
                                                      " bytes, expected at most ", kMaxFailureMessageBytes));
  }
  for (const Pooling kind : {Pooling::kLastToken, Pooling::kMean, Pooling::kFirstToken}) {
    if (in.kind() != KindOf(kind)) continue;
    QUIRE_RETURN_IF_ERROR(CheckRange("pooling.embedding_size", in.embedding_size(), 1, kMaxEmbeddingSize));
    return ModelPooling{kind, in.normalizes(), static_cast<int>(in.embedding_size()), ""};
  }
  ModelPooling none;
  if (!in.refusal().empty()) none.refusal = in.refusal();
  return none;
}

absl::Status DecodePlace(const v1::RankPlace& in, WorkerDescription* out) {
  QUIRE_RETURN_IF_ERROR(CheckRange("place.size", in.size(), 1, kMaxRanks));
  QUIRE_RETURN_IF_ERROR(CheckRange("place.rank", in.rank(), 0, in.size() - 1));
  QUIRE_RETURN_IF_ERROR(CheckRange("place.group_id: length", in.group_id().size(), 1, kMaxGroupIdBytes));
  QUIRE_RETURN_IF_ERROR(
      CheckRange("place.transport_address: length", in.transport_address().size(), 1, kMaxTransportAddressBytes));
  if (in.addresses_size() > 0) {
    QUIRE_RETURN_IF_ERROR(CheckRange("place.addresses: length", in.addresses_size(), in.size(), in.size()));
  }
  for (const std::string& address : in.addresses()) {
    if (SplitHostPort(address)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("worker describes place.addresses with \"", absl::CHexEscape(address), "\", expected host:port"));
  }
  out->place = {.group_id = in.group_id(),
                .rank = static_cast<int>(in.rank()),
                .size = static_cast<int>(in.size()),
                .transport_address = in.transport_address(),
                .addresses = {in.addresses().begin(), in.addresses().end()}};
  if (!in.has_weights()) return absl::OkStatus();
  const v1::TensorDigests& weights = in.weights();
  const uint64_t count = weights.names_size();
  QUIRE_RETURN_IF_ERROR(CheckRange("place.weights.digests: length", weights.digests_size(), count, count));
  out->weights.emplace(weights.text());
  for (int i = 0; i < weights.names_size(); ++i) out->weights->Set(weights.names(i), weights.digests(i));
  return absl::OkStatus();
}

}  // namespace

ExpectedResult PlanEncoder::Encode(const StepPlan& plan, v1::StepPlan* out) {
  out->Clear();
  out->set_step(Value(plan.step));
  out->set_wants_tables(plan.wants_tables);
  EncodeMoves(plan, out);
  for (const RowId row : plan.end_rows) out->add_end_rows(Value(row));
  EncodeVocabulary(plan, out);
  for (const SequenceStart& start : plan.starts) EncodeStart(start, out->add_starts());
  for (const SequenceFork& fork : plan.forks) EncodeFork(fork, out);
  for (const TokenAppend& append : plan.appends) {
    out->add_append_rows(Value(append.row));
    out->add_append_token_ids(append.token);
  }
  for (const RecordChange& change : plan.records) {
    std::string record = RowRecordOf(change);
    if (record.empty()) continue;
    out->add_record_rows(Value(change.row));
    out->add_records(std::move(record));
  }

  ExpectedResult expected;
  expected.step = plan.step;
  for (size_t i = 1; plan.wants_tables && i < groups_.size(); ++i) {
    expected.blocks_per_sheet.push_back(groups_[i].blocks_per_sheet);
  }
  expected.has_tables = plan.wants_tables;
  if (answers_ == Answers::kResults) expected.slices.reserve(plan.slices.size());
  std::string* samples = out->mutable_slice_samples();
  for (const SequenceSlice& slice : plan.slices) {
    out->add_slice_rows(Value(slice.row));
    out->add_slice_first_positions(slice.first_position);
    out->add_slice_num_tokens(slice.num_tokens);
    out->add_slice_first_changed_blocks(slice.first_changed_block);
    out->add_slice_tail_lengths(slice.block_tail.size());
    for (const BlockId block : slice.block_tail) out->add_block_tails(Value(block));
    samples->push_back(slice.sample ? 1 : 0);
    if (answers_ == Answers::kDigests) continue;
    expected.slices.push_back(Expect(slice));
    expected.num_drawn += expected.slices.back().draws() ? 1 : 0;
    expected.num_candidate_lists += expected.slices.back().lists_candidates() ? 1 : 0;
    expected.num_embeddings += expected.slices.back().embeds() ? 1 : 0;
  }
  for (const SheetChange& change : plan.sheet_changes) {
    out->add_change_slices(change.slice);
    out->add_change_groups(change.group);
    out->add_change_first_sheets(change.first_sheet);
    out->add_change_num_sheets(change.num_sheets);
    for (const BlockId block : change.blocks) out->add_change_blocks(Value(block));
  }
  return expected;
}

void PlanEncoder::EncodeVocabulary(const StepPlan& plan, v1::StepPlan* out) {
  if (has_sent_vocabulary_) return;
  const auto guided = std::find_if(plan.starts.begin(), plan.starts.end(),
                                   [](const SequenceStart& start) { return start.sampling.guide != nullptr; });
  if (guided == plan.starts.end()) return;
  has_sent_vocabulary_ = true;
  const GuideVocabulary& vocabulary = *guided->sampling.guide->vocabulary;
  out->mutable_vocabulary()->set_bytes(vocabulary.bytes);
  out->mutable_vocabulary()->mutable_lengths()->Add(vocabulary.lengths.begin(), vocabulary.lengths.end());
  CopyTokens(vocabulary.end_tokens, out->mutable_vocabulary()->mutable_end_token_ids());
}

void PlanEncoder::EncodeStart(const SequenceStart& start, v1::SequenceStart* out) {
  out->set_row(Value(start.row));
  out->set_sequence(Value(start.sequence));
  out->set_sample_index(start.sample_index);
  out->set_prompt_length(start.prompt_length);
  CopyTokens(start.tokens, out->mutable_token_ids());
  EncodeSampling(start.sampling, out->mutable_sampling());
  if (!start.guide_owner.empty()) out->mutable_sampling()->set_guide_owner(start.guide_owner);
  if (start.cache_root.has_value()) {
    if (std::string root = NameOf(*start.cache_root); root.size() <= size_t{kMaxCacheRootBytes}) {
      out->set_cache_root(std::move(root));
    }
  }
  if (start.record != nullptr) out->set_record(RowRecordOf(start));
  if (!start.scores.empty()) EncodeScores(start.scores, out->mutable_scores());
  if (!start.prompt_scores.empty()) EncodeScores(start.prompt_scores, out->mutable_prompt_scores());
  if (answers_ == Answers::kDigests) return;
  Row& row = RowOf(start.row);
  row = {start.sampling.num_logprobs,
         start.sampling.num_prompt_logprobs,
         {},
         start.sampling.num_candidates,
         start.sampling.pooling != Pooling::kNone};
  if (row.num_prompt_logprobs < 0) return;
  row.prompt.assign(start.tokens.begin(), start.tokens.begin() + start.prompt_length);
}

void PlanEncoder::EncodeFork(const SequenceFork& fork, v1::StepPlan* out) {
  out->add_fork_rows(Value(fork.row));
  out->add_fork_parents(Value(fork.parent));
  out->add_fork_sequences(Value(fork.sequence));
  out->add_fork_sample_indices(fork.sample_index);
  if (answers_ == Answers::kDigests) return;
  Row& row = RowOf(fork.row);
  QUIRE_CHECK_LT(Value(fork.parent), rows_.size());
  row = rows_[Value(fork.parent)];
}

void PlanEncoder::AdoptRow(const WorkerInventory::Row& in) {
  Row& row = RowOf(in.row);
  row = {in.num_logprobs, in.num_prompt_logprobs, {}, in.num_candidates};
  if (row.num_prompt_logprobs >= 0) row.prompt.assign(in.tokens.begin(), in.tokens.begin() + in.prompt_length);
}

PlanEncoder::Row& PlanEncoder::RowOf(RowId id) {
  if (Value(id) >= rows_.size()) rows_.resize(Value(id) + 1);
  return rows_[Value(id)];
}

ExpectedResult::Slice PlanEncoder::Expect(const SequenceSlice& slice) const {
  QUIRE_CHECK_LT(Value(slice.row), rows_.size());
  const Row& row = rows_[Value(slice.row)];
  ExpectedResult::Slice expected{slice.sample, row.num_logprobs,   row.num_prompt_logprobs,
                                 {},           row.num_candidates, row.pools};
  // Each token of the slice says something about the next position, as far as that lies in the prompt.
  const int begin = slice.first_position + 1;
  const int end = std::min<int>(begin + slice.num_tokens, static_cast<int>(row.prompt.size()));
  if (begin < end) expected.prompt_tokens.assign(row.prompt.begin() + begin, row.prompt.begin() + end);
  return expected;
}

absl::StatusOr<StepResult> DecodeStepResult(const v1::StepResult& in, ExpectedResult expected, int vocab_size,
                                            int embedding_size) {
  if (in.step() != Value(expected.step)) return Malformed("step", in.step(), absl::StrCat(Value(expected.step)));
  StepResult out{.step = expected.step, .slices = std::vector<SliceResult>(expected.slices.size())};
  QUIRE_RETURN_IF_ERROR(DecodeFailures(in, &expected, &out));
  QUIRE_RETURN_IF_ERROR(DecodePostponed(in, &expected, &out));
  QUIRE_RETURN_IF_ERROR(DecodeTokens(in, expected, vocab_size, &out));
  QUIRE_RETURN_IF_ERROR(DecodeCandidates(in, expected, vocab_size, &out));
  QUIRE_RETURN_IF_ERROR(DecodeEmbeddings(in, expected, embedding_size, &out));
  QUIRE_RETURN_IF_ERROR(DecodeScores(in, expected, vocab_size, &out));
  QUIRE_RETURN_IF_ERROR(DecodePromptScores(in, expected, vocab_size, &out));
  QUIRE_RETURN_IF_ERROR(DecodeTables(in.tables(), expected, &out));
  out.digest = in.digest();
  return out;
}

absl::StatusOr<StepResult> DecodeRankResult(const v1::StepResult& in, StepId expected) {
  if (in.step() != Value(expected)) return Malformed("step", in.step(), absl::StrCat(Value(expected)));
  v1::StepResult alone;
  alone.set_step(in.step());
  alone.set_digest(in.digest());
  alone.set_duration_us(in.duration_us());
  const uint64_t num_bytes = in.ByteSizeLong();
  if (num_bytes != alone.ByteSizeLong()) {
    return Malformed("size of a result that is a digest", num_bytes, absl::StrCat(alone.ByteSizeLong()));
  }
  return StepResult{.step = expected, .slices = {}, .digest = in.digest()};
}

absl::StatusOr<WorkerDescription> DecodeDescription(const v1::DescribeResponse& in) {
  constexpr uint64_t kMaxInt = std::numeric_limits<int32_t>::max();
  constexpr uint64_t kMaxCount = 1 << 30;
  QUIRE_RETURN_IF_ERROR(
      CheckRange("protocol_version", in.protocol_version(), kWorkerProtocolVersion, kGroupsProtocolVersion));
  QUIRE_RETURN_IF_ERROR(CheckRange("vocab_size", in.vocab_size(), 1, kMaxInt));
  QUIRE_RETURN_IF_ERROR(CheckRange("max_context_tokens", in.max_context_tokens(), 2, kMaxCount));
  QUIRE_RETURN_IF_ERROR(CheckRange("block_size", in.block_size(), 1, kMaxWorkerBlockSize));
  QUIRE_RETURN_IF_ERROR(CheckRange("num_blocks", in.num_blocks(), 1, kMaxWorkerBlocks));
  QUIRE_RETURN_IF_ERROR(CheckRange("num_host_blocks", in.num_host_blocks(), 0, kMaxWorkerBlocks));
  QUIRE_RETURN_IF_ERROR(CheckRange("max_sequences", in.max_sequences(), 1, kMaxWorkerRows));
  QUIRE_RETURN_IF_ERROR(CheckRange("max_tokens_per_step", in.max_tokens_per_step(), 1, kMaxCount));
  for (const uint32_t token : in.eos_token_ids())
    QUIRE_RETURN_IF_ERROR(CheckRange("eos_token_ids", token, 0, in.vocab_size() - 1));
  if (in.has_bos_token_id())
    QUIRE_RETURN_IF_ERROR(CheckRange("bos_token_id", in.bos_token_id(), 0, in.vocab_size() - 1));

  QUIRE_ASSIGN_OR_RETURN(const ModelPooling pooling, DecodePooling(in.pooling()));
  QUIRE_RETURN_IF_ERROR(
      CheckRange("last_epoch", in.last_epoch(), 0, std::numeric_limits<uint64_t>::max() - 1));  // There is a greater.

  WorkerDescription out;
  out.model_name = in.model_name();
  out.architecture = in.architecture();
  out.vocab_size = in.vocab_size();
  out.max_context_tokens = in.max_context_tokens();
  out.eos_token_ids.assign(in.eos_token_ids().begin(), in.eos_token_ids().end());
  if (in.has_bos_token_id()) out.bos_token_id = in.bos_token_id();
  for (const v1::ModelFile& file : in.tokenizer_files()) out.tokenizer_files.push_back({file.name(), file.content()});
  out.block_size = in.block_size();
  QUIRE_RETURN_IF_ERROR(DecodeGroups(in, &out));
  out.num_blocks = in.num_blocks();
  out.num_host_blocks = in.num_host_blocks();
  out.max_sequences = in.max_sequences();
  out.max_tokens_per_step = in.max_tokens_per_step();
  out.numerics_fingerprint = in.numerics_fingerprint();
  out.device = in.device();
  out.pooling = pooling;
  out.embeds_only = in.embeds_only();
  out.process_id = in.process_id();
  // No inventory tells the tables of other groups than group 0.
  out.keeps_rows = in.orphan_hold_ms() > 0 && out.groups.size() == 1;
  if (in.has_place()) QUIRE_RETURN_IF_ERROR(DecodePlace(in.place(), &out));
  out.last_epoch = in.last_epoch();
  out.has_session = in.has_session();
  return out;
}

}  // namespace quire
