#!/usr/bin/env bash
# Compares vocabularies that the trainers learn with those of Hugging Face's native library on the same text: byte-level BPE's merges in their order, and the
# vocabularies of WordPiece and of words. Needs node with npm install tokenizers.
#   bench/trained_vocabularies.sh FOLDER_OF_node_modules TEXT
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,4s/^# \?//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for kind in bpe wordpiece word; do
  "$here/build/qkv" tokenizer train "$2" --type "$kind" --vocab-size 30000 --min-frequency 1 --out "$scratch/$kind" 2>/dev/null
  node "$here/bench/peers/trained_vocabulary.mjs" "$folder" "$kind" "$2" "$scratch/$kind/tokenizer.json"
done
