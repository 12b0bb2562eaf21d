// SPDX-License-Identifier: Apache-2.0

#include "worker/description.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/worker_protocol.h"
#include "worker/model/fp8.h"

namespace quire {
namespace {

std::string RandomProcessId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::Hex(random(), absl::kZeroPad8));
  return id;
}

// Raise the number when a change of the formula changes the results. The products of rounded inputs are the same bits
// on every CPU, but the rest of the model is not, so the fingerprint still contains that of the backend.
std::string QuantizationNumerics(const Model& model, const Backend& backend) {
  const auto& [keeps_blocks, layers, output, int4_inputs] = model.weights.rounding;
  const bool has_inputs = layers == Quantization::kInt4 && int4_inputs != Int4Inputs::kInt8;
  std::string text;
  if (keeps_blocks && !model.config.quantization.blocks.types.empty()) absl::StrAppend(&text, "/blocks 1");
  if (layers != Quantization::kNone) {
    const bool rounds_inputs =
        backend.RoundsQuantizedInputs(FormatOf(layers, int4_inputs), ScaleShapeOf(model.config.quantization.fp8_block));
    const std::string inputs = !rounds_inputs ? "-a16" : has_inputs ? absl::StrCat("-", Name(int4_inputs)) : "";
    absl::StrAppend(&text, "/", Name(layers), inputs, " 1");
  }
  if (output) {
    const bool rounds_inputs = backend.RoundsQuantizedInputs(QuantizedFormat::kInt8, Fp8ScaleShape::kRows);
    absl::StrAppend(&text, "/output-int8", rounds_inputs ? "" : "-a16", " 1");
  }
  return text;
}

// Raise the number when a change of the rounding, or of attention over rounded K and V, changes the results.
std::string KvNumerics(KvType type) {
  return absl::StrCat("/kv-", Name(type), type == KvType::kInt8 ? " 1" : "");
}

// Every row may end its prompt in one step, so a result must have room for the embeddings of all rows.
v1::ModelPooling DescribePooling(const CheckpointPooling& pooling, int hidden_size, int max_sequences) {
  constexpr int64_t kMaxValues = kMaxWorkerMessageBytes / 2 / static_cast<int64_t>(sizeof(float));
  v1::ModelPooling out;
  if (int64_t{hidden_size} * max_sequences > kMaxValues) {
    out.set_refusal(absl::StrCat("embeddings of ", hidden_size, " values for ", max_sequences,
                                 " sequences are too many for one result, the limit is ", kMaxValues,
                                 " values (--max-sequences)"));
    return out;
  }
  if (pooling.kind == PoolingKind::kNone) {
    out.set_refusal(pooling.refusal.substr(0, kMaxFailureMessageBytes));
    return out;
  }
  out.set_kind(pooling.kind == PoolingKind::kMean         ? v1::POOLING_KIND_MEAN
               : pooling.kind == PoolingKind::kFirstToken ? v1::POOLING_KIND_FIRST_TOKEN
                                                          : v1::POOLING_KIND_LAST_TOKEN);
  out.set_normalizes(pooling.normalizes);
  out.set_embedding_size(static_cast<uint32_t>(hidden_size));
  return out;
}

v1::CacheGroup DescribeGroup(const CacheGroup& group, int block_size) {
  const bool keeps_all = group.window_tokens == 0;
  v1::CacheGroup out;
  out.set_name(keeps_all ? "full" : absl::StrCat("window ", group.window_tokens));
  out.set_tokens_per_sheet(block_size);
  out.set_blocks_per_sheet(group.blocks_per_sheet);
  out.set_retention(keeps_all ? v1::CACHE_RETENTION_ALL : v1::CACHE_RETENTION_WINDOW);
  out.set_window_tokens(group.window_tokens);
  return out;
}

// A rank of a simulated device has the whole model, whose fingerprint is known.
v1::RankPlace DescribePlace(const RankPlace& place, const Model& model) {
  v1::RankPlace out;
  out.set_group_id(place.group_id);
  out.set_rank(place.rank);
  out.set_size(place.size);
  out.mutable_addresses()->Assign(place.addresses.begin(), place.addresses.end());
  if (!model.weights.fingerprint.empty()) return out;
  out.mutable_weights()->set_text(model.weights.digests.text());
  for (const auto& [name, digest] : model.weights.digests.digests()) {
    out.mutable_weights()->add_names(name);
    out.mutable_weights()->add_digests(digest);
  }
  return out;
}

}  // namespace

v1::DescribeResponse MakeDescription(const std::string& model_name, const Model& model, const Backend& backend,
                                     const KvLayout& layout, const WorkerLimits& limits, const RankPlace* place) {
  v1::DescribeResponse description;
  const bool keeps_all = limits.groups == WorkerLimits{}.groups;
  description.set_protocol_version(keeps_all ? kWorkerProtocolVersion : kGroupsProtocolVersion);
  description.set_model_name(model_name);
  description.set_architecture(model.config.architecture);
  description.set_vocab_size(limits.vocab_size);
  description.set_max_context_tokens(limits.max_context_tokens);
  for (TokenId token : model.config.eos_token_ids) description.add_eos_token_ids(token);
  if (model.config.bos_token_id >= 0) description.set_bos_token_id(model.config.bos_token_id);
  for (const TokenizerFile& file : model.tokenizer_files) {
    v1::ModelFile* added = description.add_tokenizer_files();
    added->set_name(file.name);
    added->set_content(file.contents);
  }
  description.set_block_size(limits.block_size);
  description.set_num_blocks(limits.num_blocks);
  description.set_num_host_blocks(limits.num_host_blocks);
  description.set_block_bytes(layout.block_bytes_all_layers());
  description.set_max_sequences(limits.max_sequences);
  description.set_max_tokens_per_step(limits.max_tokens_per_step);
  description.set_numerics_fingerprint(absl::StrCat(model.weights.fingerprint, "/", backend.NumericsFingerprint(),
                                                    QuantizationNumerics(model, backend), KvNumerics(layout.type)));
  description.set_device(backend.Description());
  description.set_embeds_only(model.config.lacks_output);
  *description.mutable_pooling() = DescribePooling(model.pooling, model.config.hidden_size, limits.max_sequences);
  description.set_process_id(RandomProcessId());
  for (const CacheGroup& group : limits.groups) {
    if (!keeps_all) *description.add_groups() = DescribeGroup(group, limits.block_size);
  }
  if (place != nullptr) *description.mutable_place() = DescribePlace(*place, model);
  return description;
}

std::string LayoutId(const v1::DescribeResponse& description) {
  return absl::StrCat(description.numerics_fingerprint(), "/block-", description.block_size());
}

}  // namespace quire
