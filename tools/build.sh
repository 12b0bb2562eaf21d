# SPDX-License-Identifier: Apache-2.0
# ./quickstart and ./check source this file. It installs the Debian packages that a build needs, and builds with a
# progress display.

readonly BUILD_PACKAGES=(
  g++ cmake ninja-build pkg-config
  libabsl-dev libgrpc++-dev libssl-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc prometheus-cpp-dev
  libgtest-dev libgmock-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libcli11-dev libyaml-cpp-dev
  libcurl4-openssl-dev libboost-dev libjs-marked libucx-dev
)

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs the missing ones of its arguments. It is silent and fast when none is missing.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  if ! command -v apt-get >/dev/null; then
    echo "This script installs with apt-get (Debian 12 and 13). Please install by hand: ${missing[*]}" >&2
    exit 1
  fi
  echo "Installing ${missing[*]}"
  local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -o APT::Status-Fd=1) log=build/packages.log
  local install=("${apt[@]}" install -y --no-install-recommends "${missing[@]}")
  with_progress "Reading package lists" "$log" "${apt[@]}" update
  with_progress "Downloading packages" "$log" "${install[@]}" --download-only
  with_progress "Installing packages" "$log" "${install[@]}"
}

# Runs a command (after a title and a log file), writes its output to the log, and shows its percentages: on a terminal
# as one line that changes, otherwise as one line for every tenth. If it fails, prints the end of the log and exits.
with_progress() {
  local title=$1 log=$2
  shift 2
  mkdir -p "$(dirname "$log")"
  "$@" 2>&1 </dev/null | tee "$log" | sed -un "$PERCENTAGES" | show_percentages "$title" && return
  echo "$title failed. The end of $log:" >&2
  tail -n 30 "$log" >&2
  exit 1
}

# Extracts the percentages from the status lines of apt-get and ninja.
readonly PERCENTAGES='s/^[dp][lm]status:[^:]*:\([0-9]*\)[.:].*/\1/p; s/^\[ *\([0-9]*\)%\].*/\1/p'

show_percentages() {
  local title=$1 percent shown=-1
  while read -r percent; do
    if [ -t 1 ]; then
      printf '\r%s: %d%%' "$title" "$percent"
      shown=$percent
    elif [ $((percent / 10)) -gt $shown ]; then
      echo "$title: $percent%"
      shown=$((percent / 10))
    fi
  done
  if [ -t 1 ] && [ "$shown" -ge 0 ]; then echo; fi
}

# Configures preset $1 if that has not been done before, or if the arguments that follow differ from the last time. They
# are passed to CMake. In continuous integration (CI is set) warnings are errors; elsewhere they never are.
configure() {
  local dir=build/$1 wanted="${*:2}" flags=()
  if [ -f "$dir/build.ninja" ] &&
    [[ -z $wanted || $wanted = $(cat "$dir/configured_with" 2>/dev/null) ]]; then return; fi
  if [ -n "${CI:-}" ]; then flags=(-DQUIRE_WARNINGS_AS_ERRORS=ON); fi
  with_progress "Configuring $dir" "$dir.configure.log" cmake --preset "$@" "${flags[@]}"
  echo "$wanted" >"$dir/configured_with"
}

# Builds the targets that follow preset $1, or all targets if there are none. Prints nothing if nothing is to be done.
build() {
  local dir=build/$1
  shift
  NINJA_STATUS='[%p] ' with_progress "Building $dir" "$dir.build.log" ninja -C "$dir" "$@"
}

# Builds the programs that quickstart and deploy/local/up start, and what `cmake --install` needs besides.
build_programs() {
  if [ ! -x build/release/bin/quire-manager ]; then
    echo "The first build takes about 20 minutes on two cores, and less on more."
  fi
  configure release
  build release quire_installed
}
