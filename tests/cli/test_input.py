#!/usr/bin/env python3
"""How data are read: packed files, encodings, formats, line ends, rows without text, labels.

usage: test_input.py QKV [unittest arguments]
"""
import base64
import gzip
import itertools
import json
import os
import pty
import re
import subprocess

from qkv_cli import CliTest, command, configuration, ENVIRONMENT, main, make_text, read

ROWS = "text,label\n" + "".join(f"good day {c},pos\nbad day {c},neg\n" for c in "abcdefghijklmnopqrst")
# The output of `zstd -19` for these rows.
ZSTD = base64.b64decode("KLUv/WBPAfUCAKJEDxGwO3xZarppu9nJnhmWYdG0BKBZifeca42xtf6VSskdoXOMKaWbEObdMVSbVSpwv0SGmBv2v4GzposH+QUnqBHQx/q/AfClAxBOBEQIfnnsjt7R3TwD0qUEkFU=")


class InputTest(CliTest):
    def tiny(self, *sets, refused=None, status=(1, 2), eval_says=(), **train):
        """A tiny run; what it says, or the one line of its refusal."""
        config = configuration(**train)
        if any(s.startswith("train.batch_tokens=") for s in sets):
            config = config.replace("batch = 4\n", "")
        self.write("config.toml", config)
        arguments = ["train", "config.toml", "--overwrite", *(a for s in sets for a in ("--set", s))]
        if refused is None:
            return self.ok(*arguments).err
        return self.refused(*arguments, says=refused, status=status, allow_progress=True).err

    def classifier(self, *sets, objective="classify", **options):
        return self.tiny("model.architecture=encoder", f"train.objective={objective}", "train.batch_tokens=64", 
                         "tokenizer.type=wordpiece", "train.steps=4", *sets, **options)


class Documents(InputTest):
    def test_names_of_characters_begin_and_end(self):
        names = ["ada", "bob", "eve", "dan", "kim", "lea"]
        self.write("names.txt", "".join(f"{n}\n" for n in names * 40))
        run = dict(data__train="names.txt", data__separator="\n", steps=150, learning_rate=0.02, model__width=32, eval_every=150,
                   checkpoint_every=150, batch=16)
        self.tiny(**run)
        generation = json.loads(read(self.path("run/best/generation_config.json")))
        end = json.loads(self.ok("tokenizer", "encode", "run", "--jsonl", "--no-special", stdin='"<|endoftext|>"\n').out)
        self.assertEqual([generation["eos_token_id"]], end)
        for prompt in ("", "e"):
            samples = [json.loads(line) for line in self.ok("generate", "run", "--prompt", prompt, "--tokens", "12", "--samples", "20",
                                                            "--seed", "1", "--json").out.splitlines()]
            self.assertEqual({s["finish_reason"] for s in samples}, {"eos"})
            found = {prompt + s["text"] for s in samples}
            self.assertGreaterEqual(len(found & set(names)), 1 if prompt else 4, found)
            self.assertLessEqual(len(found - set(names)), 4, found)
        # Every character is predicted, and a document's end.
        judged = json.loads(self.ok("eval", "run", "--data", "names.txt", "--separator", "\n", "--json").out)
        self.assertEqual(judged["tokens"], 240 * 4)
        self.assertAlmostEqual(judged["nats_per_character"], judged["loss"] * 4 / 3, places=6)
        # The same of rows.
        self.write("names.csv", "text\n" + "".join(f"{n}\n" for n in names * 40))
        self.tiny(**{**run, "data__train": "names.csv", "data__separator": "", "steps": 2, "out": "rows"})
        self.assertEqual(read(self.path("run/best/tokenizer.json")), read(self.path("rows/best/tokenizer.json")))

    def test_one_text_of_characters_stays_as_it_is(self):
        self.tiny(steps=2)
        tokens = json.loads(read(self.path("run/last/tokenizer.json")))["model"]["vocab"]
        self.assertEqual(set(tokens), set(make_text()) | {"<unk>"})
        self.refused("generate", "run", "--prompt", "", says="prompt is empty")


