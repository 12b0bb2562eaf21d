// SPDX-License-Identifier: Apache-2.0

// Usage: mutate LIST NAME SOURCE OUTPUT. Writes OUTPUT, which is SOURCE with the bug NAME of LIST planted in it. Fails
// when the piece to be replaced is not there exactly once: then the list has to follow the source.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

namespace {

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns the text between two marks, without the line ends next to them.
std::string Between(const std::string& text, size_t begin, const std::string& end_mark, size_t* end) {
  *end = std::min(text.find(end_mark, begin), text.size());
  std::string piece = text.substr(begin, *end - begin);
  while (!piece.empty() && piece.back() == '\n') piece.pop_back();
  return piece;
}

int Fail(const char* list, const std::string& name, const char* what) {
  std::fprintf(stderr, "%s: %s: %s\n", list, name.c_str(), what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return Fail("mutate", "usage", "LIST NAME SOURCE OUTPUT are needed");
  const std::string list = ReadFile(argv[1]);
  const std::string name = argv[2];
  std::string source = ReadFile(argv[3]);
  const size_t header = list.find("\n=== " + name + " ");
  if (header == std::string::npos) return Fail(argv[1], name, "is not in the list");
  size_t end = 0;
  const std::string mark = "\n--->";
  const std::string old_piece = Between(list, list.find('\n', header + 1) + 1, mark, &end);
  const std::string new_piece = Between(list, end + mark.size() + 1, "\n=== ", &end);
  const size_t place = source.find(old_piece);
  if (place == std::string::npos) return Fail(argv[1], name, "the piece to be replaced is not in the source any more");
  if (source.find(old_piece, place + 1) != std::string::npos)
    return Fail(argv[1], name, "the piece is there more than once");
  source.replace(place, old_piece.size(), new_piece);
  std::ofstream(argv[4]) << source;
  return 0;
}
