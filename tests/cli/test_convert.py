#!/usr/bin/env python3
"""qkv convert: models of llama2.c, CTranslate2 and PyTorch's files.

usage: test_convert.py QKV [unittest arguments]
"""
import json
import os
import random
import struct

from qkv_cli import CliTest, configuration, load_safetensors, main, read_text, safetensors_bytes, write

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "hf")

WIDTH, HIDDEN, LAYERS, HEADS, CONTEXT = 16, 12, 2, 8, 20


def floats(count, seed=0):
    chooser = random.Random(seed)
    return [struct.unpack("<f", struct.pack("<f", chooser.uniform(-0.5, 0.5)))[0] for _ in range(count)]


def llama2c_files(folder, tokens=265):
    kv = WIDTH // HEADS * 4
    each = 2 * WIDTH * (WIDTH + kv) + 2 * WIDTH + 3 * WIDTH * HIDDEN
    count = tokens * WIDTH + LAYERS * each + WIDTH + CONTEXT * WIDTH // HEADS
    with open(os.path.join(folder, "model.bin"), "wb") as file:
        file.write(struct.pack("<7i", WIDTH, HIDDEN, LAYERS, HEADS, 4, tokens, CONTEXT))
        file.write(struct.pack(f"<{count}f", *floats(count)))
    with open(os.path.join(folder, "tokenizer.bin"), "wb") as file:
        file.write(struct.pack("<I", 8))
        texts = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{b:02X}>" for b in range(256)), " ", "a", "b", " a", "ab", " ab"]
        for i, text in enumerate(texts[:tokens]):
            file.write(struct.pack("<fI", -i, len(text)) + text.encode())


SOURCE, TARGET = ["<blank>", "<s>", "</s>", "x", "y", "z"], ["<blank>", "<s>", "</s>", "p", "q"]


def ctranslate2_tensors():
    tensors, seed = {}, 0

    def add(name, *shape):
        nonlocal seed
        seed += 1
        count = 1
        for n in shape:
            count *= n
        tensors[name] = (shape, floats(count, seed))

    def linear(name, out, into):
        add(name + "/weight", out, into)
        add(name + "/bias", out)

    def norm(name):
        add(name + "/gamma", WIDTH)
        add(name + "/beta", WIDTH)

    for stack, rows in ("encoder", len(SOURCE) + 1), ("decoder", len(TARGET)):
        add(stack + "/embeddings/weight", rows, WIDTH)
        norm(stack + "/layer_norm")
        for layer in range(LAYERS):
            block = f"{stack}/layer_{layer}/"
            norm(block + "self_attention/layer_norm")
            linear(block + "self_attention/linear_0", 3 * WIDTH, WIDTH)
            linear(block + "self_attention/linear_1", WIDTH, WIDTH)
            if stack == "decoder":
                norm(block + "attention/layer_norm")
                linear(block + "attention/linear_0", WIDTH, WIDTH)
                linear(block + "attention/linear_1", 2 * WIDTH, WIDTH)
                linear(block + "attention/linear_2", WIDTH, WIDTH)
            norm(block + "ffn/layer_norm")
            linear(block + "ffn/linear_0", HIDDEN, WIDTH)
            linear(block + "ffn/linear_1", WIDTH, HIDDEN)
    linear("decoder/projection", len(TARGET), WIDTH)
    return tensors


