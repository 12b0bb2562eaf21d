// SPDX-License-Identifier: Apache-2.0

// Prints a story, with the client library as an application would use it.

#include <cstdio>
#include <memory>

#include "quire/client.h"
#include "quire/endpoint.h"

int Tell(const char* endpoint, const char* prompt) {
  if (const absl::Status valid = quire::CheckEndpoint(endpoint); !valid.ok()) {
    std::fprintf(stderr, "%s\n", valid.ToString().c_str());
    return 2;
  }
  quire::Client client(quire::ClientOptions{.endpoint = endpoint});
  quire::v1::GenerateRequest request;
  request.set_text(prompt);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(40);
  const std::unique_ptr<quire::GenerateStream> stream = client.Generate(request, absl::Minutes(2));
  for (quire::v1::GenerateResponse response; stream->Next(&response);) {
    std::fputs(response.text_delta().c_str(), stdout);
  }
  if (const absl::Status end = stream->Finish(); !end.ok()) {
    std::fprintf(stderr, "%s\n", end.ToString().c_str());
    return 1;
  }
  return 0;
}