class Bytes(InputTest):
    def test_what_is_no_text_is_refused_with_a_cure(self):
        text = make_text()
        cases = {
            "latin1.txt": (b"the caf\xe9 " * 50, ["latin1.txt:1: byte 0xE9 at offset 7", "iconv -f ISO-8859-1 -t UTF-8"]),
            "utf16.txt": (text.encode("utf-16"), ["utf16.txt", "UTF-16", "iconv -f UTF-16 -t UTF-8"]),
            "utf16le.txt": (text.encode("utf-16-le"), ["utf16le.txt", "iconv -f UTF-16LE"]),
            "nul.txt": (text.encode() + b"\0", [f"nul.txt:{text.count(chr(10)) + 1}: byte 0x00 at offset {len(text)}", "binary"]),
            "noise.bin": (bytes(i * 7919 % 251 + 1 for i in range(4000)), ["noise.bin", "binary"]),
        }
        for name, (contents, says) in cases.items():
            self.write(name, contents)
            for kind in ("bpe", "char", "word"):
                self.tiny(data__train=name, tokenizer__type=kind, refused=says, status=1)
            self.refused("tokenizer", "train", name, "--out", "t", status=1, says=says)
        self.tiny(data__valid=["latin1.txt"], tokenizer__type="bpe", refused="latin1.txt:1", status=1)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_bytes_learn_from_anything_and_say_so(self):
        for name, contents in (("latin1.txt", b"the caf\xe9 " * 50), ("nul.bin", b"ab\0\r\n" * 100)):
            self.write(name, contents)
            for _ in range(2):  # also where the tokens are kept
                said = self.tiny(data__train=name, tokenizer__type="byte", steps=2)
                self.assertEqual(said.count("warning: "), 1, said)
                self.assertIn(f"warning: {name}:1: byte 0x", said)
            judged = self.ok("eval", "run", "--data", name, "--json")
            self.assertEqual(json.loads(judged.out)["tokens"], len(contents))  # and the end
            self.assertIn(f"warning: {name}:1", judged.err)

    def test_line_ends(self):
        text = make_text()
        self.write("unix.txt", text)
        self.write("windows.txt", text.replace("\n", "\r\n"))
        self.assertNotIn("line ends", self.tiny(data__train="unix.txt", steps=2))
        said = self.tiny(data__train="windows.txt", steps=2, out="windows")
        self.assertIn("note: windows.txt: Windows line ends (\\r\\n) are read as \\n", said)
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("windows/last/model.safetensors")))
        kept = self.tiny("data.keep_carriage_returns=true", data__train="windows.txt", steps=2, out="kept")
        self.assertNotIn("line ends", kept)
        self.assertIn("\r", json.loads(read(self.path("kept/last/tokenizer.json")))["model"]["vocab"])
        counts = [json.loads(self.ok("eval", run, "--data", "windows.txt", "--json", *more).out)["tokens"]
                  for run, *more in (["run"], ["run", "--keep-carriage-returns"], ["kept"])]  # as the run read its own
        all_of_them = len(text) - 1 + text.count("\n")
        self.assertEqual(counts, [len(text) - 1, all_of_them, all_of_them])

    def test_files_that_are_missing(self):
        self.tiny("data.train=*.txt", refused=["*.txt: no such file (patterns are not expanded; give a list)"], status=1)
        self.tiny(data__train="none.txt", refused=["none.txt", "No such file"], status=1)


class FromATerminal(InputTest):
    def test_a_hint_says_what_is_awaited(self):
        self.tiny(steps=1)
        for arguments in (["tokenizer", "encode", "run"], ["generate", "run", "--tokens", "1"], ["score", "run"]):
            ours, theirs = pty.openpty()
            child = subprocess.Popen(command(*arguments), cwd=self.folder, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env=ENVIRONMENT)
            os.close(theirs)
            os.write(ours, b"the\n\004")
            out, err = child.communicate(timeout=60)
            os.close(ours)
            self.assertEqual(err.decode().splitlines()[0], "Reading from the terminal; Ctrl-D ends the input.", arguments)
            self.assertEqual(bool(out), arguments[0] != "score")  # whose input is JSON


