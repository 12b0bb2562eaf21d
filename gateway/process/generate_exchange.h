// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_GENERATE_EXCHANGE_H_
#define QUIRE_GATEWAY_PROCESS_GENERATE_EXCHANGE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/manager_link/manager_link.h"
#include "gateway/openai/call_answer.h"
#include "gateway/openai/forced_calls.h"
#include "gateway/openai/generate_call.h"
#include "gateway/openai/stream_position.h"
#include "gateway/process/answer_memory.h"
#include "gateway/process/body_reader.h"
#include "gateway/process/manager_wait.h"
#include "gateway/process/options.h"
#include "gateway/web/web_server.h"

namespace quire {

// Returns the answer for an error, in the form of the interface that has the path of the request.
WebResponse ResponseOf(const ApiError& error, const WebRequest& request);

// Answers with an error.
void RespondWith(const ApiError& error, WebExchange* exchange);

// Returns the traceparent for calls on behalf of the exchange, or "" if the client has sent a malformed one.
std::string ValidTraceparent(const WebExchange& exchange);

// Returns whose memory the answer of an exchange takes: the token's with --require-tokens, and otherwise the address's,
// because a client can make up tokens that nobody checks.
const std::string& CallerOf(const GatewayOptions& options, const std::string& authorization,
                            const WebExchange& exchange);

// Answers with a body, whose memory counts for the caller until the client has got it, or with an error if it has no
// room.
void RespondWith(std::string body, const std::string& caller, AnswerMemory* memory, WebExchange* exchange);

// Leads one request of completions, chats, messages, responses or scores from the manager to the client. When the
// client leaves, the requests of the manager end. When the manager is lost, its requests continue with the next one,
// and the client notices only a pause. Lives as long as the manager or the client has something to say. Only the thread
// of the server uses it.
class GenerateExchange : public std::enable_shared_from_this<GenerateExchange> {
 public:
  // The parts of the gateway, which must outlive it.
  struct Environment {
    const GatewayOptions* options;
    ManagerLink* link;
    WebServer* server;
    BodyReader* bodies;
    AnswerMemory* memory;
  };

  static void Start(GenerateCall call, std::string authorization, std::shared_ptr<WebExchange> exchange,
                    const Environment& environment);

 private:
  // The request of one prompt.
  struct Part {
    ManagerLink::Ticket ticket;
    StreamPosition position;  // The part of it that the manager has sent.
    CallPolicy policy;        // Says whether the stream is resumed.
    // How the manager or the call was lost, until the next call has brought something.
    std::optional<google::rpc::Status> loss = std::nullopt;
  };

  GenerateExchange(GenerateCall call, std::string authorization, std::shared_ptr<WebExchange> exchange,
                   const Environment& environment);

  void OnModel(const google::rpc::Status& status, const v1::GetModelResponse& model);
  // Returns an error when a prompt of tokens is longer than the context. The manager would say it as well, but sending
  // millions of tokens takes the server's thread too long.
  std::optional<ApiError> BeyondContext(const v1::GetModelResponse& model) const;
  // Returns what to look for in the answer of the model.
  AnswerSyntax SyntaxFor(const v1::GetModelResponse& model) const;
  // Makes the answer consist of calls, if the client has asked for that, and continues with `then`. Long schemas are
  // read on another thread.
  void ForceCalls(Thoughts thoughts, std::function<void()> then);
  // Continues when the answer's syntax and guide are known.
  void PreparePrompt(bool needs_prompt, const v1::GetModelResponse& model);
  // Starts the request of a chat, whose prompt is known.
  void OnPrompt(const google::rpc::Status& status, const v1::RenderChatResponse& prompt,
                const v1::GetModelResponse& model);
  // Sets max_tokens to what a conversation of so many tokens leaves in the context, or cuts it to that.
  void LimitTokens(uint32_t num_tokens, const v1::GetModelResponse& model);
  // Tells the answer the tokens of the prompts from this one on, and then starts the requests. REQUIRES: the client
  // asked for token ids of completions.
  void FindPromptTokens(size_t prompt);
  void StartRequests();
  void StartRequest(size_t prompt);
  // Makes the prompt of the next pair of texts that is to be scored, and starts its request.
  void StartNextPair();
  // Returns false, and has failed, when the answer has too many logprobs or takes too much memory.
  bool HasRoomForAnswer();
  // Resumes a stream, if the request names the last event that it has. Returns whether it does, or is wrong.
  bool ResumeIfAsked();
  void OnGone();
  void OnEntry(size_t prompt, const v1::GenerateBatchEntry& entry);
  // The names of the fields of one prompt's request, for errors.
  ApiNames NamesOf(size_t prompt) const;
  // A request has ended with an error. Returns whether it continues with another manager, or with the same one when
  // that is back. If the gateway has read too slowly, it continues at once, provided that the call has brought
  // something.
  bool GoesOnAfter(size_t prompt, const google::rpc::Status& end);
  CallPolicy NewPolicy() const;
  void ResumePart(size_t prompt);
  void Send(const std::string& events);
  void Finish();
  void RespondWithBody(std::string body);
  // Answers with an error, or ends the stream with it, and ends all requests.
  void Fail(const ApiError& error);
  void CancelAll();

  GenerateCall call_;
  const std::string authorization_;
  const std::shared_ptr<WebExchange> exchange_;
  const GatewayOptions* const options_;
  ManagerLink* const link_;
  WebServer* const server_;
  BodyReader* const bodies_;
  const std::shared_ptr<AnswerMemory::Hold> memory_;  // Of the answer.
  std::chrono::steady_clock::time_point deadline_;    // The whole answer is of no use behind it.
  const ManagerWait wait_;
  std::shared_ptr<void> hold_;  // Keeps the bytes of the requests counted until they are started.
  std::string id_;
  std::unique_ptr<CallAnswer> answer_;  // Once the model is known.
  std::vector<Part> parts_;             // Each prompt has a part.
  ToolCallFormat call_format_ = ToolCallFormat::kNone;
  const ReasoningSyntax* reasoning_ = &UsualReasoning();
  bool has_reasoning_ = false;    // The model may write thoughts.
  size_t num_begun_pairs_ = 0;    // Pairs whose prompts were or are being made.
  size_t num_started_pairs_ = 0;  // Pairs whose requests were started.
  size_t num_ended_ = 0;
  bool has_begun_ = false;  // The stream to the client.
  bool is_gone_ = false;    // The client has left, and may come back with another exchange.
  bool is_over_ = false;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_GENERATE_EXCHANGE_H_
