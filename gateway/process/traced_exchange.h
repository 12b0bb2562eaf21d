// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_TRACED_EXCHANGE_H_
#define QUIRE_GATEWAY_PROCESS_TRACED_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/span.h"
#include "base/span_queue.h"
#include "gateway/web/web_server.h"

namespace quire {

// An exchange whose request is a span, which is exported when the answer is complete, or when nobody can complete it
// any more. The span is below the one that the client names. What the manager does for the request is below this span.
class TracedExchange : public WebExchange {
 public:
  // `spans` must outlive it. `route` is one of few.
  TracedExchange(SpanQueue* spans, std::shared_ptr<WebExchange> exchange, std::string route);
  ~TracedExchange() override;

  const WebRequest& request() const override { return exchange_->request(); }
  std::string traceparent() const override { return Traceparent(span_.context); }
  void Describe(SpanAttribute attribute) override;
  std::shared_ptr<const std::string> TakeBody() override { return exchange_->TakeBody(); }
  void OnGone(std::function<void()> gone) override { exchange_->OnGone(std::move(gone)); }
  void Keep(std::shared_ptr<void> something) override { exchange_->Keep(std::move(something)); }
  void Respond(WebResponse response) override;
  void BeginEvents() override;
  void Send(const std::string& text) override;
  void EndEvents() override;

 private:
  // Exports the span, unless that was done.
  void End();

  SpanQueue* const spans_;
  const std::shared_ptr<WebExchange> exchange_;
  const int64_t start_us_;  // Of the steady clock.
  Span span_;
  std::optional<int> code_;  // Once there is an answer.
  bool has_sent_ = false;    // A piece of a stream.
  bool is_over_ = false;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_TRACED_EXCHANGE_H_
