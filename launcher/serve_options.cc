// SPDX-License-Identifier: Apache-2.0

#include "launcher/serve_options.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/config_file.h"
#include "base/listen_address.h"
#include "base/nearest_flag.h"
#include "base/status.h"

namespace quire {
namespace {

// These flags are short forms of flags of a program. --host and --port make --listen of the gateway.
struct ShortFlag {
  const char* name;
  PartId part;
  bool is_list;  // All of its values count, otherwise the last one.
};
constexpr ShortFlag kShortFlags[] = {{"device", kWorker, false},
                                     {"quantize", kWorker, false},
                                     {"kv_type", kWorker, false},
                                     {"served_model_name", kGateway, true},
                                     {"reranker", kGateway, false}};

// What `quire serve` itself decides, or what would make a program print something and end.
bool IsReserved(PartId part, absl::string_view name) {
  for (const absl::string_view ends : {"help", "version", "check_config", "print_effective_config", "explain_memory"}) {
    if (name == ends) return true;
  }
  if (part == kWorker) return name == "model" || name == "listen";
  return name == (part == kManager ? "workers" : "manager");
}

absl::Status CheckIsFree(PartId part, const PartFlag& flag, const std::string& written) {
  if (!IsReserved(part, flag.name)) return absl::OkStatus();
  return InvalidArgument("quire serve does not pass ", written, " on to ", kPartNames[part].program);
}

std::optional<PartId> PartOf(absl::string_view name) {
  for (int part = 0; part < kNumParts; ++part) {
    if (name == kPartNames[part].name) return static_cast<PartId>(part);
  }
  return std::nullopt;
}

// The arguments of a command line, by whom they are for.
struct Arguments {
  std::vector<const char*> own;
  std::array<std::vector<PartFlag>, kNumParts> of_parts;
  std::vector<std::string> models;
};

// Returns the flag in an argument such as "--worker.kv-bytes=4GiB".
std::optional<std::pair<PartId, PartFlag>> FlagOfPart(absl::string_view argument) {
  const size_t dot = argument.substr(0, argument.find('=')).find('.');
  if (!absl::StartsWith(argument, "--") || dot == absl::string_view::npos) return std::nullopt;
  const std::optional<PartId> part = PartOf(argument.substr(2, dot - 2));
  if (!part) return std::nullopt;
  const absl::string_view rest = argument.substr(dot + 1);
  const std::string name = absl::StrReplaceAll(rest.substr(0, rest.find('=')), {{"-", "_"}});
  const std::string typed(argument.substr(0, argument.find('=')));
  return std::pair(*part, PartFlag{name, absl::StrCat("--", rest), "flag", typed});
}

std::string PrefixedFlag(PartId part, absl::string_view name) {
  return absl::StrCat("--", kPartNames[part].name, ".", FlagAsTyped(name).substr(2));
}

// Appends the next argument to a flag of a program without "=", unless the flag is true or false.
absl::Status TakeValue(PartId part, absl::Span<const char* const> arguments, ListFlags list_flags, size_t* i,
                       PartFlag* flag) {
  if (absl::StrContains(flag->text, '=')) return absl::OkStatus();
  std::vector<std::string> names;
  for (const KnownFlag& known : list_flags(part)) {
    if (IsReserved(part, known.name)) continue;
    names.push_back(PrefixedFlag(part, known.name));
    if (known.name != flag->name) continue;
    if (known.is_switch) return absl::OkStatus();
    if (*i + 1 == arguments.size()) return InvalidArgument(flag->typed, " has no value");
    absl::StrAppend(&flag->text, "=", arguments[++*i]);
    return absl::OkStatus();
  }
  return InvalidArgument("there is no flag ", flag->typed, ";", DidYouMean(flag->typed, names));
}

absl::StatusOr<Arguments> SplitArguments(absl::Span<const char* const> arguments, ListFlags list_flags) {
  Arguments split;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const absl::string_view argument = arguments[i];
    if (!absl::StartsWith(argument, "-")) {
      split.models.emplace_back(argument);
    } else if (auto flag = FlagOfPart(argument); flag.has_value()) {
      QUIRE_RETURN_IF_ERROR(CheckIsFree(flag->first, flag->second, flag->second.typed));
      QUIRE_RETURN_IF_ERROR(TakeValue(flag->first, arguments, list_flags, &i, &flag->second));
      split.of_parts[flag->first].push_back(std::move(flag->second));
    } else {
      split.own.push_back(arguments[i]);
      // No flag of ours is true or false, so each has a value.
      if (!absl::StrContains(argument, '=') && i + 1 < arguments.size()) split.own.push_back(arguments[++i]);
    }
  }
  return split;
}

// Says which flags there are instead of `typed`, such as "--kv-bytes". Most often it is a flag of one of the programs.
absl::Status UnknownFlag(const Settings& settings, const std::string& typed, ListFlags list_flags) {
  std::map<std::string, std::vector<std::string>> written;  // By the name alone, such as "--kv-bytes".
  for (const std::string& name : settings.Names()) written[FlagAsTyped(name)].push_back(FlagAsTyped(name));
  const std::string own = absl::StrJoin(written, ", ", [](std::string* out, const auto& flag) { *out += flag.first; });
  for (int part = 0; part < kNumParts; ++part) {
    for (const KnownFlag& known : list_flags(static_cast<PartId>(part))) {
      if (IsReserved(static_cast<PartId>(part), known.name)) continue;
      written[FlagAsTyped(known.name)].push_back(PrefixedFlag(static_cast<PartId>(part), known.name));
    }
  }
  std::vector<std::string> known;
  for (const auto& [flag, forms] : written) known.push_back(flag);
  const std::string nearest = written.contains(typed) ? typed : NearestFlag(typed, known);
  if (!nearest.empty()) {
    return InvalidArgument("there is no flag ", typed, "; did you mean ", absl::StrJoin(written[nearest], " or "), "?");
  }
  return InvalidArgument("there is no flag ", typed, "; there are ", own,
                         ", and --worker.FLAG, --manager.FLAG and --gateway.FLAG for the flags of the programs");
}

absl::Status CheckOwnFlags(const Settings& settings, const std::vector<const char*>& own, ListFlags list_flags) {
  for (const absl::string_view argument : own) {
    const absl::string_view name = argument.substr(0, argument.find('='));
    if (!absl::StartsWith(name, "--")) continue;  // The value of a flag, or an error of ParseArguments.
    const std::string flag = absl::StrReplaceAll(name.substr(2), {{"-", "_"}});
    if (settings.Find(flag) == nullptr) return UnknownFlag(settings, FlagAsTyped(flag), list_flags);
  }
  return absl::OkStatus();
}

absl::StatusOr<PartFlag> FromEntry(PartId part, const ConfigEntry& entry) {
  for (const std::string& item : entry.values) {
    if (!entry.is_list || !absl::StrContains(item, ',')) continue;
    return InvalidArgument(entry.value_at, ": ", entry.key, " has the item '", item,
                           "', it must be text without a comma");
  }
  PartFlag flag{absl::StrReplaceAll(entry.key, {{"-", "_"}}), "", entry.value_at, ""};
  flag.typed = PrefixedFlag(part, flag.name);
  flag.text = absl::StrCat(FlagAsTyped(flag.name), "=", absl::StrJoin(entry.values, ","));
  QUIRE_RETURN_IF_ERROR(
      CheckIsFree(part, flag, absl::StrCat(kPartNames[part].name, ".", flag.name, " (", entry.key_at, ")")));
  return flag;
}

absl::Status ReadConfig(const std::string& path, ServeOptions* options) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<ConfigSection> sections, ReadConfigSections(path));
  for (const ConfigSection& section : sections) {
    const std::optional<PartId> part = PartOf(section.name);
    if (!part) {
      return InvalidArgument(section.name_at, ": unknown section ", section.name,
                             ", there are worker, manager and gateway");
    }
    for (const ConfigEntry& entry : section.entries) {
      QUIRE_ASSIGN_OR_RETURN(PartFlag flag, FromEntry(*part, entry));
      if (HasFlag(options->flags[*part], flag.name)) {
        return InvalidArgument(entry.key_at, ": ", section.name, ".", flag.name, " is given twice");
      }
      options->flags[*part].push_back(std::move(flag));
    }
  }
  return absl::OkStatus();
}

