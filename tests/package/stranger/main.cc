// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

int Tell(const char* endpoint, const char* prompt);

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: tell ENDPOINT PROMPT\n", stderr);
    return 2;
  }
  return Tell(argv[1], argv[2]);
}
