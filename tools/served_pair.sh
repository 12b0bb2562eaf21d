# SPDX-License-Identifier: Apache-2.0
# tools/gpu_check sources this file. It serves the model in the box on the CPU and on the GPU, and compares the answers.
# `bin` is the folder of the programs.

readonly prompts=("Once upon a time" "Tom and Lily" "One day, a little dog" "The old man" "In the forest"
  "Anna was sad" "There was a big red ball" "Mom said")

# Gets greedy answers of a manager and a worker with these flags, one file for each prompt in $results/NAME.
answers() {
  local name=$1 socket ready=false i out
  shift
  socket=$(mktemp -d "${TMPDIR:-/tmp}/quire.XXXXXX")
  out=$results/$name
  rm -rf "$out" && mkdir -p "$out"
  "$bin/quire-worker" --model=models/tales --listen="unix:$socket/worker" --metrics-listen= "$@" \
    >"$out/worker.log" 2>&1 &
  local worker=$!
  "$bin/quire-manager" --workers="unix:$socket/worker" --listen="unix:$socket/manager" --metrics-listen= \
    >"$out/manager.log" 2>&1 &
  local manager=$!
  for _ in $(seq 600); do
    if "$bin/quirectl" --endpoint "unix:$socket/manager" health readiness >/dev/null 2>&1; then
      ready=true
      break
    fi
    kill -0 $worker 2>/dev/null && kill -0 $manager 2>/dev/null || break
    [ "$(seconds_left)" -gt 5 ] || break
    sleep 0.1
  done
  local code=1
  if $ready; then
    code=0
    local calls=()
    for i in "${!prompts[@]}"; do
      limited 300 "$bin/quirectl" --endpoint "unix:$socket/manager" generate "${prompts[$i]}" -t 0 -n 200 \
        >"$out/$i.txt" &
      calls+=($!)
    done
    for i in "${calls[@]}"; do wait "$i" || code=1; done
  fi
  kill $worker $manager 2>/dev/null
  for _ in $(seq 100); do
    kill -0 $worker 2>/dev/null || kill -0 $manager 2>/dev/null || break
    sleep 0.1
  done
  kill -9 $worker $manager 2>/dev/null  # A device that hangs must not block this script.
  wait $worker $manager 2>/dev/null
  rm -rf "$socket"
  [ $code -eq 0 ] || tail -n 15 "$out/worker.log" "$out/manager.log"
  return $code
}

# The GPU rounds the values that it stores between operations to 16 bits, and the CPU does not. Greedy answers differ
# from the point where two tokens are nearly equally likely. More than half of the answers must agree for 40 characters.
# With an error they would differ at once. Compares the answers $1 with the answers $2.
compare_answers() {
  local i same=0 whole=0 first
  for i in "${!prompts[@]}"; do
    if cmp -s "$results/$2/$i.txt" "$results/$1/$i.txt"; then
      first=all
      whole=$((whole + 1))
      same=$((same + 1))
    else
      first=$(cmp "$results/$2/$i.txt" "$results/$1/$i.txt" 2>&1 | sed -n 's/.*\(byte\|char\) \([0-9]*\).*/\2/p')
      [ "${first:-0}" -gt 40 ] && same=$((same + 1))
    fi
    echo "\"${prompts[$i]}\": the same characters: $([ "$first" = all ] && echo all || echo $((${first:-1} - 1)))"
  done
  echo "$whole of ${#prompts[@]} answers are the same to the end, $same for 40 characters"
  [ $((2 * same)) -gt ${#prompts[@]} ]
}

serve_cpu() { step "the model in the box on the CPU" serve_cpu answers cpu; }

# Serves the model as $1 says, with these flags, and compares the answers with those that are named $3.
serve_gpu() {
  local title=$1 name=$2 beside=$3
  shift 3
  if step "$title" "serve_$name" answers "$name" --device=cuda "$@"; then
    step "its answers beside those of the CPU" "compare_$name" compare_answers "$name" "$beside"
    show "compare_$name"
  fi
}

# Serves the model on the CPU and on the GPU, where it computes as it does by default and with --exact-gpu, and then
# with weights of 8 and of 4 bits. A GPU does not round the inputs of their products. On the CPU,
# --int4-inputs=float32 keeps those of products by weights of 4 bits; products by weights of 8 bits round theirs.
serve_pair() {
  local bits
  [ -x "$bin/quire-worker" ] || return
  serve_cpu || return
  serve_gpu "the model in the box on the GPU" gpu cpu
  serve_gpu "the same with --exact-gpu" gpu_exact cpu --exact-gpu
  for bits in int8 int4; do
    step "weights of $bits on the CPU" "serve_cpu_$bits" answers "cpu_$bits" --quantize=$bits --int4-inputs=float32 ||
      continue
    serve_gpu "weights of $bits on the GPU" "gpu_$bits" "cpu_$bits" --quantize=$bits
  done
}
