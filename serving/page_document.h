// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_PAGE_DOCUMENT_H_
#define QUIRE_SERVING_PAGE_DOCUMENT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// A page for browsers in one document, which loads nothing.
struct PageDocument {
  std::string html;
  // Its Content-Security-Policy: no other script and style runs, and it talks to its own server only.
  std::string policy;
};

// `html` has the comments /*style.css*/ and /*page.js*/ where the style and the script belong.
PageDocument MakePageDocument(absl::string_view html, absl::string_view style, absl::string_view script);

}  // namespace quire

#endif  // QUIRE_SERVING_PAGE_DOCUMENT_H_