class Packed(InputTest):
    def test_texts(self):
        self.write("a.txt", make_text())
        self.write("a.txt.gz", gzip.compress(make_text().encode()))
        self.tiny(data__train="a.txt", steps=3)
        self.tiny(data__train="a.txt.gz", steps=3, out="packed")
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("packed/last/model.safetensors")))
        for command in (["eval", "run", "--json", "--data"], ["tokenizer", "encode", "run"],
                        ["generate", "run", "--tokens", "5", "--seed", "1", "--file"]):
            self.assertEqual(self.ok(*command, "a.txt").out, self.ok(*command, "a.txt.gz").out)
        self.ok("tokenizer", "train", "a.txt.gz", "--out", "t")

    def test_rows(self):
        self.write("rows.csv", ROWS)
        self.write("rows.csv.gz", gzip.compress(ROWS.encode()))
        self.write("rows.csv.zst", ZSTD)
        self.classifier("data.train=rows.csv")
        for name in ("rows.csv.gz", "rows.csv.zst"):
            said = self.classifier(f"data.train={name}", "train.out=packed")
            self.assertIn("of 2 classes", said)
            self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("packed/last/model.safetensors")))
            self.assertIn("of            40 examples", self.ok("eval", "run", "--data", name).out)
        self.write("lines.txt", "good day\nbad day\n")
        self.write("lines.txt.gz", gzip.compress(b"good day\nbad day\n"))
        self.assertEqual(*(self.ok("classify", "run", "--file", f).out for f in ("lines.txt", "lines.txt.gz")))

    def test_tags_pairs_and_conversations(self):
        tags = "the DT\nfox NN\n\na DT\ndog NN\n\n" * 9
        self.write("tags.conll.gz", gzip.compress(tags.encode()))
        self.assertIn("of 2 classes", self.classifier("data.train=tags.conll.gz", "data.valid_fraction=0.0", objective="tag"))
        self.write("a.en.gz", gzip.compress(b"one fox\ntwo dogs\n" * 20))
        self.write("a.de", "ein Fuchs\nzwei Hunde\n" * 20)
        self.tiny("model.architecture=encoder_decoder", "train.batch_tokens=64", "tokenizer.type=byte",
                  "train.steps=2", data__train="a.en.gz", data__train_target="a.de")
        talk = json.dumps({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}) + "\n"
        self.write("talk.jsonl.gz", gzip.compress(talk.encode() * 20))
        said = self.tiny("train.objective=chat", "train.batch_tokens=300", "tokenizer.type=byte", "train.steps=2",
                         "model.context=64", data__train="talk.jsonl.gz")
        self.assertIn("18 training conversations", said)

    def test_damaged_files_are_refused(self):
        whole = gzip.compress(make_text().encode())
        cases = {"cut.txt.gz": (whole[:-20], "cut short"), "wrong.txt.gz": (whole[:30] + b"\xff" * 50 + whole[80:], "damaged"),
                 "more.txt.gz": (whole + b"more", "damaged"), "plain.txt.gz": (b"a text", "no gzip data"),
                 "cut.csv.zst": (ZSTD[:-3], "cut short"), "empty.txt.gz": (gzip.compress(b""), "empty")}
        for name, (contents, says) in cases.items():
            self.write(name, contents)
            self.tiny(data__train=name, refused=[name, says], status=1)