// Makes one flag of --host and --port. Without both, the gateway has its own default, which is the same.
absl::StatusOr<PartFlag> ListenFlagOf(const Arguments& arguments, const ServeFlags& own, bool has_host, bool has_port) {
  if (HasFlag(arguments.of_parts[kGateway], "listen")) {
    return absl::InvalidArgumentError("--gateway.listen is given as well as --host or --port, it must be one of them");
  }
  const bool is_bare_ipv6 = absl::StrContains(own.host, ':') && !absl::StartsWith(own.host, "[");
  const std::string address = absl::StrCat(is_bare_ipv6 ? absl::StrCat("[", own.host, "]") : own.host, ":", own.port);
  const char* const typed = !has_host ? "--port" : has_port ? "--host with --port" : "--host";
  return PartFlag{"listen", absl::StrCat("--listen=", address), "flag", typed};
}

absl::StatusOr<ServeOptions> MakeOptions(const Arguments& arguments, const ServeFlags& own,
                                         const std::vector<FlagValue>& values) {
  ServeOptions options;
  std::map<std::string, std::vector<std::string>, std::less<>> given;
  for (const FlagValue& value : values) given[value.setting->name].push_back(value.value);
  if (!own.config.empty()) QUIRE_RETURN_IF_ERROR(ReadConfig(own.config, &options));
  for (const ShortFlag& flag : kShortFlags) {
    const auto found = given.find(flag.name);
    if (found == given.end()) continue;
    const std::string value = flag.is_list ? absl::StrJoin(found->second, ",") : found->second.back();
    const std::string typed = FlagAsTyped(flag.name);
    options.flags[flag.part].push_back({flag.name, absl::StrCat(typed, "=", value), "flag", typed});
  }
  for (int part = 0; part < kNumParts; ++part) {
    const std::vector<PartFlag>& typed = arguments.of_parts[part];
    options.flags[part].insert(options.flags[part].end(), typed.begin(), typed.end());
  }
  const bool has_host = given.contains("host");
  const bool has_port = given.contains("port");
  if (has_host || has_port) {
    QUIRE_ASSIGN_OR_RETURN(options.flags[kGateway].emplace_back(), ListenFlagOf(arguments, own, has_host, has_port));
  }
  if (arguments.models.empty()) {
    return absl::InvalidArgumentError(
        "MODEL is missing: a folder, a GGUF file, or owner/name on the hub\n"
        "Usage: quire serve MODEL [flags]    for example: quire serve Qwen/Qwen3-0.6B\n"
        "       quire serve --help");
  }
  if (arguments.models.size() > 1) {
    return InvalidArgument("'", arguments.models[1], "' is a second MODEL after '", arguments.models[0], "'");
  }
  options.model = arguments.models[0];
  return options;
}

}  // namespace