def write_ctranslate2(folder, tensors, quantized=False, extra=None):
    """Version 2 of the format; matrices in 8 bits, a scale for each row, if quantized. Returns the values that it holds."""
    os.makedirs(folder)
    name_of = lambda name: struct.pack("<H", len(name) + 1) + name.encode() + b"\0"
    variables, held = [], {}
    for name, (shape, values) in {**tensors, **(extra or {})}.items():
        head = name_of(name) + struct.pack(f"<B{len(shape)}I", len(shape), *shape)
        held[name] = values
        if quantized and len(shape) == 2:
            rows = [values[i:i + shape[1]] for i in range(0, len(values), shape[1])]
            scales = [127 / max(map(abs, row)) for row in rows]
            scales = [struct.unpack("<f", struct.pack("<f", s))[0] for s in scales]
            numbers = [round(w * s) for row, s in zip(rows, scales) for w in row]
            held[name] = [q / scales[i // shape[1]] for i, q in enumerate(numbers)]
            variables.append(head + struct.pack("<BI", 1, len(numbers)) + struct.pack(f"<{len(numbers)}b", *numbers))
            variables.append(name_of(name + "_scale") + struct.pack("<BI", 1, len(scales)) + struct.pack("<BI", 4, len(scales))
                             + struct.pack(f"<{len(scales)}f", *scales))
        else:
            variables.append(head + struct.pack("<BI", 4, len(values)) + struct.pack(f"<{len(values)}f", *values))
    with open(os.path.join(folder, "model.bin"), "wb") as file:
        file.write(struct.pack("<I", 2) + name_of("TransformerBase") + struct.pack("<II", 2, len(variables)) + b"".join(variables))
    for name, tokens in ("source", SOURCE), ("target", TARGET):
        with open(os.path.join(folder, name + "_vocabulary.txt"), "w", encoding="utf8") as file:
            file.write("".join(token + "\n" for token in tokens))
    return held


class Convert(CliTest):
    def test_llama2c(self):
        llama2c_files(self.path())
        said = self.ok("convert", "model.bin", "--tokenizer", "tokenizer.bin", "--out", "llama")
        self.assertIn("llama: decoder with 2 layers of width 16 (model_type llama)", said.err)
        written = self.ok("generate", "llama", "--prompt", "ab", "--temperature", "0", "--tokens", "4").out
        self.assertEqual(written, self.ok("generate", "llama", "--prompt", "ab", "--temperature", "0", "--tokens", "4").out)
        tensors = load_safetensors(self.path("llama/model.safetensors"))
        self.assertEqual(tensors["model.embed_tokens.weight"][0], [265, WIDTH])
        self.assertNotIn("lm_head.weight", tensors)
        # Converting a directory of its own kind changes nothing.
        self.ok("convert", "llama", "--out", "again")
        self.assertEqual(load_safetensors(self.path("again/model.safetensors")), tensors)
        self.refused("convert", "model.bin", "--out", "none", status=1, says="--tokenizer")
        self.refused("convert", "model.bin", "--tokenizer", "tokenizer.bin", "--out", "llama", status=1, says="exists")
        self.refused("convert", "tokenizer.bin", "--tokenizer", "model.bin", "--out", "none", status=1, says="tokenizer.bin")
        self.refused("convert", "nowhere", "--out", "none", status=1, says="nowhere")
        llama2c_files(self.path(), tokens=264)
        self.refused("convert", "model.bin", "--tokenizer", "llama/tokenizer.model", "--out", "none", status=1, says="tokenizer.model")
        self.assertFalse(os.path.exists(self.path("none")))

    def pairs(self, out, *settings):
        """A small encoder-decoder of both stacks' own positions."""
        self.write("pairs.tsv", "source\ttarget\n" + "the fox runs\ta dog sleeps\nlazy\tquick\n" * 20)
        self.write("pairs.toml", configuration(out=out, steps=2, model__architecture="encoder_decoder", model__layers=2,
                                               model__encoder_layers=1).replace("text.txt", "pairs.tsv").replace(
                                                   "batch = 4", "batch_tokens = 64"))
        self.ok("train", "pairs.toml", *[word for s in settings for word in ("--set", s)])

    def test_parts(self):
        """The encoder or the decoder of an encoder-decoder becomes a model, or the start of one."""
        self.pairs("whole", "tokenizer.separate=true", "tokenizer.type=byte")
        whole = load_safetensors(self.path("whole/best/model.safetensors"))
        said = self.ok("convert", "whole", "--part", "encoder", "--out", "encoder").err
        self.assertIn("encoder: encoder with 1 layers of width 16", said)
        self.assertIn("note: the whole model reads each source between special tokens", said)
        self.assertIn("decoder: decoder with 2 layers of width 16",
                      self.ok("convert", "whole", "--part", "decoder", "--out", "decoder").err)
        self.assertEqual(len(self.ok("embed", "encoder", stdin="the fox\nlazy\n").out.splitlines()), 2)
        self.assertEqual(len(self.ok("generate", "decoder", "--ids", "1,2", "--tokens", "3", "--temperature", "0", "--no-stop",
                                     "--no-echo").err), 0)
        encoder, decoder = (load_safetensors(self.path(f"{part}/model.safetensors")) for part in ("encoder", "decoder"))
        self.assertEqual(encoder["embedding.token"], whole["encoder.embedding.token"])
        for name, tensor in encoder.items():
            self.assertEqual(tensor, whole.get("encoder." + name, whole.get(name)), name)
        self.assertIn(sorted(whole["embedding.token"][1]), [sorted(t[1]) for t in decoder.values()])
        # A run that begins with a part has its weights, and the vocabulary of its side.
        self.write("text.txt", "the fox runs\nlazy\n" * 40)
        begin = ["train", "next.toml", "--set", "model.from=whole", "--set", "train.learning_rate=1e-9"]
        self.write("next.toml", configuration(out="next", steps=1).split("[tokenizer]")[0] + "[train]\nsteps = 1\n" 'precision = "f32"\n')
        self.ok(*begin, "--set", "model.part=encoder", "--set", "train.objective=masked", "--set", "train.out=next_encoder", "--set", "train.batch_tokens=64",
                "--set", "tokenizer.add_special=[\"[MASK]\"]")
        begun = load_safetensors(self.path("next_encoder/best/model.safetensors"))
        for name, (shape, values) in encoder.items():
            self.assertIn(name, begun)
            if name != "embedding.token":
                for a, b in zip(values, begun[name][1]):
                    self.assertAlmostEqual(a, b, delta=1e-6)
        self.assertEqual(begun["embedding.token"][0][0], encoder["embedding.token"][0][0] + 1)
        self.ok(*begin, "--set", "model.part=decoder", "--set", "train.out=next_decoder", "--set", "train.batch=4")
        begun = load_safetensors(self.path("next_decoder/best/model.safetensors"))
        self.assertEqual(set(begun), set(decoder))
        for name, (shape, values) in decoder.items():
            for a, b in zip(values, begun[name][1]):
                self.assertAlmostEqual(a, b, delta=1e-6)
        for arguments, says in ((["--set", "model.part=middle"], "expected encoder or decoder"),
                                (["--set", "model.part=encoder", "--set", "model.lora_rank=2"], "qkv convert --part")):
            self.refused(*begin, "--set", "train.out=none", *arguments, says=says)
        self.refused("train", "next.toml", "--set", "model.part=encoder", says="model.part: name the encoder-decoder")
        self.refused("train", "next.toml", "--set", "model.from=decoder", "--set", "model.part=encoder",
                     says="decoder is one decoder, not an encoder-decoder")
        self.refused("convert", "decoder", "--part", "encoder", "--out", "none", status=1, says="no part to take out")
        self.assertFalse(os.path.exists(self.path("none")))

    def test_parts_of_every_family(self):
        """An encoder by itself makes the states that its decoder read. A decoder by itself can be written and read."""
        ids, mask = ("I64", [2, 5], [5, 9, 30, 2, 11, 7, 3, 8, 0, 0]), ("I64", [2, 5], [1, 1, 1, 1, 1, 1, 1, 1, 0, 0])
        whole = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ("I64", [2, 2], [2, 4, 2, 6])}
        write(self.path("whole.safetensors"), safetensors_bytes(whole))
        write(self.path("encoder.safetensors"), safetensors_bytes({"input_ids": ids, "attention_mask": mask}))
        families = 0
        for case in sorted(os.listdir(GOLDEN)):
            path = os.path.join(GOLDEN, case)
            if not os.path.isdir(path) or not json.loads(read_text(os.path.join(path, "config.json"))).get("is_encoder_decoder"):
                continue
            if case == "whisper":
                self.refused("convert", path, "--part", "encoder", "--out", "none", status=1, says="spectrograms")
                continue
            with self.subTest(case=case):
                families += 1
                for part in "encoder", "decoder":
                    self.ok("convert", path, "--part", part, "--out", f"{case}.{part}")
                self.ok("forward", path, "--inputs", "whole.safetensors", "--outputs", "out.safetensors", "--hidden-states")
                states = load_safetensors(self.path("out.safetensors"))
                last = max((n for n in states if n.startswith("encoder_hidden_states.")), key=lambda n: int(n.split(".")[1]))
                self.ok("forward", f"{case}.encoder", "--inputs", "encoder.safetensors", "--outputs", "out.safetensors")
                for a, b in zip(states[last][1], load_safetensors(self.path("out.safetensors"))["last_hidden_state"][1]):
                    self.assertAlmostEqual(a, b, delta=1e-6)
                self.ok("generate", f"{case}.decoder", "--ids", "3,4", "--tokens", "2", "--temperature", "0", "--no-stop")
        self.assertGreaterEqual(families, 8)

    def test_ctranslate2(self):
        tensors = ctranslate2_tensors()
        for name, quantized in ("whole", False), ("eighth", True):
            held = write_ctranslate2(self.path(name), tensors, quantized)
            self.ok("convert", name, "--out", name + ".out")
            got = load_safetensors(self.path(name + ".out/model.safetensors"))
            self.assertEqual(len(got), len(tensors))
            for engine, of in (("embedding.token", "decoder/embeddings/weight"), ("unembedding.bias", "decoder/projection/bias"),
                               ("encoder.block.1.attention.qkv.weight", "encoder/layer_1/self_attention/linear_0/weight"),
                               ("decoder.block.1.cross_attention.kv.weight", "decoder/layer_1/attention/linear_1/weight")):
                for value, want in zip(got[engine][1], held[of]):
                    self.assertAlmostEqual(value, want, delta=1e-6)
            words = self.ok("translate", name + ".out", "--beams", "2", stdin="x y z\nz unseen\n").out
            self.assertEqual(len(words.splitlines()), 2)
        with open(self.path("whole.out/config.json"), encoding="utf8") as file:
            config = json.load(file)
        self.assertEqual((config["decoder_start_token_id"], config["eos_token_id"], config["source_end_token_ids"]), (1, 2, []))
        self.ok("convert", "whole", "--split", "characters", "--context", "9", "--out", "letters")
        self.ok("translate", "letters", stdin="xyz\n")
        self.assertIn("context", self.ok("inspect", "letters").out)

    def test_ctranslate2_of_other_models(self):
        tensors = ctranslate2_tensors()
        write_ctranslate2(self.path("gated"), tensors, extra={"encoder/layer_0/ffn/linear_0_noact/weight": ((HIDDEN, WIDTH), floats(HIDDEN * WIDTH))})
        self.refused("convert", "gated", "--out", "none", status=1, says="linear_0_noact")
        del tensors["decoder/layer_1/attention/linear_2/bias"]
        write_ctranslate2(self.path("part"), tensors)
        self.refused("convert", "part", "--out", "none", status=1, says="decoder/layer_1/attention/linear_2/bias")
        write_ctranslate2(self.path("words"), ctranslate2_tensors())
        with open(self.path("words/source_vocabulary.txt"), "a", encoding="utf8") as file:
            file.write("more\nand more\n")
        self.refused("convert", "words", "--out", "none", status=1, says=["source_vocabulary.txt", "8 tokens"])


if __name__ == "__main__":
    main()
