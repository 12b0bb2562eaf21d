# Sourced by ./quickstart, ./check and .ci/run: the Debian and Ubuntu packages that a build needs.

readonly BUILD_PACKAGES=(
  g++ cmake ninja-build pkg-config
  libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc prometheus-cpp-dev
  libgtest-dev libgmock-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libcli11-dev
)

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs those of its arguments that are missing; silent and quick when none is.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  if ! command -v apt-get >/dev/null; then
    echo "This script installs with apt-get (Debian 12, Ubuntu 24.04). Please install by hand: ${missing[*]}" >&2
    exit 1
  fi
  echo "Installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Configures a preset if that was not done before. Changes of CMake files are noticed by the build itself.
configure() {
  local preset=$1
  local log=build/$preset.configure.log
  [ -f "build/$preset/build.ninja" ] && return
  mkdir -p build
  cmake --preset "$preset" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
}
