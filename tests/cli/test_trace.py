#!/usr/bin/env python3
"""qkv trace: the walk through a pass, and questions about it.

usage: test_trace.py QKV [unittest arguments]
"""
# Covers: qkv/cli/trace_command.cc, qkv/cli/trace_questions.cc, qkv/trace/step.cc, qkv/trace/walk.cc
# Covers: qkv/trace/example.cc, qkv/trace/page.cc, qkv/cli/trace_changes.cc, qkv/cli/trace_heads.cc
# Covers: qkv/bridge/forward_inputs.cc, qkv/cli/trace_lens.cc, qkv/cli/trace_texts.cc, qkv/trace/picture.cc, qkv/train/run/run_trace.cc, qkv/report/trace_section.cc
import base64
import json
import math
import os
import random
import re
import xml.etree.ElementTree

from qkv_cli import FinishedRun, load_safetensors, main, make_text, read_text, safetensors_bytes


class Trace(FinishedRun):
    TEXT = "the fox ran"

    def json_of(self, *arguments):
        return json.loads(self.ok("trace", self.run_dir, "--text", self.TEXT, "--json", *arguments).out)

    def test_walk(self):
        out = self.ok("trace", self.run_dir, "--text", self.TEXT).out
        for part in ("Algorithm 10, DTransformer:", "\nx:", "token embeddings:  W_e[:, x[t]]  (Algorithm 1)",
                     "== decoder block 0, from 0 to", "queries:  Q = W_q X~ + b_q 1^T  (Algorithm 10, line 6)",
                     "S / sqrt(d_attn), S = K^T Q, -inf where the key comes later", "softmax of the scores", "Y = [Y^1; ...; Y^H]",
                     "residual sum:  X = X + MHAttention(X~)  (Algorithm 10, line 6)", "X~ = layer_norm(X)  (Algorithm 10, line 7)",
                     "neurons:  gelu", "(Algorithm 10, line 8)", "last norm:  X = layer_norm(X)  (Algorithm 10, line 10)",
                     "P = softmax(W_u X)"):
            self.assertIn(part, out)
        # Choices of blocks, heads, tokens, values, numbers.
        some = self.ok("trace", self.run_dir, "--text", self.TEXT, "--values", "*.probabilities,logits", "--heads", "1",
                       "--tokens", "1-2", "--precision", "2", "--best", "2", "--layers", "0").out
        self.assertIn("head 1\n", some)
        self.assertNotIn("head 0\n", some)
        self.assertNotIn("queries:", some)
        lines = some.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("  logits"))
        self.assertEqual([line.split()[0] for line in lines[at + 1:]], ["1", "2"])
        self.assertRegex(lines[at + 1], r"^  1 \S+ +\S+ -?\d+\.\d\d, \S+ -?\d+\.\d\d$")
        shades = self.ok("trace", self.run_dir, "--text", self.TEXT, "--values", "*.0.attention.probabilities", "--heat").out
        self.assertIn("█", shades)

    def test_json_and_tensors_are_the_forward_pass(self):
        values = {v["name"]: v for v in self.json_of()["values"]}
        self.ok("trace", self.run_dir, "--text", self.TEXT, "--out", "t.safetensors")
        tensors = load_safetensors(self.path("t.safetensors"))
        self.assertEqual(set(values), set(tensors))

        def flat(x):
            return [y for part in x for y in flat(part)] if isinstance(x, list) else [x]
        for name, (shape, numbers) in tensors.items():
            self.assertEqual(values[name]["shape"], shape, name)
            for a, b in zip(flat(values[name]["values"]), numbers):
                self.assertTrue(a is None and math.isinf(b) or abs(a - b) < 1e-5, name)
        ids = [t["id"] for t in self.json_of()["tokens"]]
        again = json.loads(self.ok("trace", self.run_dir, "--ids", " ".join(map(str, ids)), "--json").out)
        self.assertEqual([v["values"] for v in again["values"]], [v["values"] for v in values.values()])
        for row in values["probabilities"]["values"]:
            self.assertAlmostEqual(sum(row), 1, 5)
        for head in values["decoder.block.0.attention.probabilities"]["values"]:
            for t, row in enumerate(head):
                self.assertAlmostEqual(sum(row), 1, 5)
                self.assertEqual(row[t + 1:], [0] * (len(row) - t - 1))
        # X of a block is what came in and what its branches add.
        rows = lambda name: flat(values[name]["values"])
        block = "decoder.block.0."
        for x, a, f, y in zip(rows("decoder.embedding"), rows(block + "attention.branch"), rows(block + "feed_forward.branch"),
                              rows(block + "feed_forward.sum")):
            self.assertAlmostEqual(x + a + f, y, 4)

    def test_lens_and_contributions(self):
        probabilities = next(v["values"] for v in self.json_of()["values"] if v["name"] == "probabilities")
        lens = self.json_of("--lens")["lens"]
        for row, token in zip(probabilities, lens[-1]["tokens"]):
            self.assertAlmostEqual(token["probability"], max(row), 4)
            self.assertEqual(token["id"], max(range(len(row)), key=row.__getitem__))
        self.assertEqual(lens[0]["layer"], "decoder.embedding")
        why = self.json_of("--why")
        self.assertAlmostEqual(sum(c["value"] for c in why["contributions"]), why["logit"], 3)
        self.assertEqual((why["position"], why["id"]), (len(probabilities) - 1, lens[-1]["tokens"][-1]["id"]))
        other = self.json_of("--why", "--of", "d", "--tokens", "1")
        self.assertEqual(other["position"], 1)
        self.assertAlmostEqual(sum(c["value"] for c in other["contributions"]), other["logit"], 3)
        self.assertIn("sum", self.ok("trace", self.run_dir, "--text", self.TEXT, "--why").out)
        self.assertIn("block 0", self.ok("trace", self.run_dir, "--text", self.TEXT, "--lens").out)

    def test_tuned_lens(self):
        self.write("text.txt", make_text(300))
        fitted = json.loads(self.ok("trace", self.run_dir, "--fit-lens", "text.txt", "--out", "lens.safetensors", "--limit", "20000", "--json").out)
        self.assertGreaterEqual(fitted["tokens"], 20000)
        self.assertLess(fitted["divergence"], fitted["divergence_before"])
        plain, tuned = self.json_of("--lens")["lens"], self.json_of("--lens", "--tuned", "lens.safetensors")["lens"]
        self.assertNotEqual(plain[0], tuned[0])
        for a, b in zip(plain[-1]["tokens"], tuned[-1]["tokens"]):  # the last layer is the model
            self.assertEqual(a["id"], b["id"])
            self.assertAlmostEqual(a["probability"], b["probability"], 5)
        self.assertIn("tuned lens", self.ok("trace", self.run_dir, "--text", self.TEXT, "--lens", "--tuned", "lens.safetensors").out)
        self.ok("trace", self.run_dir, "--text", self.TEXT, "--page", "t.html", "--tuned", "lens.safetensors")
        page = read_text(self.path("t.html"))
        self.assertIn("Tuned lens", page)
        data = json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])
        self.assertEqual([best[0][0] for best in data["lens"][0]], [t["piece"] for t in tuned[0]["tokens"]])
        self.refused("trace", self.run_dir, "--fit-lens", "text.txt", says=["--out"])
        self.refused("trace", self.run_dir, "--text", self.TEXT, "--tuned", "lens.safetensors", says=["--tuned", "--lens"])
        self.refused("trace", self.run_dir, "--text", self.TEXT, "--lens", "--tuned", "text.txt", says=["text.txt"])

    def test_ablation(self):
        probabilities = next(v["values"] for v in self.json_of()["values"] if v["name"] == "probabilities")[-1]
        got = self.json_of("--ablate", "head:0.1", "attention:0", "--best", "4")
        self.assertEqual(len(got["tokens"]), 4)
        for token in got["tokens"]:
            self.assertAlmostEqual(token["before"], probabilities[token["id"]], 5)
        self.assertGreater(got["kl_divergence"], 0)
        resampled = [self.json_of("--ablate", "attention:0", "--by", "resample", "--seed", seed) for seed in ("1", "1", "2")]
        self.assertEqual(resampled[0], resampled[1])
        self.assertNotEqual(resampled[0]["kl_divergence"], resampled[2]["kl_divergence"])
        written = self.json_of("--ablate", "attention:0", "--write", "5")["written"]
        plain = self.ok("generate", self.run_dir, "--prompt", self.TEXT, "--tokens", "5", "--temperature", "0").out
        self.assertTrue(plain.startswith(self.TEXT + written["before"]), (plain, written))
        self.assertEqual(len(written["after"]), len(written["before"]))
        mean = self.json_of("--ablate", "attention:0", "--by", "mean")
        self.assertNotEqual(mean["kl_divergence"], got["kl_divergence"])
        self.assertIn("KL divergence", self.ok("trace", self.run_dir, "--text", self.TEXT, "--ablate", "block:0").out)

    def test_saliency(self):
        """Shares of tokens sum to the change that they explain; 0 steps: one gradient."""
        probabilities = next(v["values"] for v in self.json_of()["values"] if v["name"] == "logits")[-1]
        got = self.json_of("--saliency", "--steps", "200")
        self.assertAlmostEqual(got["logit"], max(probabilities), 3)
        self.assertAlmostEqual(sum(t["value"] for t in got["tokens"]), got["logit"] - got["baseline"], delta=0.02)
        same = self.json_of("--saliency", "--steps", "200", "--of", "id:%d" % got["id"], "--baseline", "t")
        self.assertNotEqual(same["baseline"], got["baseline"])
        self.assertAlmostEqual(same["logit"], got["logit"], 5)
        one = self.json_of("--saliency", "--steps", "0")
        self.assertNotIn("baseline", one)
        self.assertEqual(len(one["tokens"]), len(got["tokens"]))
        less = self.json_of("--saliency", "--of", "d", "--instead", "f")
        self.assertEqual(less["instead"], "f")
        self.assertRegex(self.ok("trace", self.run_dir, "--text", self.TEXT, "--saliency").out,
                         r"Each token adds, compared with .*\n  +0 \S+ +-?\d+\.\d{3}")

    def test_adding_a_vector(self):
        nothing = self.json_of("--add", "the dog", "--times", "0")
        self.assertAlmostEqual(nothing["kl_divergence"], 0, 6)
        itself = self.json_of("--add", "the dog", "--minus", "the dog", "--times", "5")
        self.assertAlmostEqual(itself["kl_divergence"], 0, 6)
        some = self.json_of("--add", "the dog", "--minus", "a fox", "--times", "5", "--at", "0", "--write", "4")
        self.assertGreater(some["kl_divergence"], 0)
        self.assertEqual(some["at"], "decoder.block.0.feed_forward.sum")
        self.assertIn("before", some["written"])

    def test_circuits_and_roles(self):
        got = json.loads(self.ok("trace", self.run_dir, "--circuits", "--json").out)
        heads = {(h["layer"], h["head"]) for h in got["heads"]}
        self.assertEqual(len(heads), len(got["heads"]))
        for h in got["heads"]:
            self.assertEqual(len(h["qk_singular_values"]), h["qk_rank"])
            self.assertLessEqual(abs(h["copying"]), 1)
        out = self.ok("trace", self.run_dir, "--circuits").out
        self.assertIn("at most min(D, d_k)", out)
        self.write("text.txt", make_text(300))
        roles = json.loads(self.ok("trace", self.run_dir, "--roles", "text.txt", "--limit", "200", "--json").out)
        self.assertEqual({(h["layer"], h["head"]) for h in roles["heads"]}, heads)
        for h in roles["heads"]:
            self.assertLessEqual(h["previous"] + h["first"] + h["same"], 3)
            self.assertEqual(h["next"], 0)  # a decoder sees nothing behind
        self.assertRegex(self.ok("trace", self.run_dir, "--roles", "text.txt").out, r"\n0\.0 +0\.\d\d")
        self.write("bank.conllu", "".join("1\ta\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tfox\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_\n"
                                          "3\tdid\t_\tVERB\t_\t_\t0\troot\t_\t_\n4\tit\t_\tNOUN\t_\t_\t3\tobj\t_\t_\n\n" for _ in range(3)))
        found = json.loads(self.ok("trace", self.run_dir, "--roles", "bank.conllu", "--relation", "obj", "--json").out)
        self.assertEqual((found["pairs"], found["left_out"]), (3, 0))
        self.write("long.conllu", read_text(self.path("bank.conllu")) +
                   "1\tsees\t_\tVERB\t_\t_\t0\troot\t_\t_\n2\tjumpingoverthelazydog\t_\tNOUN\t_\t_\t1\tobj\t_\t_\n\n")
        self.assertIn("3 pairs of words related by obj. 1 sentence left out",
                      self.ok("trace", self.run_dir, "--roles", "long.conllu", "--relation", "obj").out)
        self.assertEqual(found["dependent"]["best_distance"], {"distance": 1, "found": 1})
        self.assertEqual(found["head"]["best_distance"], {"distance": -1, "found": 1})
        for h in found["dependent"]["heads"]:
            self.assertEqual(h["found"], 0)  # the verb does not see the object behind it
        self.refused("trace", self.run_dir, "--roles", "bank.conllu", "--relation", "iobj", says=["bank.conllu", "iobj"])
        self.refused("trace", self.run_dir, "--roles", "text.txt", "--relation", "obj", says=[".conllu", "text.txt"])
        self.refused("trace", self.run_dir, "--roles", "bank.conllu", "--relation", "obj", "--seed", "1", says=["--seed", "--relation"])
        # A text is read to its end, or to the limit, however long its lines are.
        self.write("line.txt", make_text(300).replace("\n", " "))
        counts = [json.loads(self.ok("trace", self.run_dir, "--roles", name, "--json").out)["tokens"] for name in ("text.txt", "line.txt")]
        self.assertGreater(min(counts), 1200)
        self.assertLess(abs(counts[0] - counts[1]), 64)
        short = json.loads(self.ok("trace", self.run_dir, "--roles", "-", "--limit", "100", "--json", stdin=make_text(300)).out)
        self.assertLess(short["tokens"], 132)
        self.refused("trace", self.run_dir, "--circuits", "--text", "a", says=["--text", "--circuits"])
        self.refused("trace", self.run_dir, "--relation", "obj", says=["--roles FILE.conllu"])
        self.write("empty.txt", "")
        self.refused("trace", self.run_dir, "--roles", "empty.txt", says=["empty.txt", "two tokens"])

    def test_pictures(self):
        """Each value and answer as SVG, that parses and has the names and numbers."""
        def drawn(*arguments):
            self.ok("trace", self.run_dir, *arguments, "--picture", "p.svg")
            text = read_text(self.path("p.svg"))
            return text, xml.etree.ElementTree.fromstring(text)
        text = ("--text", self.TEXT)
        heads = next(v["values"] for v in self.json_of()["values"] if v["name"] == "decoder.block.0.attention.probabilities")
        svg, root = drawn(*text, "--values", "*.0.attention.probabilities")
        rects = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("class") == "plus"]
        self.assertEqual(len(rects), sum(p >= 0.005 for h in heads for row in h for p in row))
        opacities = sorted(float(r.get("opacity")) for r in rects)
        for got, p in zip(opacities, sorted(p for h in heads for row in h for p in row if p >= 0.005)):
            self.assertAlmostEqual(got, p, delta=0.0051)
        self.assertEqual(svg.count("attention.probabilities, head"), len(heads))
        one, _ = drawn(*text, "--values", "*.0.attention.probabilities", "--heads", "1", "--tokens", "0-1")
        self.assertEqual(one.count("attention.probabilities, head"), 1)
        for arguments in (("--lens",), ("--why",), ("--saliency",), ("--patch-from", "the dog sat", "--of", "f", "--instead", "d")):
            self.assertIn("<rect", drawn(*text, *arguments)[0])
        self.assertIn("composition into keys", drawn("--circuits")[0])
        self.write("text.txt", make_text(300))
        self.assertIn("induction", drawn("--roles", "text.txt")[0])
        self.refused("trace", self.run_dir, *text, "--picture", "p.svg", "--json", says=["--picture", "--json"])
        self.refused("trace", self.run_dir, *text, "--picture", "p.svg", "--ablate", "block:0", says=["--picture", "matrices"])

    def test_while_training_attention_alone(self):
        """Traces at each step that wants one, in the report; a new run replaces them. Blocks have no feed-forward network."""
        self.write("text.txt", make_text(600))
        settings = ["data.train=text.txt", "tokenizer.type=char", "model.context=16", "model.width=16", "model.heads=2", "model.layers=2",
                    "model.hidden=0", "train.batch=4", "train.steps=6", "train.warmup_steps=1", "train.trace_every=2", "train.out=alone"]
        self.write("c.toml", "")
        arguments = [part for s in settings for part in ("--set", s)]
        self.ok("train", "c.toml", *arguments)
        folder = self.path("alone/traces")
        self.assertEqual(sorted(os.listdir(folder)), [f"step-{n:08}.json" for n in (0, 2, 4, 6)])
        last = json.loads(read_text(os.path.join(folder, "step-00000006.json")))
        self.assertEqual(set(last["roles"]), {"0.0", "0.1", "1.0", "1.1"})
        self.assertEqual(len(last["lens"]), 3)
        page = read_text(self.path("alone/report.html"))
        self.assertIn("Heads while training", page)
        steps = json.loads(page.split('<script type="application/json" id="traces">')[1].split("</script>")[0])
        self.assertEqual([s["step"] for s in steps], [0, 2, 4, 6])
        self.assertEqual(steps[-1]["attention"], last["attention"])
        # The last trace is the pass of the last model.
        ids = " ".join(str(t["id"]) for t in last["tokens"])
        values = {v["name"]: v["values"] for v in json.loads(self.ok("trace", "alone/last", "--ids", ids, "--json").out)["values"]}
        self.assertFalse([name for name in values if "feed_forward" in name])
        bytes_of = base64.b64decode(last["attention"][0]["data"])
        flat = [p for name, heads in values.items() if name.endswith("probabilities") and "attention" in name
                for head in heads for row in head for p in row]
        for byte, p in zip(bytes_of, flat, strict=True):
            self.assertAlmostEqual(byte / 255, p, delta=1 / 500)
        self.assertEqual(last["lens"][-1][-1][0][1], round(max(values["probabilities"][-1]), 4))
        config = json.loads(read_text(self.path("alone/last/config.json")))
        self.assertEqual((config["model_type"], config["qkv"]["hidden"]), ("qkv", 0))
        ablated = json.loads(self.ok("trace", "alone", "--text", "the", "--ablate", "block:0", "--json").out)
        self.assertGreater(ablated["kl_divergence"], 0)
        self.refused("trace", "alone", "--text", "the", "--ablate", "feed_forward:0", says=["feed_forward:0", "attention alone"])
        self.write("alone/traces/step-00000004.json", read_text(os.path.join(folder, "step-00000004.json")).replace('"keys":', '"keys":9'))
        self.refused("report", "alone", says=["step-00000004.json", "data"])
        os.remove(self.path("alone/traces/step-00000004.json"))
        self.ok("report", "alone")
        cached = self.ok("generate", "alone", "--prompt", "the", "--tokens", "5", "--temperature", "0").out
        self.assertTrue(cached.startswith("the"))
        self.ok("train", "c.toml", *arguments, "--set", "train.trace_every=0", "--overwrite")
        self.assertFalse(os.path.exists(folder))
        self.assertNotIn("Heads while training", read_text(self.path("alone/report.html")))
        self.refused("train", "c.toml", *arguments, "--set", "model.gated=true", "--overwrite", says=["model", "hidden = 0"])

    def test_classes_and_numbers(self):
        """Questions about classifiers say what qkv classify says."""
        self.write("c.toml", "")
        words = [("fox hen", "yes", "1.5", "a"), ("dog cat", "no", "-2", "b"), ("fox dog", "yes", "0.5", "a b"), ("cat hen", "no", "-1", "a")] * 15
        for objective, column, of in (("classify", 1, ["--of", "yes"]), ("regression", 2, []), ("multi_label", 3, ["--of", "b"])):
            self.write(f"{objective}.tsv", "text\tlabel\n" + "".join(f"{row[0]}\t{row[column]}\n" for row in words))
            settings = [f"data.train={objective}.tsv", "tokenizer.type=wordpiece", "tokenizer.vocab_size=60", "model.architecture=encoder",
                        "model.context=16", "model.width=16", "model.heads=2", "model.layers=2", f"train.objective={objective}",
                        "train.batch_tokens=64", "train.steps=4", "train.warmup_steps=1", f"train.out={objective}"]
            if objective == "multi_label":
                settings.append("data.label_separator= ")
            self.ok("train", "c.toml", *[part for s in settings for part in ("--set", s)])
            said = json.loads(self.ok("classify", objective, "--json", stdin="fox cat\n").out)
            got = json.loads(self.ok("trace", objective, "--text", "fox cat", "--ablate", "block:0", "--json").out)
            before = {t["piece"]: t["before"] for t in got["tokens"]}
            numbers = [float(x) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", json.dumps(said))]
            self.assertTrue(numbers, said)
            for x in numbers:
                self.assertTrue(any(abs(x - value) < 1e-3 for value in before.values()), (said, got))
            self.assertEqual("kl_divergence" in got, objective != "regression")
            shares = json.loads(self.ok("trace", objective, "--text", "fox cat", "--saliency", "--json", "--steps", "100", *of).out)
            self.assertAlmostEqual(sum(t["value"] for t in shares["tokens"]), shares["logit"] - shares["baseline"], delta=0.02)
            self.refused("trace", objective, "--text", "fox", "--lens", says=["--lens", "classes"])

    def test_images_spectrograms_and_masks(self):
        """--inputs reads what qkv forward reads, and the walk ends with what it computes."""
        here = os.path.dirname(os.path.abspath(__file__))
        chooser = random.Random(1)

        def file_of(name, **tensors):
            with open(self.path(name), "wb") as file:
                file.write(safetensors_bytes({key: ("F32" if isinstance(values[0], float) else "I64", shape, values)
                                              for key, (shape, values) in tensors.items()}))
            return name

        def flat(x):
            return [y for part in x for y in flat(part)] if isinstance(x, list) else [x]

        def compared(model, inputs, traced, expected):
            self.ok("forward", model, "--inputs", inputs, "--outputs", "out.safetensors")
            want = load_safetensors(self.path("out.safetensors"))[expected][1]
            got = next(v["values"] for v in json.loads(self.ok("trace", model, "--inputs", inputs, "--json").out)["values"] if v["name"] == traced)
            for a, b in zip(flat(got), want, strict=True):
                self.assertAlmostEqual(a, b, 4)
        vit = os.path.join(here, "../golden/hf/vit")
        with open(os.path.join(vit, "config.json"), encoding="utf8") as file:
            config = json.load(file)
        shape = [1, config["num_channels"], config["image_size"], config["image_size"]]
        image = file_of("image.safetensors", pixel_values=(shape, [chooser.uniform(-1, 1) for _ in range(math.prod(shape))]))
        compared(vit, image, "classes", "logits")
        out = self.ok("trace", vit, "--inputs", image).out
        self.assertIn("patch 0", out)
        shares = json.loads(self.ok("trace", vit, "--inputs", image, "--saliency", "--json", "--steps", "200").out)
        self.assertAlmostEqual(sum(t["value"] for t in shares["tokens"]), shares["logit"] - shares["baseline"], delta=0.02)
        self.ok("trace", vit, "--inputs", image, "--page", "image.html")
        self.refused("trace", vit, "--ids", "1", says=["--inputs"])
        whisper = os.path.join(here, "../golden/hf/whisper")
        with open(os.path.join(whisper, "config.json"), encoding="utf8") as file:
            bins = json.load(file)["num_mel_bins"]
        sound = file_of("sound.safetensors", input_features=([1, bins, 8], [chooser.uniform(-1, 1) for _ in range(8 * bins)]),
                        decoder_input_ids=([1, 3], [1, 2, 3]))
        compared(whisper, sound, "logits", "logits")
        self.assertIn("frame 3", self.ok("trace", whisper, "--inputs", sound).out)
        mask = file_of("mask.safetensors", input_ids=([1, 3], [3, 4, 5]), attention_mask=([1, 3, 3], [1, 0, 0, 0, 1, 0, 1, 1, 1]))
        compared(self.run_dir, mask, "logits", "logits")
        two = file_of("two.safetensors", input_ids=([2, 3], [3, 4, 5, 3, 4, 5]))
        self.refused("trace", self.run_dir, "--inputs", two, says=["two.safetensors", "2 rows"])
        self.refused("trace", self.run_dir, "--inputs", mask, "--text", "a", says=["--text", "--inputs"])

    def test_patching(self):
        other, tokens = "the dog sat", self.json_of()["tokens"]
        names = ["--of", "f", "--instead", "d"]
        got = self.json_of("--patch-from", other, *names)
        self.assertEqual(got["values"][0], "decoder.embedding")
        self.assertEqual(len(got["share"][0]), len(tokens))
        # The last row of the last block's output decides alone.
        self.assertAlmostEqual(got["share"][-1][-1], 1, 4)
        for share in got["share"][-1][:-1]:
            self.assertAlmostEqual(share, 0, 4)
        # By the gradient: the last norm and the unembedding make it an estimate, but nothing else changes.
        estimate = self.json_of("--patch-from", other, "--estimate", *names)
        self.assertEqual(estimate["values"], got["values"])
        self.assertNotEqual(estimate["share"], got["share"])
        for share in estimate["share"][-1][:-1]:
            self.assertAlmostEqual(share, 0, 4)
        self.assertIn("by the gradient",
                      self.ok("trace", self.run_dir, "--text", self.TEXT, "--patch-from", other, "--estimate", *names).out)
        heads = self.json_of("--patch-from", other, "--sweep", "heads", *names)
        self.assertTrue(all("attention.heads" in name for name in heads["values"]))
        self.assertIn("decoder.embedding", self.ok("trace", self.run_dir, "--text", self.TEXT, "--patch-from", other, *names).out)

    def test_page(self):
        """One file without a network, whose data are the pass's."""
        self.ok("trace", self.run_dir, "--text", self.TEXT, "--page", "t.html")
        page = read_text(self.path("t.html"))
        self.assertNotRegex(page.replace("http://www.w3.org/2000/svg", ""), r"(?i)https?://|<link|src=|@import|url\(")
        for part in ("Attention of a head", "All heads", "Logit lens", "Contributions", "Neurons", "Algorithm 10, DTransformer"):
            self.assertIn(part, page)
        data = json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])
        walk = self.json_of()
        values = {v["name"]: v["values"] for v in walk["values"]}
        self.assertEqual([t["id"] for t in data["tokens"]], [t["id"] for t in walk["tokens"]])
        attention, = data["attention"]
        heads = [h for name, heads in values.items() if name.endswith("attention.probabilities") for h in heads]
        flat = [p for head in heads for row in head for p in row]
        self.assertEqual(attention["layers"], [len(values[n]) for n in values if n.endswith("attention.probabilities")])
        for byte, p in zip(base64.b64decode(attention["data"]), flat, strict=True):
            self.assertAlmostEqual(byte / 255, p, delta=1 / 500)
        for row, best, lens in zip(values["probabilities"], data["next"], data["lens"][-1]):
            self.assertAlmostEqual(best[0][1], max(row), 3)
            self.assertEqual(lens[0][0], best[0][0])
        for logits, c in zip(values["logits"], data["contributions"]):
            self.assertAlmostEqual(c["logit"], max(logits), 3)
            self.assertAlmostEqual(sum(c["parts"]), c["logit"], 2)
            self.assertEqual(len(c["parts"]), len(data["parts"]))
        hidden = values["decoder.block.0.feed_forward.hidden"]
        for row, best in zip(hidden, data["neurons"][0]):
            self.assertAlmostEqual(abs(best[0][1]), max(map(abs, row)), 3)
        # Texts do not become code.
        self.write("pairs.tsv", "source\ttarget\n" + "<b>\t</script>\n" * 60)
        self.write("c.toml", "")
        settings = ["data.train=pairs.tsv", "tokenizer.type=char", "model.architecture=encoder_decoder", "model.context=16", "model.width=16",
                    "model.heads=2", "model.layers=1", "train.objective=sequence_to_sequence", "train.batch_tokens=64", "train.steps=2",
                    "train.warmup_steps=1", "train.out=both"]
        self.ok("train", "c.toml", *[part for s in settings for part in ("--set", s)])
        self.ok("trace", "both", "--text", "<b>", "--target", "</script>", "--page", "both.html")
        page = read_text(self.path("both.html"))
        self.assertEqual(page.count("</script>"), 2)
        self.assertIn("&lt;b&gt;", page)
        data = json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])
        self.assertEqual([(s["name"], s["rows"], s["columns"]) for s in data["attention"]],
                         [("encoder self-attention", "source", "source"), ("self-attention", "tokens", "tokens"),
                          ("cross-attention", "tokens", "source")])
        self.assertEqual("".join(t["piece"] for t in data["source"]).startswith("<b>"), True)
        self.refused("trace", self.run_dir, "--text", self.TEXT, "--page", "t.html", "--lens", says=["--page", "--lens"])

    def test_worked_example(self):
        """Every number that the slides print, and where they err."""
        here = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(here, "../golden/worked_example.json"), encoding="utf8") as file:
            printed = json.load(file)
        example = {t["key"]: t for t in json.loads(self.ok("trace", "--example", "--json").out)}
        turned = lambda rows: [list(r) for r in zip(*rows)]
        printed |= {name: turned(printed[name + "_d_by_token"]) for name in ("embedding", "positional_encoding", "input", "decoder_embedding")}
        for key in ("embedding", "positional_encoding", "input", "Q", "K", "V", "Q_K_transposed", "scaled_scores", "softmax", "Z",
                    "multi_head_output", "matrix_to_normalize", "normalized", "XW", "XW_plus_b", "relu"):
            self.assertEqual(len(example[key]["values"]), len(printed[key]), key)
            for ours, theirs in zip(example[key]["values"], printed[key]):
                for a, b in zip(ours, theirs):
                    self.assertAlmostEqual(a, b, delta=0.0101 if key == "scaled_scores" else 1e-6, msg=f"{key}: {ours} {theirs}")
        self.assertEqual(example["mask_cross"]["values"], printed["mask_cross_as_printed"])
        masked = printed["mask_masked_as_printed"]
        self.assertEqual(example["mask_masked"]["values"][:6] + example["mask_masked"]["values"][7:], masked[:6] + masked[7:])
        self.assertEqual(example["mask_masked"]["values"][6], [0] * 7 + [None] * 3)
        self.assertEqual(example["decoder_embedding"]["values"][:7], printed["decoder_embedding"])
        out = self.ok("trace", "--example").out
        self.assertRegex(out, r"Step 5.1, queries:  Q = X W\^Q\nwhen +3.88 +3.80 +4.08 +3.42\n")
        self.assertEqual(out.count("Note: "), sum("note" in t for t in example.values()))
        self.refused("trace", self.run_dir, "--example", says=["--example", "no model"])
        for options in (["--circuits"], ["--roles", "x"], ["--picture", "x.svg"], ["--best", "3"]):
            self.refused("trace", "--example", *options, says=[options[0], "--example"])
        self.refused("trace", "--example", "--lens", says=["--lens"])
        self.refused("trace", "--text", "a", says=["DIR"])

    def test_what_cannot_be_asked(self):
        def refuse(says, *arguments):
            self.refused("trace", self.run_dir, *arguments, says=says)
        text = ("--text", self.TEXT)
        refuse(["--text", "--ids"])
        refuse(["--ids", "--text"], *text, "--ids", "1")
        refuse(["--ids", "from 0 to"], "--ids", "1 99999")
        refuse(["--layers", "from 0 to", "'9'"], *text, "--layers", "9")
        refuse(["--tokens", "like 0,2-4"], *text, "--tokens", "2-1")
        refuse(["--values", "nothing"], *text, "--values", "nothing.*")
        refuse(["--ablate", "head:0.99", "head 99 of"], *text, "--ablate", "head:0.99")
        refuse(["one question"], *text, "--lens", "--why")
        refuse(["--by", "--ablate"], *text, "--by", "mean")
        refuse(["--sweep", "--patch-from"], *text, "--sweep", "heads")
        refuse(["--patch-from", "tokens"], *text, "--patch-from", "the")
        refuse(["--of", "--why"], *text, "--of", "a")
        refuse(["--of", "3 tokens", "id:N"], *text, "--why", "--of", "the")
        refuse(["--second", "pairs"], *text, "--second", "a")
        refuse(["--layers", "the walk"], *text, "--lens", "--layers", "0")
        refuse(["--heads", "as text"], *text, "--json", "--heads", "0")
        refuse(["--page", "empty"], *text, "--page", "")
        refuse(["--ablate", "token 99 of"], *text, "--ablate", "position:99")
        refuse(["--target", "encoder-decoders"], *text, "--target", "a")
        refuse(["--out"], *text, "--lens", "--out", "t.safetensors")
        refuse(["--best", "walk"], *text, "--lens", "--best", "2")
        refuse(["--of", "empty"], *text, "--why", "--of", "")
        refuse(["--tuned", "empty"], *text, "--lens", "--tuned", "")
        refuse(["--baseline", "above 0"], *text, "--saliency", "--steps", "0", "--baseline", "a")
        refuse(["--times", "infinite"], *text, "--add", "a", "--times", "1e300")
        refuse(["--instead", "the answer itself"], *text, "--why", "--of", "d", "--instead", "d")
        self.assertFalse(os.path.exists(self.path("t.safetensors")))
        refuse(["tokens", "reads at most"], "--text", make_text(400))

    def test_encoders_and_encoder_decoders(self):
        self.write("text.txt", make_text(300))
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{w}\t{w[::-1]}\n" for w in ("fox", "dog", "hen", "cat") * 20))
        small = ["tokenizer.type=char", "model.context=16", "model.width=16", "model.heads=2", "model.layers=2",
                 "train.steps=2", "train.warmup_steps=1"]
        self.write("c.toml", "")

        def trained(name, *settings, batch="train.batch_tokens=64"):
            self.ok("train", "c.toml", *[part for s in (*small, batch, *settings, f"train.out={name}") for part in ("--set", s)])
        trained("masked", "data.train=text.txt", "tokenizer.type=wordpiece", "tokenizer.vocab_size=100", "model.architecture=encoder",
                "train.objective=masked")
        out = self.ok("trace", "masked", "--text", "the fox").out
        self.assertIn("Algorithm 9, ETransformer", out)
        self.assertIn("X = layer_norm(X)  (Algorithm 9, line 6)", out)
        self.assertNotIn("later", out)
        self.assertIn("X = layer_norm(gelu(W_f X + b_f 1^T))  (Algorithm 9, lines 10 and 11)", out)
        trained("experts", "data.train=text.txt", "model.experts=3", "model.experts_chosen=2", batch="train.batch=4")
        rows = next(v["values"] for v in json.loads(self.ok("trace", "experts", "--text", "the", "--json").out)["values"]
                    if v["name"] == "decoder.block.0.feed_forward.weights")
        for row in rows:
            self.assertEqual((len(row), sum(w > 0 for w in row)), (3, 2))
        trained("latent", "data.train=text.txt", "model.kv_latent=6", "model.positions=rotary", "model.rotary_width=4", batch="train.batch=4")
        out = self.ok("trace", "latent", "--text", "the").out
        self.assertIn("latents of keys and values:  RMSnorm(W_c", out)
        self.assertIn("queries:  Q = W_q", out)
        trained("both", "data.train=pairs.tsv", "model.architecture=encoder_decoder", "train.objective=sequence_to_sequence")
        out = self.ok("trace", "both", "--text", "fox").out
        for part in ("Algorithm 8, EDTransformer", "z, the source:", "x, the target:", "== encoder block 0, from 0 to 1", "== decoder block 1, from 0 to 1",
                     "K = W_k Z + b_k 1^T"):
            self.assertIn(part, out)
        values = json.loads(self.ok("trace", "both", "--text", "fox", "--target", "xo", "--json").out)
        by_name = {v["name"]: v["shape"] for v in values["values"]}
        self.assertEqual(by_name["decoder.block.0.cross_attention.probabilities"],
                         [2, len(values["tokens"]), len(values["source"])])
        self.assertIn("KL", self.ok("trace", "both", "--text", "fox", "--target", "xo", "--ablate", "encoder:head:0.1").out)


if __name__ == "__main__":
    main()
