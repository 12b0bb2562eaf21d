// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_STREAM_POSITION_H_
#define QUIRE_GATEWAY_OPENAI_STREAM_POSITION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Says how far a client has read a stream that can be resumed, as the id of a server-sent event. The id has everything
// that the manager needs to continue, so that any gateway can resume the stream: the resume token, and for each sample
// its index and its next position, then "c" and the position at which its numerics have changed, if they have, and "f"
// if the sample has ended. An example is "TOKEN:0.57,1.60c41f". The id of a chat has "chat." before that, because its
// events differ from the events of a completion.
class StreamPosition {
 public:
  // Reads an id. Returns nothing when it is none, or when it is one of the other interface.
  static std::optional<StreamPosition> Parse(absl::string_view id, bool is_chat);

  // The client receives a response.
  void Note(const v1::GenerateResponse& response);

  // False before the manager has sent a resume token, or if it lets no request outlive its call.
  bool CanResume() const { return !token_.empty(); }
  // REQUIRES: CanResume().
  std::string Id(bool is_chat) const;

  // Returns a request for what follows this position.
  v1::ResumeRequest Resume() const;

  // Returns whether the client has received anything of the sample.
  bool HasBegun(uint32_t index) const { return samples_.contains(index); }

 private:
  std::string token_;
  std::map<uint32_t, v1::ReceivedSample> samples_;  // The key is the index.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_STREAM_POSITION_H_
