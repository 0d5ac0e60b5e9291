#!/usr/bin/env python3
"""qkv train: mixed data sets, and texts larger than memory.

usage: test_train_data.py QKV [unittest arguments]
"""
import json

from qkv_cli import CliTest, configuration, main, read, read_text, WORDS


class Data(CliTest):
    def test_a_text_larger_than_memory(self):
        line = "the quick brown fox jumps over a lazy dog and then it sleeps\n"
        self.write("large.txt", line * (48_000_000 // len(line)))
        self.write("config.toml", configuration(data__train="large.txt", data__valid_fraction=0.0005, steps=2,
                                                tokenizer__type="byte", eval_windows=4, sample_tokens=0))
        memory = 144 << 20  # the tokens alone take 192 MB
        self.ok("train", "config.toml", memory=memory)
        again = self.ok("train", "config.toml", "--set", "train.out=again", memory=memory)
        self.assertIn("(cached)", again.err)
        uncached = self.ok("train", "config.toml", "--set", "train.out=uncached", "--set", "data.cache=false", memory=memory)
        self.assertNotIn("(cached)", uncached.err)
        for other in ("again", "uncached"):
            self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path(other, "last/model.safetensors")))
        # The limit is one: what does not fit is refused.
        self.refused("train", "config.toml", "--set", "train.out=none", "--set", "model.width=1024", memory=memory,
                     status=1, allow_progress=True)

    def test_pairs_larger_than_memory(self):
        def ok(out, *sets, memory):
            return self.ok("train", "pairs.toml", *(a for s in (f"train.out={out}", *sets) for a in ("--set", s)), memory=memory)
        line = "the quick brown fox jumps over a lazy dog and then it sleeps"
        count = 24_000_000 // len(line)
        self.write("a.txt", f"{line}\n" * count)
        self.write("b.txt", f"{line[::-1]}\n" * count)
        self.write("pairs.toml", configuration(data__train="a.txt", data__valid_fraction=0.00001, steps=2, tokenizer__type="byte",
                                               sample_tokens=0, model__architecture="encoder_decoder", model__context=64)
                   .replace("batch = 4", "batch_tokens = 300"))
        memory = 144 << 20  # the tokens alone take 192 MB
        ok("run", "data.train_target=b.txt", memory=memory)
        # Rows of columns are the same pairs.
        self.write("rows.tsv", "source\ttarget\n" + f"{line}\t{line[::-1]}\n" * count)
        ok("rows", "data.train=rows.tsv", "data.cache=false", memory=memory)
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("rows/last/model.safetensors")))

    def test_data_sets_are_mixed(self):
        self.write("a.tsv", "source\ttarget\n" + "".join(f"{w}\t{w[::-1]}\n" for w in WORDS * 9))
        self.write("b.tsv", "text\tlabel\n" + "".join(f"{w}\t{len(w)}\n" for w in WORDS * 9))
        self.write("config.toml", """
mix.backwards.train = "a.tsv"
mix.backwards.prefix = "<"
mix.backwards.weight = 3
mix.length.train = "b.tsv"
mix.length.source_column = "text"
mix.length.target_column = "label"
mix.length.prefix = "#"
tokenizer.type = "byte"
model.architecture = "encoder_decoder"
model.context = 12
model.width = 32
model.layers = 1
model.heads = 4
train.out = "run"
train.steps = 300
train.batch_tokens = 300
train.eval_every = 150
train.warmup_steps = 20
train.learning_rate = 0.01
train.precision = "f32"
""")
        trained = self.ok("train", "config.toml")
        self.assertRegex(trained.err, r"75% backwards: .*25% length: ")
        self.assertRegex(trained.err, r"validation loss [0-9.]+ \(backwards [0-9.]+, length [0-9.]+\)")
        lengths = self.ok("translate", "run", "--prefix", "#", stdin="quick\n\nfox\n").out
        self.assertEqual(lengths, "5\n\n3\n")
        self.assertEqual(self.ok("translate", "run", "--prefix", "<", stdin="fox\n").out, "xof\n")
        self.assertEqual(self.ok("translate", "run", stdin="<fox\n").out, "xof\n")
        judged = json.loads(self.ok("eval", "run", "--data", "b.tsv", "--source-column", "text", "--target-column", "label",
                                    "--prefix", "#", "--json").out)
        self.assertGreater(judged["exact_match"], 0.9)
        page = read_text(self.path("run/report.html"))
        for part in ("valid loss backwards", "valid loss length"):
            self.assertIn(part, page)
        # The run's own settings start it again; other weights do not continue it.
        self.ok("train", "run/config.toml", "--set", "train.out=again")
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("again/last/model.safetensors")))
        self.refused("train", "config.toml", "--resume", "--set", "mix.length.weight=2", status=1, says="mix.length.weight")
        # Older versions knew fewer settings, in another order: what they did not know had its default.
        state = json.loads(read(self.path("run/last/trainer_state.json")))
        lines = state["fingerprint"].splitlines(keepends=True)

        def older(without):
            kept = [line for line in lines if line.split(" = ")[0] not in without]
            self.assertEqual(len(kept), len(lines) - len(without))
            self.write("run/last/trainer_state.json", json.dumps({**state, "fingerprint": "".join(reversed(kept))}))
        older(["mix.length.columns", "data.split_seed"])
        self.ok("train", "config.toml", "--resume")
        older(["mix.length.weight"])
        self.ok("train", "config.toml", "--resume")
        older(["mix.length.prefix"])
        self.refused("train", "config.toml", "--resume", status=1, says=["without", "mix.length.prefix"])
        self.write("run/last/trainer_state.json", json.dumps({**state, "fingerprint": state["fingerprint"] + "data.more = 1\n"}))
        self.refused("train", "config.toml", "--resume", status=1, says=["data.more = 1"])
        self.refused("train", "config.toml", "--set", "mix.length.train=none.tsv", "--set", "train.out=none", status=1,
                     says="none.tsv")
        plan = json.loads(self.ok("plan", "config.toml", "--json").out)
        self.assertEqual(plan["passes"], 0)  # the sets have passes of their own
        self.assertGreater(plan["seconds_per_step"], 0)


if __name__ == "__main__":
    main()
