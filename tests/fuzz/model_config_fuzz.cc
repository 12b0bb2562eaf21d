// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "worker/model/config.h"

// Input: config.json. A line "=== generation_config.json" may follow, and then that file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kSeparator = "\n=== generation_config.json\n";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find(kSeparator);
  const std::string_view config_json = input.substr(0, end);
  const std::string_view generation_json = end == input.npos ? "" : input.substr(end + kSeparator.size());
  const auto config = quire::ParseModelConfig(config_json, generation_json);
  if (!config.ok()) {
    const std::string message(config.status().message());
    QUIRE_CHECK(!message.empty() && message.find('\n') == message.npos) << message;
    return 0;
  }
  QUIRE_CHECK(config->hidden_size > 0 && config->num_layers > 0 && config->head_dim > 0 && config->vocab_size > 0);
  QUIRE_CHECK(config->num_kv_heads > 0 && config->num_heads % config->num_kv_heads == 0);
  QUIRE_CHECK(static_cast<int>(config->layers.size()) == config->num_layers);
  QUIRE_CHECK(config->qkv_rows() > 0);
  for (const quire::TokenId token : config->eos_token_ids) QUIRE_CHECK(token >= 0 && token < config->vocab_size);
  QUIRE_CHECK(!quire::Summary(*config).empty());
  return 0;
}
