// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/detokenizer.h"

#include "base/utf8.h"

namespace quire {

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, absl::Span<const TokenId> context,
                                           bool skip_special_tokens)
    : stream_(tokenizer.NewDecodeStream(skip_special_tokens)) {
  std::string settled;
  for (const TokenId token : context) stream_->Push(token, &settled);
  // What the context's decoder still keeps back belongs to the context too, provided that it is later decoded in the
  // same way.
  stream_->Clone()->Finish(&echo_);
}

StreamingDetokenizer& StreamingDetokenizer::operator=(const StreamingDetokenizer& other) {
  stream_ = other.stream_->Clone();
  echo_ = other.echo_;
  return *this;
}

std::string StreamingDetokenizer::Push(TokenId token) {
  std::string text;
  stream_->Push(token, &text);
  DropEcho(&text);
  return text;
}

std::string StreamingDetokenizer::Finish() {
  std::string text;
  stream_->Finish(&text);
  DropEcho(&text);
  return text;
}

void StreamingDetokenizer::DropEcho(std::string* text) {
  size_t num_dropped = 0;
  while (!echo_.empty() && num_dropped < text->size()) {
    const size_t size = Utf8Length((*text)[num_dropped]);
    if (text->compare(num_dropped, size, echo_, 0, size) != 0) {
      echo_.clear();
    } else {
      echo_.erase(0, size);
      num_dropped += size;
    }
  }
  text->erase(0, num_dropped);
}

}  // namespace quire