class Formats(InputTest):
    def test_names_in_capitals_and_formats_that_are_said(self):
        for name in ("rows.csv", "ROWS.CSV", "rows.txt"):
            self.write(name, ROWS)
        self.classifier("data.train=rows.csv")
        self.classifier("data.train=ROWS.CSV", "train.out=capitals")
        self.classifier("data.train=rows.txt", "data.format=csv", "train.out=said")
        self.write("semi.csv", ROWS.replace(",", ";"))
        self.classifier("data.train=semi.csv", "data.delimiter=;", "train.out=semi")
        for run in ("capitals", "said", "semi"):
            self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path(run, "last/model.safetensors")))
        scores = [self.ok("eval", "run", "--json", "--data", *data).out for data in (
            ["rows.csv"], ["ROWS.CSV"], ["rows.txt", "--format", "csv"], ["semi.csv", "--delimiter", ";"])]
        self.assertEqual(len(set(scores)), 1)
        # Files are read as those of the run.
        for run, data in (("semi", "semi.csv"), ("said", "rows.txt")):
            self.assertEqual(self.ok("eval", run, "--data", data, "--json").out, scores[0])
        self.ok("eval", "semi", "--data", "rows.csv", "--delimiter", ",")
        self.classifier("data.train=rows.txt", refused=["rows.txt", ".csv", "data.format"], status=1)
        self.classifier("data.train=semi.csv", refused=['semi.csv seems to be divided by ";"', 'data.delimiter = ";"'], status=1)
        self.refused("eval", "run", "--data", "semi.csv", status=1, says=['divided by ";"', '--delimiter ";"'])
        self.classifier("data.train=rows.csv", "data.delimiter=ab", refused=["data.delimiter", "one character"], status=2)
        self.classifier("data.train=rows.csv", "data.format=xlsx", refused=["data.format", "csv"], status=2)

    def test_lists_of_words_and_tags(self):
        rows = [{"id": str(i), "tokens": ["the", f"fox{i}", "runs"], "ner_tags": ["O", "B-X", "O"]} for i in range(40)]
        self.write("t.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
        said = self.classifier("data.train=t.jsonl", objective="tag")
        self.assertIn("36 training, 4 validation and 0 test examples of 2 classes", said)
        self.assertIn("of            120 words in 40 sentences", self.ok("eval", "run", "--data", "t.jsonl").out)
        self.write("own.jsonl", "".join(json.dumps({"w": r["tokens"], "t": r["ner_tags"]}) + "\n" for r in rows))
        self.classifier("data.train=own.jsonl", "data.text_column=w", "data.label_column=t", "train.out=own", objective="tag")
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("own/last/model.safetensors")))
        self.ok("eval", "run", "--data", "own.jsonl", "--text-column", "w", "--label-column", "t")
        self.classifier("data.train=own.jsonl", objective="tag", refused=["own.jsonl:1", "tokens", "t, w"], status=1)
        self.write("one.conll", "a X\nb X\n\nc X\n\n" * 9)
        self.classifier("data.train=one.conll", objective="tag", refused=["one.conll", "'X'", "nothing to tell apart"], status=1)

    def test_overrides_need_no_quotes(self):
        self.write("bare.csv", ROWS.split("\n", 1)[1])
        self.write("numbers.csv", ROWS.replace("label", "1"))
        self.classifier("data.train=bare.csv", "data.columns=text,label", "train.steps=1e1")
        self.assertIn("steps = 10\n", read(self.path("run/config.toml")).decode())
        self.classifier("data.train=numbers.csv", "data.label_column=1")
        self.classifier("data.train=bare.csv", "train.steps=abc", refused=["train.steps: expected an integer, got 'abc'"], status=2)

    def test_rows_that_look_labelled(self):
        self.write("bank.csv", ROWS.replace("label", "category"))
        said = self.tiny(data__train="bank.csv", steps=2)
        hints = [line for line in said.splitlines() if line.startswith("hint: ")]
        self.assertEqual(len(hints), 1, said)
        self.assertIn('train.objective = "classify"', hints[0])
        self.assertIn("'category'", hints[0])
        self.assertIn("hint: ", self.tiny(data__train="bank.csv", steps=2))  # also where the tokens are kept
        self.write("long.csv", ROWS.replace(",neg", ",a_class_whose_name_has_more_than_forty_characters"))
        self.assertIn("hint: ", self.tiny(data__train="long.csv", steps=2))
        self.write("texts.csv", "text\n" + "good day\n" * 40)
        self.assertNotIn("hint: ", self.tiny(data__train="texts.csv", steps=2))


