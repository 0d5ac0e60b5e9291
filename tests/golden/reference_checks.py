#!/usr/bin/env python3
"""Runs the checkers that come with the reference cases against the built tool.

usage: reference_checks.py QKV

They lie in $QKV_REFERENCE (check/, hf/, tokenizers/); without it the exit status is 77: skipped. The
GPT-2 cases are in tests/golden/hf too, where golden_test compares them through the library; this is the command line.
"""
# Covers: qkv/cli/forward_clip.cc
import json
import os
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
DECODERS = ["gpt2", "gpt2_variant", "llama_mha", "llama_gqa", "llama_bias_headdim", "llama_rope_dynamic", "llama_rope_linear",
            "llama_rope_llama3", "llama_rope_yarn", "mistral_sliding", "qwen2", "gemma", "phi", "phi3", "olmo", "olmo2",
            "stablelm", "starcoder2", "granite", "cohere", "gpt_neox", "gpt_neox_serial", "gptj", "falcon_mqa",
            "falcon_newarch", "bloom_alibi", "mpt_alibi", "gpt_neo", "gpt_bigcode_mqa", "opt_preln", "opt_postln_proj",
            "bert_causal", "gemma2", "deepseek_v2", "deepseek_v2_yarn", "deepseek_v3", "deepseek_v3_yarn_qlora", "qwen2_moe", "ctrl",
            "xglm_sinusoidal", "mixtral_moe"]
REFORMERS = ["reformer_local", "reformer_lsh_short"]
ENCODERS = ["bert_mlm", "bert_seqcls", "bert_tokencls", "bert_qa", "bert_nsp", "bert_pretraining", "roberta_mlm",
            "distilbert_mlm", "albert_mlm", "electra_mlm", "electra_discriminator", "bigbird_full", "bigbird_sparse",
            "longformer_mlm", "deberta_v2_mlm", "xlnet", "vit", "deit"]
ENCODER_DECODERS = ["t5", "t5_v1_1", "bart", "marian", "mbart", "pegasus", "m2m100", "switch_transformers"]
SPEECH = ["whisper"]
PAIRED = ["clip"]
# What each mode of check_forward.py has something to compare in.
ALL = DECODERS + REFORMERS + ENCODERS + ENCODER_DECODERS + SPEECH + PAIRED
FORWARD_CASES = {"": ALL, "--inner": ALL, "--train": ["gpt2", "llama_mha", "bert_mlm", "t5", "bart", "vit"],
                 "--generate": DECODERS + ENCODER_DECODERS}
# Cases and vocabularies that need no settings beside them.
TOKENIZER_CASES = {"gpt2": "gpt2", "llamacpp_gpt2": "gpt2", "bert_uncased": "bert_uncased", "llama": "llama", "clip": "clip"}


def commands(qkv, reference):
    check = os.path.join(reference, "check")
    for mode, cases in FORWARD_CASES.items():
        yield [sys.executable, os.path.join(check, "check_forward.py"), qkv, os.path.join(reference, "hf"),
               *mode.split(), "--all", *cases]
    for cases, vocabulary in TOKENIZER_CASES.items():
        yield [sys.executable, os.path.join(check, "check_tokenizer.py"), qkv,
               os.path.join(reference, "tokenizers", "vocab", vocabulary),
               os.path.join(reference, "tokenizers", "cases", cases + ".json")]


def not_written_back(qkv, reference):
    """Cases whose tensors are others after a model was read and written."""
    sys.path.insert(0, os.path.join(reference, "check"))
    import st
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(text, "w", encoding="utf8") as file:
            file.write("a b c\n")
        tokens = os.path.join(folder, "tokens")
        subprocess.run([qkv, "tokenizer", "train", text, "--type", "wordpiece", "--vocab-size", "20", "--out", tokens],
                       check=True, capture_output=True)
        for case in set(ALL) - set(PAIRED):
            source, out = os.path.join(folder, case), os.path.join(folder, case + ".out")
            shutil.copytree(os.path.join(reference, "hf", case), source)
            shutil.copy(os.path.join(tokens, "tokenizer.json"), source)
            subprocess.run([qkv, "average", source, source, "--out", out], check=True, capture_output=True)
            before, after = (st.load(os.path.join(d, "model.safetensors")) for d in (source, out))
            if before != after:
                print(f"{case}: written back with other tensors")
                differ += 1
    return differ


