#!/usr/bin/env bash
# A GPT's training step: qkv beside PyTorch, in turn, in one run: taking turns makes the ratios fair on a noisy machine.
# Needs python3-torch and libopenblas0-openmp (Debian).
#   [DTYPES="f32 bf16"] bench/gpt_against_peers.sh [ROUNDS] [CASE]...
#   cases: gpt2 nanogpt six six_dropout 2048 8192
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
shift || true
export OMP_NUM_THREADS
OMP_NUM_THREADS=$(nproc)
# layers width heads vocab batch length steps dropout
declare -A cases=(
  [gpt2]="12 768 12 50257 4 256 3 0"
  [nanogpt]="4 128 4 65 12 64 50 0"
  [six]="6 384 6 65 16 256 3 0"
  [six_dropout]="6 384 6 65 16 256 3 0.2"
  [2048]="6 384 6 65 1 2048 3 0"
  [8192]="6 384 6 65 1 8192 1 0"
)
[ $# -gt 0 ] || set -- gpt2 nanogpt six six_dropout 2048 8192
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
field() { awk -v name="$1" '$1 == name { print $2 }'; }
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
# report PEER OURS FILE: the peer's times, its memory, its time by ours
report() {
  local times
  times=$(field step <"$3")
  printf '; %s %s ms (%s), peak %s MB, ratio %.2f' "$1" "$(median <<<"$times")" "$(paste -sd ' ' <<<"$times")" \
    "$(field peak_memory_mb <"$3" | tail -1)" "$(awk "BEGIN { print $(median <<<"$times") / $2 }")"
}
for name in "$@"; do
  read -r layers width heads vocab batch length steps dropout <<<"${cases[$name]}"
  shape="--layers $layers --width $width --heads $heads --vocab $vocab --batch $batch --length $length --steps $steps"
  shape+=" --dropout $dropout"
  for dtype in ${DTYPES:-f32 bf16}; do
    rm -f "$scratch"/{qkv,torch}
    for _ in $(seq "$rounds"); do
      # shellcheck disable=SC2086  # words are meant
      build/bench/gpt_step --dtype "$dtype" $shape >>"$scratch/qkv"
      # shellcheck disable=SC2086
      LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp \
        /usr/bin/python3 bench/peers/torch_gpt_step.py --dtype "$dtype" $shape >>"$scratch/torch"
    done
    times=$(field step <"$scratch/qkv")
    ours=$(median <<<"$times")
    printf '%-11s %-4s qkv %s ms (%s), products alone %s ms, peak %s MB' "$name" "$dtype" "$ours" \
      "$(paste -sd ' ' <<<"$times")" "$(field products_alone <"$scratch/qkv" | median)" \
      "$(field peak_memory_mb <"$scratch/qkv" | tail -1)"
    report torch "$ours" "$scratch/torch"
    echo
  done
done