Settings ServeSettings(ServeFlags* values) {
  Settings table{
      "quire serve",
      "serves a model on this machine. It starts quire-worker, quire-manager and quire-openai, waits until the model "
      "answers, and prints how to reach it. Ctrl-C stops all of them.",
      "MODEL [flags]\n\n"
      "MODEL is a folder with a checkpoint, a GGUF file, or a model of the Hugging Face hub: owner/name or\n"
      "owner/name/FILE.gguf, with or without hf: before it and @revision at the end. What is missing of it is\n"
      "downloaded (quire-download).\n\n"
      "--worker.FLAG, --manager.FLAG and --gateway.FLAG are the flags of quire-worker, quire-manager and\n"
      "quire-openai, whose --help lists them: --worker.kv-bytes=4GiB."};
  table.Group("Clients:");
  table.Add("port", &values->port, {0, kMaxListenPort},
            "Port of the gateway for clients and browsers. 0: a free one, which is printed.");
  table.Add("host", &values->host,
            "Address at which the gateway listens. With 0.0.0.0 it listens on all networks of the machine, which "
            "requires --gateway.tls-cert and --gateway.tls-key, and --gateway.require-tokens or --gateway.tls-ca, "
            "or else --gateway.insecure.");
  table.Add(
      "served_model_name", &values->passed_on,
      "Name under which clients know the model. It may be given several times, or have several names, separated by "
      "commas. If empty, it is owner/name of a model of the hub, otherwise the name of the folder or file.");
  table.Group("Model:");
  table.Add("device", &values->passed_on, "Device of the worker: cpu (its default), cuda or cuda:N.");
  table.Add("quantize", &values->passed_on,
            "Rounds the weights while they are loaded: none (the default of the worker), int8 or int4.");
  table.Add("kv_type", &values->passed_on,
            "Precision of K and V: auto (the default of the worker), float32, bfloat16, float16 or int8.");
  table.Add("reranker", &values->passed_on,
            "How the model scores a document for a query: auto (the default of the gateway), none, or qwen3 for a "
            "model that answers yes or no to the prompt of Qwen3-Reranker.");
  table.Group("Everything else:");
  table.Add("config", &values->config,
            "YAML file with the sections worker, manager and gateway, which have flags of these programs as keys. "
            "The command line overrides it.");
  return table;
}

