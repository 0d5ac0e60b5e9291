#!/usr/bin/env bash
# A GPT's training step: qkv beside PyTorch, in turn, in one run. The other's place in the turn is what makes the
# ratio fair on a noisy machine. Needs python3-torch and libopenblas0-openmp (Debian).
#   [DTYPES="f32 bf16"] bench/gpt_against_torch.sh [ROUNDS] [CASE]...   cases: gpt2 nanogpt six six_dropout 2048 8192
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
shift || true
threads=$(nproc)
declare -A cases=(
  [gpt2]="--layers 12 --width 768 --heads 12 --vocab 50257 --batch 4 --length 256 --steps 3"
  [nanogpt]="--layers 4 --width 128 --heads 4 --vocab 65 --batch 12 --length 64 --steps 50"
  [six]="--layers 6 --width 384 --heads 6 --vocab 65 --batch 16 --length 256 --steps 3"
  [six_dropout]="--layers 6 --width 384 --heads 6 --vocab 65 --batch 16 --length 256 --steps 3 --dropout 0.2"
  [2048]="--layers 6 --width 384 --heads 6 --vocab 65 --batch 1 --length 2048 --steps 3"
  [8192]="--layers 6 --width 384 --heads 6 --vocab 65 --batch 1 --length 8192 --steps 1"
)
[ $# -gt 0 ] || set -- gpt2 nanogpt six six_dropout 2048 8192
field() { awk -v name="$1" '$1 == name { print $2 }'; }
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
for name in "$@"; do
  read -ra shape <<<"${cases[$name]}"
  for dtype in ${DTYPES:-f32 bf16}; do
    ours=() theirs=()
    for _ in $(seq "$rounds"); do
      out=$(OMP_NUM_THREADS=$threads build/bench/gpt_step --dtype "$dtype" "${shape[@]}")
      ours+=("$(field step <<<"$out")")
      peer=$(OMP_NUM_THREADS=$threads LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp \
        /usr/bin/python3 bench/peers/torch_gpt_step.py --dtype "$dtype" "${shape[@]}")
      theirs+=("$(field step <<<"$peer")")
    done
    a=$(printf '%s\n' "${ours[@]}" | median) b=$(printf '%s\n' "${theirs[@]}" | median)
    printf '%-11s %-4s qkv %s ms (%s), products alone %s ms, peak %s MB; torch %s ms (%s), peak %s MB; ratio %.2f\n' \
      "$name" "$dtype" "$a" "${ours[*]}" "$(field products_alone <<<"$out")" "$(field peak_memory_mb <<<"$out")" \
      "$b" "${theirs[*]}" "$(field peak_memory_mb <<<"$peer")" "$(awk "BEGIN { print $b / $a }")"
  done
done
