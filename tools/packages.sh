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
  DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Configures a preset if that was not done before, or if its options changed.
configure() {
  local preset=$1
  [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" >"/tmp/quire-configure-$preset.log" 2>&1 ||
    { cat "/tmp/quire-configure-$preset.log" >&2; exit 1; }
}
