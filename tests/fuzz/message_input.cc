// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/message_input.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <cstring>
#include <string>

#include "tests/fuzz/message_mutator.h"
#include "tests/random.h"

namespace quire {
namespace {

// The errors of wrong texts are not written to the log.
class NoErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int /*line*/, google::protobuf::io::ColumnNumber /*column*/, const std::string& /*text*/) override {}
};

}  // namespace

bool ReadMessage(const uint8_t* data, size_t size, google::protobuf::Message* message) {
  // Otherwise protobuf writes a line for each text that is not UTF-8.
  [[maybe_unused]] static google::protobuf::LogHandler* const old_handler = google::protobuf::SetLogHandler(nullptr);
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (!bytes.starts_with('#')) return message->ParseFromString(bytes);
  NoErrors errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  return parser.ParseFromString(bytes, message);
}

size_t MutateMessage(uint8_t* data, size_t size, size_t max_size, unsigned int seed,
                     google::protobuf::Message* message) {
  Random random(seed);
  if (random.OneIn(4) || !ReadMessage(data, size, message)) return LLVMFuzzerMutate(data, size, max_size);
  MessageMutator mutator(&random);
  for (int i = random.Between(1, 4); i > 0; --i) mutator.Mutate(message);
  const std::string bytes = message->SerializeAsString();
  if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace quire
