// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_EMBED_EXCHANGE_H_
#define QUIRE_GATEWAY_PROCESS_EMBED_EXCHANGE_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gateway/manager_link/manager_link.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/embed_call.h"
#include "gateway/process/answer_memory.h"
#include "gateway/process/body_reader.h"
#include "gateway/process/manager_wait.h"
#include "gateway/process/options.h"
#include "gateway/web/web_server.h"
#include "google/rpc/status.pb.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Leads one request for embeddings, an order of documents or scores from the manager to the client. A request with many
// texts makes several calls of the manager, one after the other. When the client leaves, the call of the manager ends.
// Lives as long as the manager or the client has something to say. Only the thread of the server uses it, except that
// another one may make the body of the answer.
class EmbedExchange : public std::enable_shared_from_this<EmbedExchange> {
 public:
  // The parts of the gateway, which must outlive it.
  struct Environment {
    const GatewayOptions* options;
    ManagerLink* link;
    BodyReader* bodies;
    AnswerMemory* memory;
  };

  static void Start(EmbedCall call, std::string authorization, std::shared_ptr<WebExchange> exchange,
                    const Environment& environment);

 private:
  EmbedExchange(EmbedCall call, std::string authorization, std::shared_ptr<WebExchange> exchange,
                const Environment& environment);

  void OnModel(const google::rpc::Status& status, const v1::GetModelResponse& model);
  // Sends the next inputs, or answers when there are none.
  void SendNext();
  void OnResponse(size_t num_inputs, const google::rpc::Status& status, const v1::EmbedResponse& response);
  void Answer();
  void OnGone();
  void Fail(const ApiError& error);
  // Moves the result out of reach of what comes later.
  bool End();

  const EmbedCall call_;
  const std::string authorization_;
  const std::shared_ptr<WebExchange> exchange_;
  const GatewayOptions* const options_;
  ManagerLink* const link_;
  BodyReader* const bodies_;
  const std::shared_ptr<AnswerMemory::Hold> memory_;
  const std::shared_ptr<void> hold_;  // Counts the bytes of the inputs.
  const ManagerWait wait_;
  std::chrono::steady_clock::time_point deadline_;
  size_t answer_bytes_ = 0;
  EmbedAnswer answer_;
  size_t max_inputs_per_call_ = 1;
  size_t next_ = 0;  // Inputs before this one were sent.
  ManagerLink::EmbedTicket ticket_;
  std::vector<std::shared_ptr<const v1::EmbedResponse>> responses_;
  bool is_over_ = false;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_EMBED_EXCHANGE_H_
