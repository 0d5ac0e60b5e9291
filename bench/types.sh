#!/bin/sh
# Sizes and perplexities of a model by the types of its weights, plain and calibrated: a table for docs/benchmarks.md.
# usage: bench/types.sh MODEL TEXT CALIBRATION [QKV]
#   MODEL        directory of a language model whose widths are multiples of 256
#   TEXT         text that it was not trained on
#   CALIBRATION  part of the text that it was trained on
set -eu
model=$1 text=$2 calibration=$3 qkv=${4:-build/qkv}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

perplexity() {
  "$qkv" eval "$1" --data "$text" --json 2> /dev/null | python3 -c 'import json, math, sys; print("%.3f" % math.exp(json.load(sys.stdin)["loss"]))'
}
megabytes() {
  python3 -c 'import os, sys; print("%.2f" % (os.path.getsize(sys.argv[1]) / 1e6))' "$1"
}

echo "| type | MB | perplexity | calibrated |"
echo "|---|---|---|---|"
for type in f32 bf16 q8_0 q6_k q5_k_m q5_0 q4_k_m q4_k_s q4_0 iq4_xs q3_k_m q2_k; do
  "$qkv" quantize "$model" --type $type --out "$folder/plain.gguf" --overwrite 2> /dev/null
  row="| $type | $(megabytes "$folder/plain.gguf") | $(perplexity "$folder/plain.gguf") |"
  case $type in
    f32 | bf16 | q8_0) echo "$row |" ;;
    *)
      "$qkv" quantize "$model" --type $type --calibrate "$calibration" --out "$folder/calibrated.gguf" --overwrite 2> /dev/null
      echo "$row $(perplexity "$folder/calibrated.gguf") |"
      ;;
  esac
done