def objective_of(case):
    """What is learnt where training goes on as it began: its arguments."""
    if case in ENCODER_DECODERS:
        return ["train.objective=sequence_to_sequence", "data.train=pairs.tsv", "train.batch_tokens=200"]
    if case in DECODERS + REFORMERS:
        return ["train.objective=next_token", "data.train=text.txt", "train.batch=1", "train.window=8"]
    return ["train.objective=masked", "data.train=text.txt", "train.batch_tokens=200"]


# Whose head is not the objective's; permuted reading has no class in XLNet's family.
OF_OTHER_HEADS = {"xlnet", "bert_seqcls", "bert_tokencls", "bert_qa", "bert_nsp", "bert_pretraining", "electra_discriminator", "vit", "deit"}


def changed_by_tuning(qkv, reference):
    """Cases that training changes though no weight moves: tensors, or the family and the class. A step at a rate that no f32
    number feels goes through reading, training and writing."""
    sys.path.insert(0, os.path.join(reference, "check"))
    import st
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("text.txt", "a b c a b c b a\n" * 600), ("pairs.tsv", "source\ttarget\n" + "a b\tb a\n" * 40), ("empty.toml", "")):
            with open(os.path.join(folder, name), "w", encoding="utf8") as file:
                file.write(text)
        subprocess.run([qkv, "tokenizer", "train", "text.txt", "--type", "wordpiece", "--vocab-size", "20", "--out", "tokens"],
                       cwd=folder, check=True, capture_output=True)
        for case in sorted(set(ALL) - set(PAIRED) - set(SPEECH) - OF_OTHER_HEADS):
            source, run = os.path.join(folder, case), os.path.join(folder, "run")
            shutil.copytree(os.path.join(reference, "hf", case), source)
            shutil.copy(os.path.join(folder, "tokens", "tokenizer.json"), source)
            shutil.rmtree(run, ignore_errors=True)
            settings = ["model.from=" + case, "train.out=run", "train.steps=1", "train.precision=f32", "train.learning_rate=1e-30",
                        "train.warmup_steps=0", "train.weight_decay=0", *objective_of(case)]
            done = subprocess.run([qkv, "train", "empty.toml", *(a for s in settings for a in ("--set", s))], cwd=folder,
                                  capture_output=True, text=True)
            if done.returncode != 0:
                print(f"{case}: {done.stderr.strip().splitlines()[-1]}")
                differ += 1
                continue
            before, after = (st.load(os.path.join(d, "model.safetensors")) for d in (source, os.path.join(run, "last")))
            with open(os.path.join(source, "config.json"), encoding="utf8") as file:
                said = json.load(file)
            with open(os.path.join(run, "last", "config.json"), encoding="utf8") as file:
                says = json.load(file)
            keys = [k for k in ("model_type", "architectures") if said[k] != says[k]]
            tensors = [k for k in before if before[k] != after.get(k)] + [k for k in after if k not in before]
            if keys or tensors:
                print(f"{case}: saved with other {keys}, {tensors[:3]}")
                differ += 1
    return differ


# Families whose published code has a classifier of sequences: a new head on their models has its form.
CLASSIFIED = ["gpt2", "llama_gqa", "mistral_sliding", "phi", "opt_preln", "gpt_neox", "bert_mlm", "roberta_mlm", "distilbert_mlm", "albert_mlm",
              "electra_mlm", "deberta_v2_mlm", "longformer_mlm", "xlnet"]


