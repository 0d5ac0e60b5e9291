#!/usr/bin/env bash
# Encoders and encoder-decoders: qkv beside PyTorch, in turn, in one run: taking turns is what makes the ratios fair on
# a noisy machine. Needs python3-torch and libopenblas0-openmp (Debian).
#   [DTYPES="f32 bf16"] bench/sequences_against_peers.sh [ROUNDS] [CASE]...
#   cases: bert pairs pairs_varied
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
shift || true
export OMP_NUM_THREADS
OMP_NUM_THREADS=$(nproc)
small="--layers 3 --width 256 --heads 8 --hidden 1024 --vocab 8000 --batch 64 --length 20 --steps 9 --dropout 0.1"
declare -A cases=(
  [bert]="encoder --batch 8 --length 128 --steps 3 --dropout 0.1"
  [pairs]="pairs $small"
  [pairs_varied]="pairs $small --vary"
)
[ $# -gt 0 ] || set -- bert pairs pairs_varied
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
field() { awk -v name="$1" '$1 == name { print $2 }'; }
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
for name in "$@"; do
  for dtype in ${DTYPES:-f32 bf16}; do
    rm -f "$scratch"/*
    for _ in $(seq "$rounds"); do
      # shellcheck disable=SC2086  # words are meant
      build/bench/sequence_step ${cases[$name]} --dtype "$dtype" >>"$scratch/qkv"
      # shellcheck disable=SC2086
      LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp \
        /usr/bin/python3 bench/peers/torch_sequence_step.py ${cases[$name]} --dtype "$dtype" >>"$scratch/torch"
    done
    for measure in forward step; do
      ours=$(field $measure <"$scratch/qkv")
      theirs=$(field $measure <"$scratch/torch")
      [ -n "$ours" ] || continue
      printf '%-12s %-4s %-7s qkv %s ms (%s), torch %s ms (%s), ratio %.2f\n' "$name" "$dtype" $measure \
        "$(median <<<"$ours")" "$(paste -sd ' ' <<<"$ours")" "$(median <<<"$theirs")" \
        "$(paste -sd ' ' <<<"$theirs")" "$(awk "BEGIN { print $(median <<<"$theirs") / $(median <<<"$ours") }")"
    done
    printf '%-12s %-4s tokens/s qkv %s, torch %s; peak %s MB, %s MB\n' "$name" "$dtype" \
      "$(field tokens_per_second <"$scratch/qkv" | median)" "$(field tokens_per_second <"$scratch/torch" | median)" \
      "$(field peak_memory_mb <"$scratch/qkv" | tail -1)" "$(field peak_memory_mb <"$scratch/torch" | tail -1)"
  done
done
