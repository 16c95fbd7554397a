// SPDX-License-Identifier: Apache-2.0
// hkt completion: a script by which the shell completes commands, options, presets and keys of the config.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <stdexcept>
#include <string>

#include "commands.h"
#include "config_keys.h"
#include "train/presets.h"

namespace hkt::cli {
namespace {

// Between these parts come the lists of this build.
constexpr const char* script_begin = R"bash(# bash completion of hkt: source <(hkt completion bash)
_hkt_options() {
  case $1 in
)bash";
constexpr const char* script_values = R"bash(  esac
}
_hkt_values() {
  case $1 in
)bash";
constexpr const char* script_end = R"bash(  esac
}
_hkt() {
  # The word as typed: bash splits it at = and : otherwise.
  local line=${COMP_LINE:0:COMP_POINT} word command option tail i
  word=${line##*[[:space:]]}
  command=${COMP_WORDS[1]}
  [[ $command == data || $command == theory ]] && [[ ${COMP_WORDS[2]} == [a-z]* ]] && (( COMP_CWORD > 2 )) &&
    command+=" ${COMP_WORDS[2]}"
  for (( i = COMP_CWORD - 1; i > 1; --i )); do
    [[ ${COMP_WORDS[i]} == --* ]] && { option=${COMP_WORDS[i]}; break; }
  done
  COMPREPLY=()
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(_hkt_options "$command")" -- "$word"))
  elif [[ $option == --set || $option == --grid ]]; then
    if [[ $word == *=* ]]; then
      tail=${word#*=}
      tail=${tail##*,}
      case ${word%%=*} in
        data.train|data.test|data.source|train.init) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$tail")) ;;
        *) COMPREPLY=($(compgen -W "$(_hkt_values "${word%%=*}")" -- "$tail")) ;;
      esac
      # Readline replaces what follows the last break character only.
      [[ $COMP_WORDBREAKS == *=* && $word != *,* ]] || COMPREPLY=("${COMPREPLY[@]/#/${word%"$tail"}}")
      [[ $COMP_WORDBREAKS == *=* && $word == *,* ]] && COMPREPLY=("${COMPREPLY[@]#*=}")
    else
      compopt -o nospace 2>/dev/null
      COMPREPLY=($(compgen -S = -W "$_hkt_keys" -- "$word"))
    fi
  elif (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W "$_hkt_commands" -- "$word"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$word"))
    (( COMP_CWORD > 2 )) || COMPREPLY+=($(compgen -W "$(_hkt_values "$command")" -- "$word"))
  fi
}
complete -F _hkt hkt
)bash";

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// A line of a case statement that prints these words.
std::string answer(const std::string& pattern, const std::vector<std::string>& words) {
  return words.empty() ? "" : fmt::format("    \"{}\") echo \"{}\" ;;\n", pattern, joined(words));
}

// The options of a command and those of the commands within.
std::string options_of(const CLI::App& command, const std::string& name) {
  std::vector<std::string> options;
  for (const auto* option : command.get_options()) {
    for (const auto& own : option->get_lnames()) options.push_back("--" + own);
  }
  auto text = answer(name, options);
  for (const auto* inner : commands_of(command)) text += options_of(*inner, name + " " + inner->get_name());
  return text;
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const auto* command : commands) names.push_back(command->get_name());
  return names;
}

std::string bash_script(const CLI::App& program) {
  std::string options, values;
  for (const auto* command : commands_of(program)) {
    options += options_of(*command, command->get_name());
    values += answer(command->get_name(), names_of(commands_of(*command)));
  }
  std::vector<std::string> presets, keys;
  for (const auto& preset : train::presets()) presets.push_back(preset.name);
  for (const char* command : {"train", "config", "tune"}) values += answer(command, presets);
  for (const auto& [key, tasks] : all_config_keys()) {
    keys.push_back(key.key);
    values += answer(key.key, key.choices);
  }
  return script_begin + options + script_values + values + script_end +
         fmt::format("_hkt_commands=\"{}\"\n_hkt_keys=\"{}\"\n", joined(names_of(commands_of(program))), joined(keys));
}

}  // namespace

void add_completion(CLI::App& program, Action& action) {
  const auto shell = std::make_shared<std::string>();
  auto& command = *program.add_subcommand("completion", "Print a script by which the shell completes hkt's commands");
  command.add_option("shell", *shell, "bash")->required();
  command.footer("Example:\n  source <(hkt completion bash)");
  command.callback([shell, &program, &action] {
    action = [shell, &program] {
      if (*shell != "bash") throw std::invalid_argument("the shell is \"" + *shell + "\"; it must be bash.");
      fmt::print("{}", bash_script(program));
      return 0;
    };
  });
}

}  // namespace hkt::cli
