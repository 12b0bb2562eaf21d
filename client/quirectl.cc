// quirectl: the command line of a Quire manager.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/version.h"
#include "client/admin_commands.h"
#include "client/bench_command.h"
#include "client/client.h"
#include "client/completion.h"
#include "client/connection_options.h"
#include "client/doctor_command.h"
#include "client/generate_command.h"
#include "client/input.h"
#include "client/look_commands.h"
#include "client/output.h"
#include "google/protobuf/stubs/logging.h"

namespace quire {
namespace {

constexpr char kDescription[] =
    "Talk to a Quire manager.\n\n"
    "Examples:\n"
    "  quirectl generate \"Once upon a time\" -n 200\n"
    "  quirectl generate \"Once upon a time\" -t 0 --stop \"The end\" --usage\n"
    "  quirectl generate - -n 50 -o json < prompt.txt\n"
    "  quirectl tokenize \"Once upon a time\"\n"
    "  quirectl status\n"
    "  quirectl top\n"
    "  quirectl bench --rate 10 --duration 60\n"
    "  quirectl blocks --map\n"
    "  quirectl pin --ttl 3600 - < system_prompt.txt\n"
    "  quirectl health readiness && echo ready\n"
    "  quirectl doctor\n"
    "  source <(quirectl completion bash)\n";

constexpr char kFooter[] =
    "Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 unavailable (try again), 4 rejected by the manager, 5 broken off\n"
    "or aborted after text had been printed, 130 Ctrl-C.\n"
    "`quirectl COMMAND --help` describes a command.";

int RunTokenize(Client& client, const std::string& endpoint, OutputFormat format, const std::string& argument,
                bool add_special_tokens) {
  const absl::StatusOr<std::string> text = ReadText(argument, "text");
  if (!text.ok()) return ReportUsage(text.status().message());
  v1::TokenizeRequest request;
  request.set_text(*text);
  request.set_add_special_tokens(add_special_tokens);
  const absl::StatusOr<v1::TokenizeResponse> response = client.Tokenize(request);
  if (!response.ok()) return ReportError(response.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*response);
    return kExitOk;
  }
  for (int i = 0; i < response->token_ids_size(); ++i) {
    std::printf("%7u  %s\n", response->token_ids(i), response->pieces(i).c_str());
  }
  return kExitOk;
}

int RunDetokenize(Client& client, const std::string& endpoint, OutputFormat format,
                  const std::vector<std::string>& arguments, bool skip_special_tokens) {
  const absl::StatusOr<std::vector<uint32_t>> ids = ReadTokenIds(arguments);
  if (!ids.ok()) return ReportUsage(ids.status().message());
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Add(ids->begin(), ids->end());
  request.set_skip_special_tokens(skip_special_tokens);
  const absl::StatusOr<v1::DetokenizeResponse> response = client.Detokenize(request);
  if (!response.ok()) return ReportError(response.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*response);
  } else {
    std::printf("%s\n", response->text().c_str());
  }
  return kExitOk;
}

int RunModel(Client& client, const std::string& endpoint, OutputFormat format) {
  const absl::StatusOr<v1::GetModelResponse> model = client.GetModel();
  if (!model.ok()) return ReportError(model.status(), endpoint);
  if (format == OutputFormat::kJson) {
    PrintJson(*model);
    return kExitOk;
  }
  std::printf(
      "name          %s\narchitecture  %s\nvocabulary    %u tokens\ncontext       %u tokens\nend tokens    %s\n",
      model->name().c_str(), model->architecture().c_str(), model->vocab_size(), model->max_context_tokens(),
      absl::StrJoin(model->eos_token_ids(), ", ").c_str());
  if (!model->has_tokenizer()) std::printf("tokenizer     none: prompts are token ids\n");
  return kExitOk;
}