def adapters_of_no_family(qkv, reference):
    """Cases whose adapter with a new classifier has names that their family does not know."""
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("rows.tsv", "text\tlabel\n" + "".join(f"a b {i}\tx\nb a {i}\ty\n" for i in range(30))), ("empty.toml", "")):
            with open(os.path.join(folder, name), "w", encoding="utf8") as file:
                file.write(text)
        subprocess.run([qkv, "tokenizer", "train", "rows.tsv", "--type", "wordpiece", "--vocab-size", "40", "--out", "tokens"], cwd=folder,
                       check=True, capture_output=True)
        for case in CLASSIFIED:
            shutil.copytree(os.path.join(reference, "hf", case), os.path.join(folder, case))
            shutil.copy(os.path.join(folder, "tokens", "tokenizer.json"), os.path.join(folder, case))
            settings = ["model.from=" + case, "train.out=run-" + case, "train.steps=1", "model.lora_rank=2", "train.objective=classify",
                        "data.train=rows.tsv", "train.batch_tokens=100"]
            subprocess.run([qkv, "train", "empty.toml", *(a for s in settings for a in ("--set", s))], cwd=folder, check=True,
                           capture_output=True)
            types = []
            # And a classifier that goes on from one.
            for out, begin in (("tuned-", case), ("again-", "tuned-" + case)):
                again = ["model.from=" + begin, f"train.out={out}{case}", "train.steps=1", *settings[4:]]
                subprocess.run([qkv, "train", "empty.toml", *(a for s in again for a in ("--set", s))], cwd=folder, check=True,
                               capture_output=True)
            for path in (case, os.path.join("run-" + case, "last"), os.path.join("again-" + case, "last")):
                with open(os.path.join(folder, path, "config.json"), encoding="utf8") as file:
                    types.append(json.load(file)["model_type"])
            if len(set(types)) > 1:
                print(f"{case}: an adapter with a classifier is written as {types[1]}, one that goes on from another as {types[2]}")
                differ += 1
    return differ


def speech_differs(qkv, reference):
    """Generated ids of Whisper's cases, whose outputs begin with tokens that check_forward.py does not hand on."""
    sys.path.insert(0, os.path.join(reference, "check"))
    import st
    differ = 0
    for case in SPEECH:
        folder = os.path.join(reference, "hf", case)
        expected = st.load(os.path.join(folder, "expected.safetensors"))
        with open(os.path.join(folder, "meta.json"), encoding="utf8") as file:
            runs = json.load(file)["generation"]
        for run, settings in runs.items():
            begin = expected.get(f"gen.{run}.decoder_input_ids") or expected["gen.greedy.decoder_input_ids"]
            keys = ",".join(f"{k}={json.dumps(v)}" for k, v in settings.items() if k != "inputs")
            with tempfile.TemporaryDirectory() as scratch:
                given, made = os.path.join(scratch, "in"), os.path.join(scratch, "out")
                st.save(given, {"input_features": expected["input_features"], "decoder_input_ids": begin})
                subprocess.run([qkv, "forward", folder, "--inputs", given, "--outputs", made, "--generate", keys],
                               check=True, timeout=300)
                same = st.load(made)["sequences"][2] == expected[f"gen.{run}.sequences"][2]
            print(f"{case} {run}: {'the same ids' if same else 'OTHER IDS'}", flush=True)
            differ += not same
    return differ


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    reference = os.environ.get("QKV_REFERENCE")
    if not reference:
        print("skipped: QKV_REFERENCE is not set")
        return SKIPPED
    qkv = os.path.abspath(sys.argv[1])
    for needed in (qkv, os.path.join(reference, "check", "check_forward.py")):
        if not os.path.exists(needed):
            print(f"{needed}: not found")
            return 1
    failed = 0
    for command in commands(qkv, reference):
        print("$", " ".join(command), flush=True)
        done = subprocess.run(command, timeout=300)
        print(f"exit status {done.returncode}", flush=True)
        failed += done.returncode != 0
    failed += speech_differs(qkv, reference) + not_written_back(qkv, reference)
    failed += changed_by_tuning(qkv, reference) + adapters_of_no_family(qkv, reference)
    print(f"{failed} checks failed" if failed else "all checks pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
