// SPDX-License-Identifier: Apache-2.0

#include "launcher/part.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/command_line.h"
#include "base/config_file.h"
#include "base/program_main.h"
#include "base/status.h"
#include "launcher/log_line.h"

namespace quire {
namespace {

// A log that has this size becomes the old one, so that two of them are kept.
constexpr size_t kMaxLogBytes = 16 << 20;
// A program that drains may need this long after that.
constexpr absl::Duration kStopMargin = absl::Seconds(5);

// Returns whether a user wants to see a line of a program that serves.
bool IsForUser(PartId id, const LogLine& line) {
  // The manager waits while the model is downloaded and loaded.
  if (id == kManager && absl::StrContains(line.message, " is not ready: ")) return false;
  if (line.level == 'W' || line.level == 'E') return true;
  if (id != kWorker) return false;
  // The worker's summary is indented.
  const bool is_summary = line.level == ' ' && absl::StartsWith(line.message, "  ");
  return is_summary || absl::StartsWith(line.message, "loading ") || absl::StartsWith(line.message, "loaded ");
}

}  // namespace

Part::Part(PartId id, const std::string& bin, const std::string& folder)
    : id_(id), path_(PathOf(bin, id)), log_path_(absl::StrCat(folder, "/", kPartNames[id].name, ".log")) {}

std::vector<std::string> Part::Command(const std::vector<std::string>& more) const {
  std::vector<std::string> argv = {path_};
  argv.insert(argv.end(), flags_.begin(), flags_.end());
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

absl::Status Part::Check(const std::vector<PartFlag>& flags) {
  user_flags_ = flags;
  std::map<std::string, std::string> sources;
  for (const PartFlag& flag : flags) {
    flags_.push_back(flag.text);
    sources[flag.name] = flag.source;
  }
  const FinishedProgram program = RunToEnd(Command({"--print-effective-config"}));
  const std::string text = absl::StrJoin(program.lines, "\n");
  if (program.exit_code != 0) {
    const std::string error = program.lines.empty() ? "" : ReadLogLine(program.lines.back()).message;
    const bool has_name = absl::StartsWith(error, absl::StrCat(kPartNames[id_].program, ": "));
    const absl::Status status =
        WithSources(InvalidArgument(has_name ? "" : absl::StrCat(kPartNames[id_].program, ": "), error), sources);
    return InvalidArgument(ForUser(status.message()));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries, ParseConfig(path_, text));
  for (const ConfigEntry& entry : entries) values_[entry.key] = absl::StrJoin(entry.values, ",");
  return absl::OkStatus();
}

const std::string& Part::Value(const std::string& flag) const {
  const auto value = values_.find(flag);
  QUIRE_CHECK(value != values_.end());
  return value->second;
}

void Part::Start(const std::vector<std::string>& more) {
  log_.reset(std::fopen(log_path_.c_str(), "we"));
  process_ = std::make_unique<ChildProcess>(Command(more), ChildProcess::Errors::kRead);
}

void Part::Read() {
  if (!is_started()) return;
  for (const std::string& line : process_->ReadLines()) Take(line);
}

void Part::Take(const std::string& line) {
  WriteLog(line);
  const LogLine read = ReadLogLine(line);
  if (read.message.empty()) return;
  last_line_ = read.message;
  if (std::optional<std::string> word = WordAfter("listening on ", read.message)) address_ = *std::move(word);
  if (std::optional<std::string> word = WordAfter("metrics on port ", read.message)) metrics_port_ = *std::move(word);
  if (id_ == kManager && absl::StrContains(read.message, " cannot be used: ")) refusal_ = read.message;
  if (absl::StartsWith(read.message, absl::StrCat(kPartNames[id_].program, ": "))) {
    error_ = read.message;  // It is told when the program has ended.
  } else if (IsForUser(id_, read)) {
    const std::string text(absl::StripLeadingAsciiWhitespace(read.message));
    std::fprintf(stderr, "%s: %s\n", name(), text.c_str());
  }
}

void Part::WriteLog(const std::string& line) {
  if (log_bytes_ > kMaxLogBytes) {
    std::rename(log_path_.c_str(), absl::StrCat(log_path_, ".old").c_str());
    log_.reset(std::fopen(log_path_.c_str(), "we"));
    log_bytes_ = 0;
  }
  if (log_ == nullptr) return;  // A full disk does not stop the service.
  std::fprintf(log_.get(), "%s\n", line.c_str());
  std::fflush(log_.get());
  log_bytes_ += line.size() + 1;
}

absl::Duration Part::StopTime() const {
  absl::Duration drain;
  absl::ParseDuration(Value("drain_timeout"), &drain);  // The program has checked it.
  return drain + kStopMargin;
}

absl::Status Part::WhyItEnded() const {
  const int exit_code = process_->exit_code();
  if (exit_code > 0 && !error_.empty()) {
    return {exit_code == kExitWrongUsage ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kUnavailable,
            ForUser(error_)};
  }
  return absl::InternalError(absl::StrCat(kPartNames[id_].program, ": ended with ", process_->HowItEnded(),
                                          last_line_.empty() ? "" : "; its last line: ", last_line_));
}

std::string Part::ForUser(absl::string_view error) const {
  return WithServeFlags(id_, error, FlagsInHelp(path_), user_flags_);
}

std::vector<KnownFlag> FlagsInHelp(const std::string& path) {
  std::vector<KnownFlag> flags;
  for (const absl::string_view line : RunToEnd({path, "--help"}).lines) {
    absl::string_view flag = line;
    if (!absl::ConsumePrefix(&flag, "  --")) continue;
    const bool is_switch = absl::EndsWith(flag, "=false") || absl::EndsWith(flag, "=true");
    flags.push_back({absl::StrReplaceAll(flag.substr(0, flag.find_first_of("=, ")), {{"-", "_"}}), is_switch});
  }
  return flags;
}

std::string PathOf(const std::string& bin, PartId id) {
  return absl::StrCat(bin, "/", kPartNames[id].program);
}

}  // namespace quire
