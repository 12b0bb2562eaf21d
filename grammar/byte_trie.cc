#include "grammar/byte_trie.h"

#include <algorithm>

namespace quire::grammar {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, TokenId>> texts) {
  std::erase_if(texts, [](const auto& text) { return text.first.empty() || text.first.size() > kMaxTextBytes; });
  std::sort(texts.begin(), texts.end());
  std::vector<int32_t> path;  // The nodes of the last text.
  std::string_view last;
  const auto close = [&](size_t depth) {
    while (path.size() > depth) {
      nodes_[static_cast<size_t>(path.back())].end = static_cast<int32_t>(nodes_.size());
      path.pop_back();
    }
  };
  for (const auto& [text, token] : texts) {
    const size_t common =
        static_cast<size_t>(std::mismatch(last.begin(), last.end(), text.begin(), text.end()).first - last.begin());
    close(common);
    for (size_t depth = common; depth < text.size(); ++depth) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(text[depth]),
                        .depth = static_cast<uint16_t>(depth + 1),
                        .end = 0,
                        .first_token = static_cast<int32_t>(tokens_.size())});
    }
    tokens_.push_back(token);
    max_depth_ = std::max(max_depth_, static_cast<int>(text.size()));
    last = text;
  }
  close(0);
}

}  // namespace quire::grammar
