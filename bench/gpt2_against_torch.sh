#!/usr/bin/env bash
# A GPT-2 124M training step, 4 x 256 tokens: qkv beside PyTorch, in turn, in one run. The other's place in the turn
# is what makes the ratio fair on a noisy machine. Needs python3-torch and libopenblas0-openmp (Debian).
#   bench/gpt2_against_torch.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
threads=$(nproc)
field() { awk -v name="$1" '$1 == name { print $2 }'; }
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
for dtype in f32 bf16; do
  ours=() theirs=()
  for _ in $(seq "$rounds"); do
    out=$(OMP_NUM_THREADS=$threads build/bench/gpt2_step --dtype "$dtype" --steps 3)
    ours+=("$(field step <<<"$out")")
    peer=$(OMP_NUM_THREADS=$threads LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp \
      /usr/bin/python3 bench/peers/torch_gpt2_step.py --dtype "$dtype" --steps 3)
    theirs+=("$(field step <<<"$peer")")
  done
  a=$(printf '%s\n' "${ours[@]}" | median) b=$(printf '%s\n' "${theirs[@]}" | median)
  printf '%-5s qkv %s ms (%s), products alone %s ms, peak %s MB; torch %s ms (%s), peak %s MB; ratio %.2f\n' "$dtype" \
    "$a" "${ours[*]}" "$(field products_alone <<<"$out")" "$(field peak_memory_mb <<<"$out")" \
    "$b" "${theirs[*]}" "$(field peak_memory_mb <<<"$peer")" "$(awk "BEGIN { print $b / $a }")"
done
