#!/usr/bin/env bash
# Tokenizers on one thread: qkv beside Hugging Face's native library (tokenizer.json) or tiktoken (rank files, by their names),
# in turn, on the lines of a text; and training byte-level BPE of 30,000 tokens on it.
# Needs node with packages: npm install tokenizers tiktoken
#   bench/tokenizers_against_peers.sh FOLDER_OF_node_modules TEXT TOKENIZER...
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,5s/^# \?//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$1" && pwd)
text=$2
shift 2
export RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for tokenizer in "$@"; do
  read -r ours tokens < <("$here/build/bench/tokenizer_speed" "$tokenizer" "$text")
  case $tokenizer in
    *.tiktoken) peer=tiktoken file=$(basename "$tokenizer" .tiktoken) ;;
    *) peer=tokenizers file=$tokenizer ;;
  esac
  read -r theirs same < <(node "$here/bench/peers/$peer.mjs" "$folder" "$file" "$text")
  awk -v n="$tokenizer" -v a="$ours" -v b="$theirs" -v x="$tokens" -v y="$same" -v p="$peer" \
    'BEGIN { printf "%s: qkv %.1f MB/s, %s %.1f, ratio %.1f; %d and %d tokens\n", n, a, p, b, a / b, x, y }'
done
start=$(date +%s.%N)
"$here/build/qkv" tokenizer train "$text" --vocab-size 30000 --min-frequency 1 --threads 1 --out "$scratch/bpe" 2>/dev/null
ours=$(echo "$(date +%s.%N) $start" | awk '{ print $1 - $2 }')
read -r theirs _ < <(node "$here/bench/peers/tokenizers.mjs" "$folder" --train "$text" | tail -1)
awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "training: qkv %.2f s, tokenizers %.2f s, ratio %.1f\n", a, b, b / a }'
