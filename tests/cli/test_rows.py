#!/usr/bin/env python3
"""Predictions beside the rows, or the words in columns, that they are of.

usage: test_rows.py QKV [unittest arguments]
"""
# Covers: qkv/cli/columns_of_run.cc, qkv/cli/text_input.cc
import csv
import gzip
import io
import json

from qkv_cli import EncoderTest, main, run_qkv


class Rows(EncoderTest):
    def in_csv(self, text, name="in.csv"):
        return self.write(name, text)

    def test_a_column_is_predicted(self):
        rows = 'id,"the ""text""",text\r\n1,"a, b","saw, the\nfox"\n2,x,\n3,,apple pear\n'
        path = self.in_csv(rows)
        out = self.ask("classify", "classify", "--file", path).out
        # The file's rows stay as they stood; fields are appended.
        self.assertTrue(out.startswith('id,"the ""text""",text,predicted_label,probability\n1,"a, b","saw, the\nfox",tool,0.'), out)
        read = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual([(r["id"], r["predicted_label"]) for r in read], [("1", "tool"), ("2", ""), ("3", "fruit")])
        # Each is what a line of it gets.
        alone = self.ask("classify", "classify", stdin="saw, the fox\n\napple pear\n").out.splitlines()
        self.assertEqual([f"{float(r['probability']):.4f}" if r["text"] else "" for r in read],
                         [(line.split("\t") + [""])[1] for line in alone])
        # A few rows at a time, packed, and as JSON.
        self.assertEqual(self.ask("classify", "classify", "--file", path, "--lines", "1").out, out)
        with gzip.open(self.path("in.csv.gz"), "wb") as file:
            file.write(rows.encode())
        self.assertEqual(self.ask("classify", "classify", "--file", self.path("in.csv.gz")).out, out)
        objects = self.jsons("classify", "classify", "--file", path, "--best", "2")
        self.assertEqual([list(o) for o in objects][0], ["id", 'the "text"', "text", "predicted_label", "probability",
                                                         "predicted_label_2", "probability_2"])
        self.assertEqual([o["predicted_label"] for o in objects], ["tool", None, "fruit"])

    def test_columns_are_those_of_the_run_or_named(self):
        self.write("reviews.csv", "stars,review\n" + "".join(f"good,the fox {i}\nbad,a dog {i}\n" for i in range(30)))
        result = run_qkv("train", self.write("c.toml", self.CONFIG), "--set", "train.objective=classify", "--set", "data.train=reviews.csv",
                         "--set", "data.text_column=review", "--set", "data.label_column=stars", "--set", "train.out=run",
                         "--set", "train.steps=2", cwd=self.folder)
        self.assertEqual(result.status, 0, result)
        header = self.ok("classify", self.path("run"), "--file", self.in_csv("n,review\n1,the fox\n")).out.splitlines()[0]
        self.assertEqual(header, "n,review,predicted_label,probability")
        self.assertIn("\n1,the fox,", self.ok("classify", self.path("run"), "--file", self.in_csv("n,text\n1,the fox\n")).out)
        self.refused("classify", self.path("run"), "--file", self.in_csv("n,note\n1,the fox\n"), status=1,
                     says=["in.csv: there is no column 'review' (it has: n, note)", "--text-column"])
        self.assertIn("\n1,the fox,", self.ok("classify", self.path("run"), "--file", self.path("in.csv"), "--text-column", "note").out)
        self.refused("classify", self.path("run"), "--file", self.path("in.csv"), "--text-column", "no", status=1,
                     says=["there is no column 'no'"])
        # A .tsv file is one of rows where its header says so.
        self.write("in.tsv", "n\treview\n1\tthe \"fox\n")
        self.assertTrue(self.ok("classify", self.path("run"), "--file", self.path("in.tsv")).out.startswith("n\treview\tpredicted_label\t"))
        # Without a header, and with another delimiter, there is none in the output.
        self.write("in.txt", "1;the fox\n")
        self.assertRegex(self.ok("classify", self.path("run"), "--file", self.path("in.txt"), "--delimiter", ";", "--columns", "n,t",
                                 "--text-column", "t").out, r"^1;the fox;(good|bad);0\.\d+\n$")

    def test_json_rows(self):
        rows = '{"id": 7, "text": "saw", "more": [1, {"a": null}]}\n\n{"text":"apple", "tokens": []} \n'
        out = self.ask("classify", "classify", "--format", "jsonl", stdin=rows).out.splitlines()
        self.assertTrue(out[0].startswith('{"id": 7, "text": "saw", "more": [1, {"a": null}],"predicted_label":"tool","probability":0.'), out)
        self.assertEqual((out[1], json.loads(out[2])["predicted_label"]), ("", "fruit"))
        self.assertEqual(self.ask("classify", "classify", "--file", self.write("in.jsonl", rows)).out.splitlines(), out)
        self.refused("classify", self.run_dir("classify"), "--file", self.write("in.jsonl", '{"text":"a"}\n{"t":"b"}\n'), status=1,
                     says=['in.jsonl:2: there is no "text" (the keys are: t)', "--text-column"])
        self.refused("classify", self.run_dir("classify"), "--file", self.write("in.jsonl", '{"text":"a","probability":1}\n'), status=1,
                     says=["in.jsonl:1: there is a column 'probability' already"])

    def test_lines_are_not_taken_for_rows(self):
        self.refused("classify", self.run_dir("classify"), stdin="a\tb\nx\ty\tz\n", status=1, says=["standard input:2", "got 3 fields", "--text-column"])
        self.refused("classify", self.run_dir("classify"), "--format", "csv", stdin="text\na\n", status=1, says=["--file"])
        self.refused("classify", self.run_dir("classify"), "--text-column", "a", "--json-lines", stdin="{}", status=2,
                     says=["--text-column", "--json-lines"])
        self.refused("classify", self.run_dir("classify"), "--file", self.in_csv("text,probability\na,b\n"), status=1,
                     says=["a column 'probability' already"])
        self.refused("classify", self.run_dir("classify"), "--file", self.in_csv("text,b\na\n"), status=1, says=["in.csv:2: expected 2 fields"])

    def test_every_command_has_its_columns(self):
        self.write("qa.tsv", "id\tquestion\tcontext\n1\twhich fruit\tthe apple and\n2\twhich tool\ta saw\n")
        out = self.ask("answer", "answer", "--file", self.path("qa.tsv")).out.splitlines()
        self.assertEqual(out[0], "id\tquestion\tcontext\tpredicted_answer\tscore")
        self.assertEqual([line.split("\t")[3] for line in out[1:]],
                         self.ask("answer", "answer", stdin="which fruit\tthe apple and\nwhich tool\ta saw\n").out.splitlines())
        text = self.in_csv("n,text\n1,the apple\n2,\n")
        vectors = self.ask("embed", "classify", "--file", text).out.splitlines()
        self.assertEqual(vectors[1], "1,the apple," + self.ask("embed", "classify", stdin="the apple\n").out.strip())
        self.assertEqual((vectors[0], vectors[2]), ("n,text,embedding", "2,,"))
        nearest = self.ask("embed", "classify", "--file", text, "--query", "the apple").out
        self.assertEqual(nearest, "1.0000\tthe apple\n")
        filled = self.ask("fill", "masked", "--file", self.in_csv("text\nthe [MASK]\n")).out.splitlines()
        self.assertEqual(filled, ["text,filled", "the [MASK]," + self.ask("fill", "masked", stdin="the [MASK]\n").out.strip()])
        pairs = self.in_csv("target,source\nb,a\n")
        line = self.ask("translate", "pairs", "--tokens", "4", stdin="a\n").out.strip()
        self.assertEqual(next(csv.DictReader(io.StringIO(self.ask("translate", "pairs", "--tokens", "4", "--file", pairs).out)))["translation"].strip(), line)
        self.assertEqual(self.ask("summarize", "pairs", "--tokens", "4", "--best", "2", "--beams", "2", "--file", pairs).out.splitlines()[0],
                         "target,source,summary,summary_2")

    def test_tags_of_rows(self):
        self.assertEqual(self.ask("tag", "tag", "--file", self.in_csv("text,n\nthe  apple,1\n,2\n")).out,
                         "text,n,predicted_tags\nthe  apple,1,O IT\n,2,\n")
        # Lists of words, as Hugging Face's data sets have them.
        self.assertEqual(self.ask("tag", "tag", "--format", "jsonl", stdin='{"id":"1","tokens":["saw","over"]}\n').out,
                         '{"id":"1","tokens":["saw","over"],"predicted_tags":["IT","O"]}\n')
        self.refused("tag", self.run_dir("tag"), "--format", "jsonl", stdin='{"tokens":["a b"]}\n', status=1, says=["standard input:1", "a word"])

    def test_words_in_columns(self):
        plain = "# first\nthe DT\napple\tNN\n\n\n# second\nsaw VB\n# X\n"
        self.assertEqual(self.ask("tag", "tag", "--file", self.write("in.conll", plain)).out,
                         "# first\nthe DT O\napple\tNN\tIT\n\n\n# second\nsaw VB IT\n# X IT\n")
        universal = "# text = the apple\n1-2\ttheapple\t_\n1\tthe\tDET\n2\tapple\tNOUN\n2.1\tx\t_\n\n1\tsaw\tVERB\n\n"
        tagged = "# text = the apple\n1-2\ttheapple\t_\t_\n1\tthe\tDET\tO\n2\tapple\tNOUN\tIT\n2.1\tx\t_\t_\n\n1\tsaw\tVERB\tIT\n\n"
        columns = "# global.columns = ID FORM UPOS\n"
        self.assertEqual(self.ask("tag", "tag", "--file", self.write("in.conllu", universal)).out,
                         "# global.columns = ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC QKV:TAG\n" + tagged)
        self.assertEqual(self.ask("tag", "tag", "--file", self.write("in.conllu", columns + universal)).out,
                         "# global.columns = ID FORM UPOS QKV:TAG\n" + tagged)
        swapped = self.write("in.conll", "NN apple\n")
        self.assertEqual(self.ask("tag", "tag", "--file", swapped, "--word-column", "2").out, "NN apple IT\n")
        self.refused("tag", self.run_dir("tag"), "--file", swapped, "--word-column", "3", status=1, says=["in.conll:1", "column 3"])
        self.refused("tag", self.run_dir("tag"), "--file", swapped, "--json", status=1, says=["in.conll", "--json"])
        # As many sentences as are not tagged at once.
        many = self.write("many.conll", "apple\n\n" * 1500)
        self.assertEqual(self.ask("tag", "tag", "--file", many).out, "apple IT\n\n" * 1500)


if __name__ == "__main__":
    main()
