# SPDX-License-Identifier: Apache-2.0
# tools/gpu_check and tools/make_gpu_bundle source this file. It lists and runs the tests of `gpu_test`, a program.

readonly TESTS_AT_ONCE=8

# Prints SUITE.TEST for every test.
list_tests() {
  "$gpu_test" --gtest_list_tests |
    sed -n 's/  *#.*//; /^[^ ].*\.$/{h;d}; /^  /{s/^  *//;G;s/\(.*\)\n\(.*\)/\2\1/p}'
}

# Runs every test in its own process, with the arguments of this function, so that a test that ends or hangs its process
# does not affect the others. Lists at the end the tests that were wrong, and those that were not finished in their
# time. The exit code is 1 if one was wrong, or else $TIMED_OUT if one was not finished.
each_test() {
  local test failures code=0
  failures=$(mktemp)
  while read -r test; do
    while [ "$(jobs -rp | wc -l)" -ge $TESTS_AT_ONCE ]; do wait -n; done
    one_test "$test" "$@" &
  done < <(list_tests)
  wait
  sort "$failures"
  if grep -q '^not finished' "$failures"; then code=$TIMED_OUT; fi
  if grep -q '^not passed' "$failures"; then code=1; fi
  rm -f "$failures"
  return $code
}

one_test() {
  local output code
  output=$(limited 90 "$gpu_test" --gtest_filter="$1" "${@:2}" 2>&1)
  code=$?
  printf '%s\n' "$output"
  case $code in
    0) ;;
    "$TIMED_OUT") echo "not finished: $1" >>"$failures" ;;
    *) echo "not passed: $1, exit code $code" >>"$failures" ;;
  esac
}
