# SPDX-License-Identifier: Apache-2.0
# tools/gpu_check sources this file. It serves the model in the box on the CPU and on the GPU, and compares the answers.
# `bin` is the folder of the programs.

readonly prompts=("Once upon a time" "Tom and Lily" "One day, a little dog" "The old man" "In the forest"
  "Anna was sad" "There was a big red ball" "Mom said")

# Gets greedy answers of a manager and a worker with these flags, one file for each prompt in $results/NAME. The worker
# serves the model in the box, unless a flag --model names another one.
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
      limited 300 "$bin/quirectl" --endpoint "unix:$socket/manager" --output=json generate "${prompts[$i]}" \
        -t 0 -n 200 --logprobs 5 >"$out/$i.json" &
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

# Prints the tokens of an answer, one per line: the id, its logprob, and ids and logprobs of the likeliest tokens.
token_lines() {
  awk 'BEGIN { RS = "\"chosen\":" }
       NR > 1 {
         line = ""
         while (match($0, /"token_id":[0-9]+,"logprob":[-+0-9.e]+/)) {
           split(substr($0, RSTART, RLENGTH), part, /[:,]/)
           line = line (line == "" ? "" : " ") part[2] " " part[4]
           $0 = substr($0, RSTART + RLENGTH)
         }
         print line
       }' "$1"
}

# Compares an answer of the CPU ($1) with one of the GPU ($2) up to the first token that differs. Fails if a logprob
# differs by more than $3, or if the CPU finds its own token more likely than the token of the GPU by more than that.
compare_tokens() {
  paste -d '|' <(token_lines "$1") <(token_lines "$2") | awk -F '|' -v most="$3" '
    { expected = split($1, cpu, " "); actual = split($2, gpu, " ") }
    expected == 0 || actual == 0 { ended = 1; exit }  # All tokens of one answer are tokens of the other.
    cpu[1] != gpu[1] {
      differs = 1
      for (i = 3; i < expected; i += 2) if (cpu[i] == gpu[1]) gap = cpu[2] - cpu[i + 1]
      exit
    }
    {
      same++
      distance = cpu[2] - gpu[2]
      if (distance < 0) distance = -distance
      if (distance > largest) largest = distance
    }
    END {
      printf "%d tokens are the same, their logprobs differ by at most %.4f", same, largest
      if (differs && gap == "") printf "; the next token of the GPU is none of the five likeliest of the CPU"
      if (gap != "") printf "; then the CPU prefers its own token to that of the GPU by %.4f", gap
      if (ended || same == 0 && !differs) printf "; one answer ends before the other"
      print ""
      exit !(largest <= most && !ended && (differs ? gap != "" && gap <= most : same > 0))
    }'
}

# The GPU rounds the values that it stores between operations to 16 bits, and the CPU does not. Therefore logprobs
# differ a little, and greedy answers may differ from the point where two tokens are nearly equally likely.
# Compares the answers $1 with the answers $2, whose logprobs may differ by $3.
compare_answers() {
  local i code=0
  for i in "${!prompts[@]}"; do
    printf '"%s": ' "${prompts[$i]}"
    compare_tokens "$results/$2/$i.json" "$results/$1/$i.json" "$3" || code=1
  done
  return $code
}

serve_cpu() { step "the model in the box on the CPU" serve_cpu answers cpu; }

readonly COMPARED="its answers beside those of the CPU"

# Serves the model as $1 says, with the flags from $5 on. Its answers are named $2. Their logprobs may differ by $4 from
# the answers that are named $3.
serve_gpu() {
  local title=$1 name=$2 beside=$3 most=$4
  shift 4
  if step "$title" "serve_$name" answers "$name" --device=cuda "$@"; then
    step "$COMPARED" "compare_$name" compare_answers "$name" "$beside" "$most" && show "compare_$name"
  else
    leave_out "$COMPARED"
  fi
}

# Serves the model on the CPU and on the GPU, where it computes as it does by default and with --exact-gpu, and then
# with weights of 8 and of 4 bits, with weights of FP8, and with K and V of 8 bits. With --int4-inputs=float32, the CPU
# does not round the inputs of products by weights of 4 bits, as a GPU does not. Logprobs of these models differ more.
serve_pair() {
  local bits
  [ -x "$bin/quire-worker" ] || return
  if serve_cpu; then
    serve_gpu "the model in the box on the GPU" gpu cpu 0.1
    serve_gpu "the same with --exact-gpu" gpu_exact cpu 0.1 --exact-gpu
  else
    leave_out "the model in the box on the GPU" "$COMPARED" "the same with --exact-gpu" "$COMPARED"
  fi
  for bits in int8 int4; do
    serve_both "weights of $bits" "$bits" --quantize=$bits --int4-inputs=float32
  done
  serve_fp8
  serve_both "K and V of int8" int8_kv --kv-type=int8
}

# Serves a checkpoint of FP8 in blocks that is made from the model. With --exact-gpu its inputs are not rounded.
serve_fp8() {
  local model=$results/tales_fp8 on_gpu="weights of FP8 on the GPU" exact="weights of FP8 with --exact-gpu"
  rm -rf "$model"
  if step "a checkpoint of FP8" write_fp8 limited 60 "$bin/quire-quantize" --model=models/tales --output="$model" \
      --width=fp8 && step "weights of FP8 on the CPU" serve_cpu_fp8 answers cpu_fp8 --model="$model"; then
    serve_gpu "$on_gpu" gpu_fp8 cpu_fp8 0.3 --model="$model"
    serve_gpu "$exact" gpu_fp8_exact cpu_fp8 0.1 --model="$model" --exact-gpu
  else
    leave_out "$on_gpu" "$COMPARED" "$exact" "$COMPARED"
  fi
  rm -rf "$model"
}

# Serves the model with the flags from $3 on, and compares the GPU with the CPU. $1 says what it is, and $2 is its name.
serve_both() {
  local title=$1 name=$2
  shift 2
  if step "$title on the CPU" "serve_cpu_$name" answers "cpu_$name" "$@"; then
    serve_gpu "$title on the GPU" "gpu_$name" "cpu_$name" 0.3 "$@"
  else
    leave_out "$title on the GPU" "$COMPARED"
  fi
}