class Rows(InputTest):
    def test_rows_without_text(self):
        self.write("some.csv", ROWS + ",neg\n" * 30)
        said = self.classifier("data.train=some.csv", "train.steps=60", "train.learning_rate=0.01")
        self.assertIn("36 training, 4 validation and 0 test examples of 2 classes (30 rows without text left out)", said)
        out = self.ok("eval", "run", "--data", "some.csv").out
        self.assertIn("of            70 examples", out)
        self.assertIn("without text  30 of them, which count as wrong", out)
        self.assertRegex(out, r"\(no text\)")
        some, all_there = (json.loads(self.ok("eval", "run", "--data", name, "--json").out) for name in (
            "some.csv", self.write("rows.csv", ROWS)))
        self.assertEqual((some["examples"], some["without_text"]), (70, 30))
        self.assertEqual(all_there["examples"], 40)
        self.assertNotIn("without_text", all_there)
        self.assertGreater(all_there["accuracy"], 0.9)
        self.assertAlmostEqual(some["accuracy"], all_there["accuracy"] * 40 / 70)
        self.assertAlmostEqual(some["loss"], all_there["loss"], places=5)
        # In a run's own test they are what they are in eval.
        said = self.classifier("data.train=rows.csv", "data.test=some.csv", "train.out=tested", "train.steps=60",
                               "train.learning_rate=0.01")
        self.assertIn("70 test examples", said)
        self.assertIn("(30 of validation and test count as wrong: they have no text)", said)
        self.write("blank.csv", ROWS + "  ,neg\n" * 30)
        self.assertIn("(30 rows without text left out)", self.classifier("data.train=blank.csv"))
        self.write("empty.csv", re.sub("bad day .", "", ROWS))
        self.classifier("data.train=empty.csv", status=1, refused=[
            "empty.csv", "are of the class 'pos' (20 rows without text left out)", "nothing to tell apart"])
        self.write("none.csv", "text,label\n,neg\n")
        self.classifier("data.train=none.csv", refused=["none.csv", "no example (1 row without text left out)"], status=1)
        self.assertIn("(30 rows without text left out)", self.tiny(data__train="some.csv", steps=2))

    def test_spaces_around_labels(self):
        self.write("trail.csv", ROWS.replace(",neg\n", ",neg \n", 3).replace(",pos", ", pos", 1))
        said = self.classifier("data.train=trail.csv")
        self.assertIn("note: trail.csv: white space around 4 labels was removed", said)
        self.assertIn("of 2 classes", said)
        judged = self.ok("eval", "run", "--data", "trail.csv")
        self.assertIn("white space around 4 labels", judged.err)

    def test_equal_texts(self):
        self.write("same.conll", "a X\nb Y\n\n" * 40)
        self.classifier("data.train=same.conll", objective="tag", status=1, refused=[
            "same.conll", "no example to learn from", "all 40 have the same text", "data.valid"])
        self.classifier("data.train=same.conll", "data.valid_fraction=0.0", objective="tag")


class UnknownTokens(InputTest):
    def test_many_are_a_warning(self):
        words = ["".join(letters) for letters in itertools.islice(itertools.product("abcdefghij", repeat=3), 900)]
        self.write("words.txt", "the fox " * 300 + " ".join(words))
        said = self.tiny(data__train="words.txt", tokenizer__type="word", tokenizer__vocab_size=20, data__valid_fraction=0.0, steps=2)
        self.assertRegex(said, r"warning: [56]\d\.\d% of the training tokens are unknown")
        self.assertRegex(said, r"tokens \([56]\d\.\d\d% unknown\)")
        self.assertIn("warning: ", self.tiny(data__train="words.txt", tokenizer__type="word", tokenizer__vocab_size=20,
                                             data__valid_fraction=0.0, steps=2))  # also where the tokens are kept
        self.write("few.txt", "the fox " * 3000 + " ".join(words[:15]))
        said = self.tiny(data__train="few.txt", tokenizer__type="word", tokenizer__vocab_size=20, data__valid_fraction=0.0, steps=2)
        self.assertNotIn("warning: ", said)
        self.assertRegex(said, r"\(0\.\d+% unknown\)")
        self.assertNotIn("unknown", self.tiny(steps=2))

    def test_of_classes(self):
        rows = "text,label\n" + "".join(f"w{chr(97 + i % 26)}{chr(97 + i // 26)} good,{'ab'[i % 2]}\n" for i in range(200))
        self.write("rows.csv", rows)
        said = self.classifier("data.train=rows.csv", "tokenizer.type=word", "tokenizer.vocab_size=10")
        self.assertRegex(said, r"warning: \d\d\.\d% of the training tokens are unknown")


if __name__ == "__main__":
    main()
