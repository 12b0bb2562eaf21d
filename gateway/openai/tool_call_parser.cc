// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/tool_call_parser.h"

#include <utility>

#include "gateway/openai/object_call_finder.h"
#include "gateway/openai/python_call_finder.h"
#include "gateway/openai/tagged_call_finder.h"

namespace quire {
namespace {

std::unique_ptr<CallFinder> NewFinder(const ToolCallOptions* options,
                                      std::function<std::string(size_t index)> make_id) {
  switch (SyntaxOf(options->format).shape) {
    case CallShape::kNamedObject:
    case CallShape::kParameters:
    case CallShape::kBareObject:
      return std::make_unique<TaggedCallFinder>(options, std::move(make_id));
    case CallShape::kPython:
      return std::make_unique<PythonCallFinder>(options, std::move(make_id));
    default:
      return std::make_unique<ObjectCallFinder>(options, std::move(make_id));
  }
}

}  // namespace

ToolCallParser::ToolCallParser(const ToolCallOptions* options, std::function<std::string(size_t index)> make_id)
    : options_(options), finder_(NewFinder(options, std::move(make_id))) {}

void ToolCallParser::Add(absl::string_view text, bool is_last, AnswerText* out) {
  finder_->Add(text, is_last, out);
  if (options_->is_forced) DropContent(out);
}

}  // namespace quire
