#!/usr/bin/env python3
"""qkv tokenizer.

usage: test_tokenizer.py QKV [unittest arguments]
"""
import json
import os

from qkv_cli import FinishedRun, main, read


class Tokenize(FinishedRun):
    def test_round_trip_through_the_run(self):
        text = "the lazy dog\nsleeps"
        for directory in (self.run_dir, os.path.join(self.run_dir, "last")):
            ids = self.ok("tokenizer", "encode", directory, stdin=text).out
            self.assertEqual(len(ids.split()), len(text))
            self.assertEqual(self.ok("tokenizer", "decode", directory, stdin=ids).out, text)

    def test_json_lines(self):
        texts = ["the lazy dog\nsleeps", "", "a"]
        lines = "".join(json.dumps(t) + "\n" for t in texts)
        ids = self.ok("tokenizer", "encode", self.run_dir, "--jsonl", stdin=lines).out
        back = self.ok("tokenizer", "decode", self.run_dir, "--jsonl", stdin=ids).out
        self.assertEqual([json.loads(line) for line in back.splitlines()], texts)

    def test_pairs_details_and_the_lengths_that_the_file_names(self):
        self.write("corpus.txt", "the lazy dog sleeps on\n" * 4)
        self.ok("tokenizer", "train", "corpus.txt", "--type", "wordpiece", "--vocab-size", "60", "--out", "plain")
        document = json.loads(read(self.path("plain/tokenizer.json")))
        document["truncation"] = {"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0}
        document["padding"] = {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0,
                               "pad_type_id": 0, "pad_token": "[PAD]"}
        os.mkdir(self.path("sized"))
        self.write("sized/tokenizer.json", json.dumps(document))
        lines = '["the lazy dog", "the dog sleeps"]\n"lazy dog"\n'
        encode = ("tokenizer", "encode", "sized", "--jsonl", "--details")
        whole, fitting = ([json.loads(line) for line in self.ok(*encode, *more, stdin=lines).out.splitlines()]
                          for more in ((), ("--fit",)))
        self.assertEqual([len(e["ids"]) for e in whole], [9, 4])
        self.assertEqual(whole[0]["type_ids"], [0] * 5 + [1] * 4)
        self.assertEqual(fitting[0]["tokens"], "[CLS] the [SEP] the dog [SEP]".split())
        self.assertEqual(fitting[1], {"ids": [0, 0] + whole[1]["ids"], "tokens": ["[PAD]"] * 2 + whole[1]["tokens"],
                                      "offsets": [[0, 0], [0, 0], [0, 0], [0, 4], [5, 8], [0, 0]],
                                      "type_ids": [0] * 6, "attention_mask": [0, 0, 1, 1, 1, 1]})
        text = self.ok("tokenizer", "encode", "sized", "--fit", stdin="the lazy dog sleeps on").out
        self.assertEqual(len(text.split()), 6)
        self.refused("tokenizer", "encode", "plain", "--fit", stdin="a", status=2, says=["--fit", "plain"])
        self.refused(*encode, stdin='["a"]\n', status=1, says=["standard input:1", "list of two"])

    def test_byte_level_takes_any_bytes_and_char_does_not(self):
        contents = b"caf\xe9 \xff\xfe"
        self.write("latin1.txt", contents)
        self.refused("tokenizer", "encode", self.run_dir, "latin1.txt", status=1, says=["latin1.txt", "UTF-8"])
        self.ok("tokenizer", "train", "--type", "byte", "--out", "bytes")
        ids = self.ok("tokenizer", "encode", "bytes", "latin1.txt").out
        self.assertEqual(len(ids.split()), len(contents))
        self.assertEqual(self.ok("tokenizer", "decode", "bytes", stdin=ids).raw_out, contents)

    def test_every_type_is_trained(self):
        text = "the lazy dog sleeps and the quick brown fox jumps over the lazy dog\n" * 20
        self.write("corpus.txt", text)
        for kind in ("bpe", "wordpiece", "unigram", "sentencepiece_bpe", "char", "byte", "word"):
            sized = kind not in ("char", "byte")
            self.ok("tokenizer", "train", "corpus.txt", "--type", kind, "--out", kind, "--special", "<unk>", "[UNK]",
                    *(["--vocab-size", "300"] if sized else []))
            ids = self.ok("tokenizer", "encode", kind, "--no-special", stdin="the lazy fox").out
            self.assertLessEqual(len(ids.split()), 13)
            self.assertEqual(self.ok("tokenizer", "decode", kind, stdin=ids).out.replace(" ", ""),
                             "t h e l a z y f o x".replace(" ", ""))
        self.assertTrue(os.path.exists(self.path("unigram/tokenizer.model")))
        model = self.ok("tokenizer", "encode", "unigram/tokenizer.model", "--jsonl", stdin='"the <unk>"\n').out
        self.assertGreater(len(json.loads(model)), 2)  # the library itself sees no special tokens
        train = ("tokenizer", "train", "corpus.txt", "--out", "t", "--type")
        self.refused(*train, "unigram", "--min-frequency", "3", status=2, says=["--min-frequency", "unigram"])
        self.refused(*train, "bpe", "--cased", status=2, says=["--cased", "bpe"])
        self.refused(*train, "wordpiece", "--vocab-size", "20", status=1, says=["20", "characters"])
        self.refused(*train, "sentencepiece_bpe", "--vocab-size", "200", status=1, says=["200", "bytes"])
        self.write("cut.model", "\n\x7f")
        self.refused("tokenizer", "encode", "cut.model", status=1, says=["cut.model", "SentencePiece"])

    def test_bad_input(self):
        encode, decode = ("tokenizer", "encode", self.run_dir), ("tokenizer", "decode", self.run_dir)
        self.refused("tokenizer", "encode", "missing", status=1, says="missing")
        self.refused(*encode, "missing.txt", status=1, says="missing.txt")
        self.refused(*encode, "--jsonl", stdin="not json\n", status=1, says=["standard input:1", "JSON"])
        self.refused(*encode, "--jsonl", stdin='"a"\n3\n', status=1, says=["standard input:2", "string"])
        self.refused(*decode, stdin="1 x", status=1, says=["standard input", '"x"'])
        self.refused(*decode, stdin="1 100000", status=1, says=["standard input", "100000"])
        self.refused(*decode, "--jsonl", stdin="[1]\n[-1]\n", status=1, says=["standard input:2", "-1"])
        self.refused("tokenizer", "train", "missing.txt", "--out", "t", status=1, says="missing.txt")
        self.refused("tokenizer", "train", "--out", "t", status=2, says="INPUT")
        self.refused("tokenizer", "train", "text.txt", "--out", "text.txt/t", status=1, says="text.txt/t")
        self.assertFalse(os.path.exists(self.path("t")))
        self.assert_no_leftovers()

    def test_an_existing_tokenizer_stays(self):
        self.ok("tokenizer", "train", "--type", "byte", "--out", "kept")
        before = read(self.path("kept/tokenizer.json"))
        self.refused("tokenizer", "train", "text.txt", "--type", "char", "--out", "kept", status=2, says=["kept", "--overwrite"])
        self.assertEqual(read(self.path("kept/tokenizer.json")), before)
        self.ok("tokenizer", "train", "text.txt", "--type", "char", "--out", "kept", "--overwrite")
        self.assertNotEqual(read(self.path("kept/tokenizer.json")), before)
        self.write("empty.txt", "")
        self.refused("tokenizer", "train", "empty.txt", "--out", "none", status=1, says=["empty.txt", "no text to learn from"])
        self.assertIn("100000 tokens were asked for", self.ok("tokenizer", "train", "text.txt", "--vocab-size", "100000", "--out", "few").err)


if __name__ == "__main__":
    main()
