# SPDX-License-Identifier: Apache-2.0
# tools/gpu_check sources this file. It runs the steps of a check, each within the time that is left to its part, and
# writes every result into a folder as soon as it is known.

readonly TIMED_OUT=124
results=       # The folder. report.txt has what is also printed, NAME.log has the output of step NAME.
part_end=0     # The value of SECONDS at which the time of the part ends.
problems=()    # The titles of the steps that have failed.

begin_results() {
  mkdir -p "$1" || exit 1
  results=$(cd "$1" && pwd)
}

# Prints a line and adds it to the report.
say() { printf '%s\n' "$*" | tee -a "$results/report.txt"; }

# Prints the log of step $1 and adds it to the report.
show() { tee -a "$results/report.txt" <"$results/$1.log"; }

# Begins a part that takes at most $2 seconds.
begin_part() {
  part_end=$((SECONDS + $2))
  say "== $1"
}

seconds_left() { echo $((part_end > SECONDS ? part_end - SECONDS : 0)); }

# Runs a command for at most $1 seconds, and no longer than the part has time. Five seconds of its time are kept for a
# command that has to be killed.
limited() {
  local most=$1 left=$(($(seconds_left) - 5))
  shift
  if [ $left -le 0 ]; then return $TIMED_OUT; fi
  timeout -k 5 $((most < left ? most : left)) "$@"
}

# Runs a command, or a function, after a title and the name of its log, and says what became of it. A failure is
# recorded, and the check continues. A step for which there was too little time counts neither as right nor as wrong.
step() {
  local title=$1 log=$results/$2.log code start=$SECONDS
  shift 2
  if [ "$(seconds_left)" -le 5 ]; then
    say "left out, for time: $title"
    return $TIMED_OUT
  fi
  "$@" >"$log" 2>&1
  code=$?
  if [ $code -eq 0 ]; then
    say "right  $title ($((SECONDS - start)) s)"
  elif [ $code -eq $TIMED_OUT ]; then
    say "not finished in $((SECONDS - start)) s: $title"
  else
    say "WRONG  $title: exit code $code, the end of $log:"
    tail -n 15 "$log" | sed 's/^/       /' | tee -a "$results/report.txt"
    problems+=("$title")
  fi
  return $code
}

# Prints the path of program $1, which may be in a folder of the CUDA toolkit that is not on the PATH.
find_tool() {
  local place
  command -v "$1" && return
  for place in /usr/local/cuda*/bin/"$1" /opt/nvidia/nsight-compute/*/"$1"; do
    if [ -x "$place" ]; then
      echo "$place"
      return
    fi
  done
  return 1
}
