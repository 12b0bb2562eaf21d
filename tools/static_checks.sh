# SPDX-License-Identifier: Apache-2.0
# Sourced by ./check: what is checked in the sources without running them.

# The version of clang-format that Debian 12 has. Other versions format a few constructs differently.
readonly FORMATTER_VERSION=14

# Checks how the C++ files among the arguments are formatted.
check_formatting() {
  local version file files=()
  for file in "$@"; do
    if [[ $file =~ \.(h|cc|cu|cuh)$ && -f $file ]]; then files+=("$file"); fi
  done
  [ ${#files[@]} -gt 0 ] || return 0
  version=$(clang-format --version | sed 's/.*version \([0-9]*\).*/\1/')
  if [ "$version" != "$FORMATTER_VERSION" ]; then
    echo "Formatting was not checked: clang-format has version $version, the sources need $FORMATTER_VERSION."
    return 0
  fi
  clang-format --dry-run --Werror "${files[@]}" && return 0
  echo "Some files are not formatted. Run: clang-format -i FILE..." >&2
  exit 1
}

# Checks the shell scripts among the arguments.
check_scripts() {
  local file scripts=()
  for file in "$@"; do
    if [[ -f $file && $(head -c 64 "$file" | tr -d '\0') =~ ^'#!'[^$'\n']*bash ]]; then scripts+=("$file"); fi
  done
  [ ${#scripts[@]} -eq 0 ] || shellcheck --external-sources --severity=warning "${scripts[@]}"
}

# Runs clang's thread-safety analysis over the sources among the arguments that use an annotated mutex, themselves or in
# the header of the same name. The headers that preset $1 generates must be there. The sources of a folder are analysed
# together, because their headers take most of the time. If that fails, each of them is analysed alone: together they
# may define a name twice, which is no error of theirs.
check_thread_safety() {
  local build=build/$1 file group
  local -A groups=()
  shift
  for file in "$@"; do
    [[ $file == *.cc && -f $file ]] || continue
    grep -qsF '"base/mutex.h"' "$file" "${file%.cc}.h" || continue
    group=$(dirname "$file")
    if [[ $file == *main.cc ]]; then group=$file; fi
    groups[$group]+="$file "
  done
  [ ${#groups[@]} -gt 0 ] || return 0
  # shellcheck disable=SC2016  # The inner shell expands what is quoted.
  printf '%s\n' "${groups[@]}" | xargs -d '\n' -n 1 -P "$(nproc)" bash -c '
    analyse() {
      local file includes=()
      for file in "$@"; do includes+=(-include "$file"); done
      clang++ -std=c++20 -fsyntax-only -Wthread-safety -Werror=thread-safety -I. -isystem "$build" \
        -isystem "$build/proto/gen" "${includes[@]}" -x c++ /dev/null
    }
    build=$0
    read -ra files <<<"$1"
    if [ ${#files[@]} -gt 1 ] && analyse "${files[@]}" 2>/dev/null; then exit 0; fi
    failed=0
    for file in "${files[@]}"; do analyse "$file" || failed=1; done
    exit $failed' "$build" && return 0
  echo "The thread-safety analysis found errors." >&2
  exit 1
}
