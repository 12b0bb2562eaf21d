# SPDX-License-Identifier: Apache-2.0
# tools/gpu_check sources this file. It runs the steps of a check, each within the time that is left to its part, and
# writes every result into a folder as soon as it is known.

readonly TIMED_OUT=124
results=       # The folder. report.txt has what is also printed, NAME.log has the output of step NAME.
part_end=0     # The value of SECONDS at which the time of the part ends.
problems=()    # The titles of the steps that have failed.
unfinished=()  # The titles of the steps that were not finished, or not begun, for lack of time.
skipped=()     # What this machine lacks, so that steps were skipped.

begin_results() {
  mkdir -p -- "$1" || exit 1
  results=$(cd -- "$1" && pwd)
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
# recorded, and the check continues. So is a step for which there was too little time: it counts neither as right nor
# as wrong.
step() {
  local title=$1 name=$2 start=$SECONDS
  shift 2
  if [ "$(seconds_left)" -le 5 ]; then
    say "left out, for time: $title"
    unfinished+=("$title")
    return $TIMED_OUT
  fi
  "$@" >"$results/$name.log" 2>&1
  conclude "$title" "$name" $? $((SECONDS - start))
}

# Says and records how a step with the title $1 and the log $2 has ended, with exit code $3 after $4 seconds.
conclude() {
  local title=$1 log=$results/$2.log code=$3 seconds=$4
  if [ "$code" -eq 0 ]; then
    say "right  $title ($seconds s)"
  elif [ "$code" -eq $TIMED_OUT ]; then
    say "not finished in $seconds s: $title, the end of $log:"
    end_of_log "$log"
    unfinished+=("$title")
  else
    say "WRONG  $title: exit code $code, the end of $log:"
    end_of_log "$log"
    problems+=("$title")
  fi
  return "$code"
}

# Shows the tests that have not passed, if the log names them, or else its last lines.
end_of_log() {
  { grep -E '^not (passed|finished): ' "$1" || tail -n 15 "$1"; } | sed 's/^/       /' | tee -a "$results/report.txt"
}

# Records that the steps with these titles were not begun, because one before them has not succeeded.
leave_out() {
  local title
  for title in "$@"; do
    say "left out: $title"
    unfinished+=("$title")
  done
}

# Says and records why steps are skipped.
skip() {
  say "$1: skipped"
  skipped+=("$1")
}

# Ends the check with a list of everything that was not right. The arguments are the names of parts that have not begun.
# If no step was wrong or not finished, the exit code is $exit_code_if_right, or else 1.
exit_code_if_right=0
finish() {
  local line
  say
  for line in "${problems[@]}"; do say "wrong: $line"; done
  for line in "${unfinished[@]}"; do say "not finished: $line"; done
  for line in "$@"; do say "not begun: $line"; done
  for line in "${skipped[@]}"; do say "skipped: $line"; done
  if [ ${#problems[@]} -gt 0 ]; then
    say "${#problems[@]} steps were wrong, ${#unfinished[@]} were not finished; logs are in $results"
    exit 1
  fi
  if [ ${#unfinished[@]} -gt 0 ]; then
    say "nothing that finished was wrong, but ${#unfinished[@]} steps were not finished; logs are in $results"
    exit 1
  fi
  say "all that was run is right$([ $# -eq 0 ] || echo ", $# parts were not begun"); figures are in $results"
  exit $exit_code_if_right
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
