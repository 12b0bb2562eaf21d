# SPDX-License-Identifier: Apache-2.0
# tools/gpu_check and tools/make_gpu_bundle source this file. It lists and runs the tests of `gpu_test`, a program.

readonly TESTS_AT_ONCE=8

# Prints SUITE.TEST for every test.
list_tests() {
  "$gpu_test" --gtest_list_tests |
    sed -n 's/  *#.*//; /^[^ ].*\.$/{h;d}; /^  /{s/^  *//;G;s/\(.*\)\n\(.*\)/\2\1/p}'
}

# Runs every test in its own process, with the arguments of this function, so that a test that ends or hangs its process
# does not affect the others. Lists at the end the tests that have not passed. Some of them may lack only time.
each_test() {
  local test failures unfinished code=0
  failures=$(mktemp)
  while read -r test; do
    while [ "$(jobs -rp | wc -l)" -ge $TESTS_AT_ONCE ]; do wait -n; done
    one_test "$test" "$@" &
  done < <(list_tests)
  wait
  cat "$failures"
  unfinished=$(grep -c "exit code $TIMED_OUT\$" "$failures")
  if [ "$unfinished" -gt 0 ]; then code=$TIMED_OUT; fi
  if [ "$(wc -l <"$failures")" -gt "$unfinished" ]; then code=1; fi
  rm -f "$failures"
  return $code
}

one_test() {
  local output code
  output=$(limited 90 "$gpu_test" --gtest_filter="$1" "${@:2}" 2>&1)
  code=$?
  printf '%s\n' "$output"
  [ $code -eq 0 ] || echo "not passed: $1, exit code $code" >>"$failures"
}