int RunHealth(Client& client, const std::string& endpoint, OutputFormat format, const std::string& service) {
  const absl::StatusOr<bool> is_serving = client.IsServing(service);
  if (is_serving.status().code() == absl::StatusCode::kNotFound) {
    std::fprintf(stderr, "quirectl: the manager has no service \"%s\"; there are liveness, readiness, %s and %s\n",
                 absl::Utf8SafeCHexEscape(service).c_str(), v1::InferenceService::service_full_name(),
                 v1::AdminService::service_full_name());
    return kExitRejected;
  }
  if (!is_serving.ok()) return ReportError(is_serving.status(), endpoint);
  const char* text = *is_serving ? "SERVING" : "NOT_SERVING";
  std::printf(format == OutputFormat::kJson ? "{\"status\":\"%s\"}\n" : "%s\n", text);
  return *is_serving ? kExitOk : kExitUnavailable;
}

int RunAbort(Client& client, const std::string& endpoint, const std::string& request_id) {
  if (request_id.empty()) return ReportUsage("request_id is empty; it is the name that generate's --request-id gave");
  const absl::Status aborted = client.Abort(request_id);
  return aborted.ok() ? kExitOk : ReportError(aborted, endpoint);
}

// Our name of an option of `vllm bench serve`; "" for all others.
std::string TranslateBenchOption(const std::string& name) {
  if (name == "--random-input-len") return "--input-tokens N";
  if (name == "--random-output-len") return "--output-tokens N";
  if (name == "--max-concurrency") return "--concurrency N, or with --rate --max-in-flight N";
  return "";
}

// "; did you mean NAME?", or nothing.
std::string Suggest(const std::string& typed, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(typed, known);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// The long options of a command, and those of all commands.
std::vector<std::string> OptionNames(const CLI::App& app, const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* owner : {&command, &app}) {
    for (const CLI::Option* option : owner->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back(absl::StrCat("--", name));
    }
  }
  return names;
}

// What an option that no command has is called here.
std::string SuggestOption(const CLI::App& app, const CLI::App& command, const std::string& typed) {
  const std::string name = typed.substr(0, typed.find('='));
  if (command.get_name() == "bench") {
    if (const std::string translation = TranslateBenchOption(name); !translation.empty()) {
      return absl::StrCat("; that of `vllm bench serve` is ", translation, " here");
    }
  }
  return Suggest(name, OptionNames(app, command));
}

// What to say about words that no option and no argument took; `stray` has at least one.
std::string ExplainStray(const CLI::App& app, const CLI::App* command, const std::vector<std::string>& stray) {
  std::string message = absl::StrCat("unexpected argument \"", stray[0], "\"");
  if (command == nullptr) {
    if (absl::StartsWith(stray[0], "-")) return message;
    return absl::StrCat("there is no command \"", stray[0], "\"", Suggest(stray[0], CommandNames(app)));
  }
  if (absl::StartsWith(stray[0], "--") && !absl::StrContains(stray[0], " ")) {
    return absl::StrCat(message, SuggestOption(app, *command, stray[0]));
  }
  const CLI::Option* text = command->get_option_no_throw("prompt");
  if (text == nullptr) text = command->get_option_no_throw("text");
  if (text == nullptr) return message;
  if (absl::StartsWith(stray[0], "-")) {
    if (absl::StrContains(stray[0], " ")) absl::StrAppend(&message, "; put -- before a text that begins with a dash");
  } else if (!text->empty()) {
    absl::StrAppend(&message, "; put a text of several words in quotes: quirectl ", command->get_name(), " \"",
                    text->results()[0], " ", absl::StrJoin(stray, " "), "\"");
  }
  return message;
}

// CLI11's error in our own form.
int ReportParseError(CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const CLI::App* command = commands.empty() ? nullptr : commands[0];
  std::string message = error.what();
  if (!message.empty()) message[0] = absl::ascii_tolower(message[0]);
  const std::vector<std::string> stray = app.remaining(true);
  const bool is_about_stray = command == nullptr || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (is_about_stray && !stray.empty()) message = ExplainStray(app, command, stray);
  return ReportUsage(absl::StrCat(message, "\n  `quirectl", command == nullptr ? "" : " ",
                                  command == nullptr ? "" : command->get_name(), " --help` lists what there is."));
}

// Libraries write their own lines to standard error; what matters of them is in a status.
void SilenceLibraries() {
  google::protobuf::SetLogHandler(nullptr);
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
}

