// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_REQUESTS_RECEIVED_RESPONSES_H_
#define QUIRE_TESTS_KV_MANAGER_REQUESTS_RECEIVED_RESPONSES_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// What a client has of a stream, in one message for each index: joined texts, tokens and logprobs. The resume
// token of each call is left out.
class ReceivedResponses {
 public:
  // Returns false when a token is lost or doubled.
  bool Add(const v1::GenerateResponse& response) {
    v1::GenerateResponse& all = by_index_[response.index()];
    const bool joins = all.token_ids_size() == 0 || response.token_ids_size() == 0 ||
                       response.position() == all.position() + all.token_ids_size();
    const uint32_t position = all.token_ids_size() > 0 ? all.position() : response.position();
    const std::string text = all.text_delta() + response.text_delta();
    all.MergeFrom(response);
    all.set_position(position);
    all.set_text_delta(text);
    all.clear_resume_token();
    return joins;
  }

  google::protobuf::RepeatedPtrField<v1::ReceivedSample> Samples() const {
    google::protobuf::RepeatedPtrField<v1::ReceivedSample> samples;
    for (const auto& [index, response] : by_index_) {
      v1::ReceivedSample* const sample = samples.Add();
      sample->set_index(index);
      sample->set_next_position(response.position() + response.token_ids_size());
      sample->set_has_finish(response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED);
      if (response.has_numerics_changed_at()) sample->set_numerics_changed_at(response.numerics_changed_at());
    }
    return samples;
  }

  std::string Text() const {
    std::string text;
    for (const auto& [index, response] : by_index_) text += absl::StrCat(response.DebugString(), "\n");
    return text;
  }

 private:
  std::map<uint32_t, v1::GenerateResponse> by_index_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_REQUESTS_RECEIVED_RESPONSES_H_
