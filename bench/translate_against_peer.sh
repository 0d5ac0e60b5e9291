#!/usr/bin/env bash
# Translation by beam search: qkv beside PyTorch, in turn, with the same trained model (a pre-LN transformer with
# sinusoidal positions, as examples/translation trains them) and the same lines.
# Needs python3-torch and libopenblas0-openmp (Debian).
#   [DTYPES="f32 bf16"] [BEAMS=4] bench/translate_against_peer.sh RUN LINES [ROUNDS]
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,5s/^# \?//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
model=$1
[ ! -e "$model/best" ] || model=$model/best
lines=$2
rounds=${3:-3}
beams=${BEAMS:-4}
export OMP_NUM_THREADS
OMP_NUM_THREADS=$(nproc)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
json() { /usr/bin/python3 -c "import json, sys
for line in sys.stdin: print($1)"; }
json 'json.dumps(line.rstrip("\n"))' <"$lines" |
  "$here/build/qkv" tokenizer encode "$model" --jsonl --no-special >"$scratch/ids"
field() { awk -v name="$1" '$1 == name { print $2 }'; }
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
count=$(wc -l <"$lines")
for dtype in ${DTYPES:-f32 bf16}; do
  rm -f "$scratch"/{qkv,torch}
  for _ in $(seq "$rounds"); do
    # Loading the model counts with ours, not with the peer's.
    /usr/bin/time -f "seconds %e\nkilobytes %M" -o "$scratch/time" \
      "$here/build/qkv" translate "$model" --file "$lines" --beams "$beams" --dtype "$dtype" >"$scratch/ours"
    awk -v n="$count" '$1 == "seconds" { print "sentences_per_second", n / $2 }
      $1 == "kilobytes" { print "peak_memory_mb", int($2 / 1e3) }' "$scratch/time" >>"$scratch/qkv"
    LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp /usr/bin/python3 "$here/bench/peers/torch_translate.py" \
      "$model" "$scratch/ids" "$scratch/out" --beams "$beams" --dtype "$dtype" >>"$scratch/torch"
  done
  "$here/build/qkv" tokenizer decode "$model" --jsonl <"$scratch/out" | json 'json.loads(line)' >"$scratch/theirs"
  same=$(paste <(sed 's/ *$//' "$scratch/ours") <(sed 's/ *$//' "$scratch/theirs") | awk -F '\t' '$1 == $2' | wc -l)
  ours=$(field sentences_per_second <"$scratch/qkv" | median)
  theirs=$(field sentences_per_second <"$scratch/torch" | median)
  printf '%s beams %s: qkv %.1f sentences/s, peak %s MB; torch %.1f, %s MB; ratio %.2f; %s of %s outputs are the same\n' \
    "$dtype" "$beams" "$ours" "$(field peak_memory_mb <"$scratch/qkv" | tail -1)" "$theirs" \
    "$(field peak_memory_mb <"$scratch/torch" | tail -1)" "$(awk "BEGIN { print $ours / $theirs }")" "$same" "$count"
done