int Main(int argc, char** argv) {
  CLI::App app(kDescription, "quirectl");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", absl::StrCat("quirectl ", kVersion), "Print the version and exit");

  ClientOptions options;
  double rpc_timeout_s = 10;
  std::string format_name = "text";
  AddConnectionOptions(&app, &options);
  app.add_option("-o,--output", format_name, "For people (text and table are the same), or json, a line per message")
      ->check(CLI::IsMember({"text", "table", "json"}))
      ->option_text("text|table|json [text]");
  app.add_option("--rpc-timeout", rpc_timeout_s, "What a call other than generate may take")
      ->check(CLI::Range(0.001, 1e6))
      ->option_text("SECONDS [10]");

  GenerateCommand generate(app.add_subcommand("generate"));
  BenchCommand bench(app.add_subcommand("bench"));

  std::string text;
  bool no_special_tokens = false;
  CLI::App* tokenize = app.add_subcommand("tokenize", "Print the tokens of a text.");
  tokenize->add_option("text", text, "The text; \"-\" reads standard input")->required()->option_text(" ");
  tokenize->add_flag("--no-special-tokens", no_special_tokens, "Do not add the begin-of-sequence token");

  std::vector<std::string> ids;
  bool keep_special_tokens = false;
  CLI::App* detokenize = app.add_subcommand("detokenize", "Print the text of tokens.");
  detokenize->add_option("ids", ids, "Token ids; \"-\" reads standard input")->required()->option_text(" ");
  detokenize->add_flag("--keep-special-tokens", keep_special_tokens, "Print special tokens as text");

  std::string request_id;
  CLI::App* abort = app.add_subcommand("abort", "End a running request.");
  abort->add_option("request_id", request_id, "Its name")->required()->option_text(" ");

  std::string service;
  CLI::App* health = app.add_subcommand("health", "Exit with 0 when the manager serves, with 3 when it does not.");
  health->add_option("service", service, "liveness, readiness or a service's full name; empty: the whole server")
      ->option_text(" ");

  std::string shell;
  CLI::App* completion = app.add_subcommand(
      "completion",
      "Print a script that completes commands, options and values. For bash: source <(quirectl completion bash)");
  completion->add_option("shell", shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required()
      ->option_text(" ");

  DoctorCommand doctor(app.add_subcommand("doctor"));
  CLI::App* model = app.add_subcommand("model", "Describe the model that is served.");
  AdminCommands admin(&app);
  LookCommands look(&app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return ReportParseError(app, error);
    return app.exit(error);  // Prints the help or the version.
  }
  if (*completion) {
    const std::string script = shell == "bash"  ? BashCompletion(app)
                               : shell == "zsh" ? ZshCompletion(app)
                                                : FishCompletion(app);
    std::fputs(script.c_str(), stdout);
    return kExitOk;
  }
  if (const absl::Status valid = CheckConnection(options); !valid.ok()) return ReportUsage(valid.message());
  options.timeout = absl::Seconds(rpc_timeout_s);
  const OutputFormat format = format_name == "json" ? OutputFormat::kJson : OutputFormat::kText;
  if (app.got_subcommand("generate")) return generate.Run(options, format);
  if (app.got_subcommand("bench")) return bench.Run(options, format);
  if (app.got_subcommand("doctor")) return doctor.Run(options, format);

  Client client(options);
  if (*tokenize) return RunTokenize(client, options.endpoint, format, text, !no_special_tokens);
  if (*detokenize) return RunDetokenize(client, options.endpoint, format, ids, !keep_special_tokens);
  if (*health) return RunHealth(client, options.endpoint, format, service);
  if (*model) return RunModel(client, options.endpoint, format);
  if (*abort) return RunAbort(client, options.endpoint, request_id);
  if (look.is_chosen()) return look.Run(client, {options.endpoint, format, options.timeout});
  return admin.Run(client, options.endpoint, format);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  // A reader that went away ends quirectl in silence, whatever the caller does with the signal.
  std::signal(SIGPIPE, SIG_DFL);
  quire::ReserveStandardStreams();
  quire::SilenceLibraries();
  return quire::EndOutput(quire::Main(argc, argv));
}
