// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/joint_description.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status.h"

namespace quire {
namespace {

// Compares what one rank describes with what rank 0 does.
class RankComparison {
 public:
  RankComparison(const WorkerDescription& first, const WorkerDescription& other, size_t rank)
      : first_(first), other_(other), rank_(rank) {}

  absl::Status Check() const {
    const WorkerDescription::RankPlace& place = other_.place;
    // The first check, because the group id is made of them.
    QUIRE_RETURN_IF_ERROR(Compare("place.addresses", AddressesText(first_), AddressesText(other_)));
    if (place.size != first_.place.size || place.group_id != first_.place.group_id ||
        place.rank != static_cast<int>(rank_)) {
      return Error(absl::StrCat("describes itself as rank ", place.rank, " of ", place.size, " of group '",
                                place.group_id, "'; expected was rank ", rank_, " of ", first_.place.size,
                                " of group '", first_.place.group_id, "'"));
    }
    if (!other_.process_id.empty() && other_.process_id == first_.process_id) {
      return Error("is the process of rank 0");
    }
    QUIRE_RETURN_IF_ERROR(Compare("model_name", first_.model_name, other_.model_name));
    QUIRE_RETURN_IF_ERROR(Compare("architecture", first_.architecture, other_.architecture));
    QUIRE_RETURN_IF_ERROR(Compare("numerics_fingerprint", first_.numerics_fingerprint, other_.numerics_fingerprint));
    QUIRE_RETURN_IF_ERROR(Compare("vocab_size", first_.vocab_size, other_.vocab_size));
    QUIRE_RETURN_IF_ERROR(Compare("max_context_tokens", first_.max_context_tokens, other_.max_context_tokens));
    QUIRE_RETURN_IF_ERROR(Compare("eos_token_ids", TokensText(first_), TokensText(other_)));
    QUIRE_RETURN_IF_ERROR(Compare("bos_token_id", first_.bos_token_id.value_or(-1), other_.bos_token_id.value_or(-1)));
    QUIRE_RETURN_IF_ERROR(Compare("block_size", first_.block_size, other_.block_size));
    QUIRE_RETURN_IF_ERROR(Compare("groups", GroupsText(first_), GroupsText(other_)));
    QUIRE_RETURN_IF_ERROR(
        Compare("pooling.embedding_size", first_.pooling.embedding_size, other_.pooling.embedding_size));
    return Compare("embeds_only", int{first_.embeds_only}, int{other_.embeds_only});
  }

 private:
  static std::string TokensText(const WorkerDescription& worker) { return absl::StrJoin(worker.eos_token_ids, ","); }
  static std::string AddressesText(const WorkerDescription& worker) {
    return absl::StrCat("[", absl::StrJoin(worker.place.addresses, ","), "]");
  }
  static std::string GroupsText(const WorkerDescription& worker) {
    return absl::StrJoin(worker.groups, ",", [](std::string* text, const CacheGroup& group) {
      absl::StrAppend(text, group.blocks_per_sheet, "/", group.window_tokens);
    });
  }
  absl::Status Error(absl::string_view message) const {
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank_, " ", message));
  }
  template <typename T>
  absl::Status Compare(absl::string_view field, const T& first, const T& other) const {
    if (first == other) return absl::OkStatus();
    return Error(absl::StrCat("describes ", field, " ", other, ", and rank 0 ", first, "; they must be equal"));
  }

  const WorkerDescription& first_;
  const WorkerDescription& other_;
  const size_t rank_;
};

// Puts the name of the weights in front of the fingerprint, if the ranks have digested parts of them.
absl::Status NameWeights(absl::Span<const WorkerDescription> ranks, WorkerDescription* joint) {
  joint->weights.reset();
  if (!ranks[0].weights.has_value()) return absl::OkStatus();
  TensorDigests weights = *ranks[0].weights;
  for (const WorkerDescription& rank : ranks.subspan(1)) {
    const absl::Status status =
        rank.weights.has_value() ? weights.Join(*rank.weights) : absl::InvalidArgumentError("a rank tells no digests");
    if (!status.ok()) return absl::FailedPreconditionError(status.message());
  }
  const std::string fingerprint = weights.fingerprint();
  if (fingerprint.empty()) return absl::FailedPreconditionError("no rank tells the digest of some tensor");
  joint->numerics_fingerprint = absl::StrCat(fingerprint, joint->numerics_fingerprint);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerDescription> JoinDescriptions(absl::Span<const WorkerDescription> ranks) {
  QUIRE_CHECK(!ranks.empty());
  WorkerDescription joint = ranks[0];
  if (joint.place.rank != 0 || joint.place.size != static_cast<int>(ranks.size())) {
    return absl::FailedPreconditionError(absl::StrCat("the first rank describes itself as rank ", joint.place.rank,
                                                      " of ", joint.place.size, "; expected was rank 0 of ",
                                                      ranks.size()));
  }
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const WorkerDescription& other = ranks[rank];
    QUIRE_RETURN_IF_ERROR(RankComparison(ranks[0], other, rank).Check());
    joint.num_blocks = std::min(joint.num_blocks, other.num_blocks);
    joint.num_host_blocks = std::min(joint.num_host_blocks, other.num_host_blocks);
    joint.max_sequences = std::min(joint.max_sequences, other.max_sequences);
    joint.max_tokens_per_step = std::min(joint.max_tokens_per_step, other.max_tokens_per_step);
    joint.last_epoch = std::max(joint.last_epoch, other.last_epoch);
    joint.has_session |= other.has_session;
    joint.keeps_rows &= other.keeps_rows;
  }
  QUIRE_RETURN_IF_ERROR(NameWeights(ranks, &joint));
  if (ranks.size() > 1) joint.device = absl::StrCat(ranks.size(), " x ", joint.device);
  return joint;
}

}  // namespace quire