absl::StatusOr<CommandLine<ServeOptions>> ParseServeCommandLine(absl::Span<const char* const> arguments,
                                                                ListFlags list_flags) {
  ServeFlags own;
  const Settings settings = ServeSettings(&own);
  if (std::optional<std::string> text = HelpOrVersion(settings, arguments)) {
    return CommandLine<ServeOptions>{std::move(text)};
  }
  QUIRE_ASSIGN_OR_RETURN(const Arguments split, SplitArguments(arguments, list_flags));
  QUIRE_RETURN_IF_ERROR(CheckOwnFlags(settings, split.own, list_flags));
  std::vector<FlagValue> values;
  QUIRE_RETURN_IF_ERROR(ParseArguments(settings, split.own, &values));
  for (const FlagValue& value : values) QUIRE_RETURN_IF_ERROR(SetFlag(value));
  QUIRE_RETURN_IF_ERROR(settings.Check());
  QUIRE_ASSIGN_OR_RETURN(ServeOptions options, MakeOptions(split, own, values));
  return CommandLine<ServeOptions>{std::nullopt, std::move(options)};
}

bool HasFlag(const std::vector<PartFlag>& flags, absl::string_view name) {
  return std::any_of(flags.begin(), flags.end(), [name](const PartFlag& flag) { return flag.name == name; });
}

std::string WithServeFlags(PartId part, absl::string_view error, const std::vector<KnownFlag>& known,
                           const std::vector<PartFlag>& given) {
  std::map<std::string, std::string, std::less<>> typed;  // By names such as "kv_bytes".
  for (const KnownFlag& flag : known) typed[flag.name] = PrefixedFlag(part, flag.name);
  for (const ShortFlag& flag : kShortFlags) {
    if (flag.part == part) typed[flag.name] = FlagAsTyped(flag.name);
  }
  if (part == kGateway) typed["listen"] = "--port";
  for (const PartFlag& flag : given) typed[flag.name] = flag.typed;
  const auto is_of_flag = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; };
  std::string text;
  for (size_t i = 0; i < error.size();) {
    size_t end = i + 1;
    if (is_of_flag(error[i])) end = std::find_if_not(error.begin() + i, error.end(), is_of_flag) - error.begin();
    const absl::string_view word = error.substr(i, end - i);
    const auto found =
        absl::StartsWith(word, "--") ? typed.find(absl::StrReplaceAll(word.substr(2), {{"-", "_"}})) : typed.end();
    absl::StrAppend(&text, found != typed.end() ? found->second : word);
    i = end;
  }
  return text;
}

}  // namespace quire
