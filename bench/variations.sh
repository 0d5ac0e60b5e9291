#!/usr/bin/env bash
# Every variation of the model, trained alike on the characters of Shakespeare (examples/shakespeare_char.toml): the lowest
# validation loss, tokens a second, parameters and planned memory, as a table. One seed and one setting of everything else: what is
# told apart by a hundredth may be chance.
#   [QKV=build/qkv] [ONLY=REGEX] bench/variations.sh [--set key=value]...      (all runs with these settings, too; ONLY those
#   whose names match)
set -euo pipefail
cd "$(dirname "$0")/.."
qkv=${QKV:-build/qkv}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
swiglu="model.gated=true model.activation=silu model.hidden=352"
variations=(
  "GPT-2's (learned positions, pre-LN, GELU):"
  "sinusoidal positions:model.positions=sinusoidal"
  "relative positions (T5):model.positions=relative"
  "a number for each of 64 distances (Toeplitz):model.positions=toeplitz model.relative_distance=64"
  "rotary:model.positions=rotary"
  "rotary, half of each head:model.positions=rotary model.rotary_width=16"
  "ALiBi:model.positions=alibi"
  "no positions:model.positions=none"
  "learned, in rows of 8:model.grid=8"
  "axial, rows of 8 and columns:model.grid=8 model.axial_width=64"
  "rotary, in rows of 8:model.positions=rotary model.grid=8"
  "Shaw's vectors of 16 distances:model.relative_attention=shaw"
  "the same, of keys, too:model.relative_attention=shaw_both"
  "Transformer-XL's:model.relative_attention=transformer_xl"
  "the same, and a memory of 64 tokens:model.relative_attention=transformer_xl model.memory=64"
  "rotary, and a memory of 64 tokens:model.positions=rotary model.memory=64"
  "DeBERTa's:model.relative_attention=disentangled"
  "LSTMs for attention:model.mixer=lstm"
  "GRUs for attention:model.mixer=gru"
  "averages for attention:model.mixer=average"
  "linear attention:model.mixer=linear_attention"
  "the delta rule:model.mixer=delta_rule"
  "Gated DeltaNet:model.mixer=gated_delta"
  "Mamba:model.mixer=mamba"
  "Mamba-2:model.mixer=mamba2 model.mamba2_head_width=32 model.mamba2_state=32"
  "RWKV-4:model.mixer=rwkv4 model.channel_mix=rwkv4 model.activation=relu_squared"
  "RWKV-7:model.mixer=rwkv7 model.channel_mix=rwkv7 model.activation=relu_squared"
  "random features:model.mixer=random_features"
  "gated convolutions:model.mixer=convolution"
  "AFT, full:model.mixer=attention_free"
  "AFT, local:model.mixer=attention_free model.aft_form=local model.aft_window=16"
  "AFT, simple:model.mixer=attention_free model.aft_form=simple"
  "AFT, conv:model.mixer=attention_free model.aft_form=conv model.aft_window=16"
  "post-LN:model.norm=post"
  "sandwich:model.norm=sandwich"
  "norm of branches (OLMo 2):model.norm=branch"
  "no norms:model.norm=none"
  "norms of the stream:model.norm=stream"
  "no norm at the end:model.final_norm=false"
  "RMSnorm:model.normalization=rms"
  "LayerNorm without weights:model.normalization=layer_plain"
  "ScaleNorm:model.normalization=scale"
  "ScaleNorm and FixNorm:model.normalization=scale model.embedding_unit=true model.embedding_scaled=true"
  "capsules' squash:model.normalization=capsule"
  "batch norm:model.normalization=batch"
  "parallel branches, two norms:model.branches=parallel"
  "parallel branches, one norm:model.branches=one_norm"
  "two streams (reversible):model.branches=reversible model.tied=false"
  "ReLU:model.activation=relu"
  "SiLU:model.activation=silu"
  "SwiGLU, 2/3 of the hidden width:$swiglu"
  "grouped queries (2 of 4):model.kv_heads=2"
  "multi-query:model.kv_heads=1"
  "normed queries and keys:model.query_key_norm=heads"
  "keys that are the queries:model.shared_query_key=[1]"
  "the same, hashed in chunks of 16:model.shared_query_key=[1] model.hashed_beyond=16 model.hash_rounds=2"
  'window of 16:model.patterns=["window~16"]'
  'windows of 16 and all, in turn:model.patterns=["window~16","all"]'
  'dilated, 8 of 16:model.patterns=["window~8~dilated~2"]'
  'strided, 8:model.patterns=["window~8~stride~8"]'
  'blocks of 8, fixed:model.patterns=["block~8~summary~1"]'
  "sinusoidal, scaled embeddings:model.positions=sinusoidal model.embedding_scaled=true"
  "quick GELU:model.activation=gelu_quick"
  "squared ReLU:model.activation=relu_squared"
  "two hidden layers of 256:model.hidden_layers=2 model.hidden=256"
  "capped scores and logits:model.attention_cap=50 model.logit_cap=30"
  "queries, keys and values cut off at 1:model.attention_clip=1"
  "sinks:model.attention_sinks=true"
  "latent attention (32):model.positions=rotary model.rotary_width=16 model.kv_latent=32"
  "4 experts of 128, 2 of a token:model.experts=4 model.expert_hidden=128"
  "8 experts of 64, 2 of a token:model.experts=8 model.expert_hidden=64"
  "8 experts of 48, sigmoid, 1 shared of 128:model.experts=8 model.expert_hidden=48 model.shared_hidden=128 model.router_score=sigmoid"
  "the same, a bias of the choice for balance:model.experts=8 model.expert_hidden=48 model.shared_hidden=128 model.router_score=sigmoid model.expert_choice_bias=true model.expert_balance=0"
  "8 experts of 256, 2 of a token:model.experts=8 model.expert_hidden=256"
  "preset llama:model.preset=llama"
  "preset palm:model.preset=palm"
  "preset gemma:model.preset=gemma"
  "preset olmo2:model.preset=olmo2"
  "preset gemma2:model.preset=gemma2"
  "preset mixtral:model.preset=mixtral"
  "preset deepseek-mla:model.preset=deepseek-mla"
  "preset gopher:model.preset=gopher"
  "preset riedel-g:model.preset=riedel-g"
)
echo "| variation | validation loss | bits per byte | tokens/s | parameters | memory (MB) |"
echo "|---|---|---|---|---|---|"
for entry in "${variations[@]}"; do
  [[ ${entry%%:*} =~ ${ONLY:-.} ]] || continue
  set_options=()
  for setting in ${entry#*:}; do set_options+=(--set "${setting//\~/ }"); done  # ~: a space
  log=$("$qkv" train examples/shakespeare_char.toml --set train.out="$scratch/run" --set train.sample_tokens=0 --overwrite \
    "${set_options[@]}" "$@" 2>&1) || { echo "$log" >&2; exit 1; }
  best=$(grep -o 'validation loss [0-9.]* ([^)]*)' <<<"$log" | sort -k3,3g | head -1)
  speed=$(awk -F'"tokens_per_second":' 'NF > 1 { split($2, a, /[,}]/); print a[1] }' "$scratch/run/metrics.jsonl" | sort -n |
    awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }')
  echo "| ${entry%%:*} | $(awk '{ print $3 }' <<<"$best") | $(grep -o '[0-9.]* bits' <<<"$best" | awk '{ print $1 }') | $speed | $(
    grep -o '[0-9.]*[kM] parameters' <<<"$log" | head -1 | awk '{ print $1 }') | $(
    grep -o '[0-9]* MB' <<<"$log" | head -1 | awk '{ print $1 }') |"
done
