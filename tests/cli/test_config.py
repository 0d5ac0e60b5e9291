#!/usr/bin/env python3
"""qkv config: help about settings.

usage: test_config.py QKV [unittest arguments]
"""
import json
import re

from qkv_cli import CliTest, main


class Config(CliTest):
    def test_overview_names_sections_and_the_usual_settings(self):
        out = self.ok("config").out
        for part in "[train]", "learning_rate = ", "model (", "qkv config SECTION":
            self.assertIn(part, out)
        self.assertLess(len(out.splitlines()), 40)

    def test_a_key_is_explained(self):
        out = self.ok("config", "train.accumulate").out
        self.assertEqual(out.splitlines()[:2], ["train.accumulate", "  micro-batches per optimizer step (gradient accumulation)"])
        self.assertIn("default: 1", out)
        self.assertIn("--set train.accumulate=VALUE", out)
        self.assertEqual(self.ok("config", "gradient_accumulation_steps").out, out)

    def test_words_are_searched(self):
        self.assertIn("schedule = ", self.ok("config", "learning", "rate", "schedule").out)
        self.assertIn("llama", self.ok("config", "presets").out)
        self.refused("config", "zebra", status=2, says="no setting matches 'zebra'")

    def test_all_and_json(self):
        keys = json.loads(self.ok("config", "--json").out)
        self.assertGreater(len(keys), 230)
        self.assertEqual(set(keys[0]), {"section", "key", "default", "help", "range", "objectives"})
        self.assertEqual(sum(" = " in line for line in self.ok("config", "--all").out.splitlines()) >= len(keys), True)
        self.assertEqual([k["key"] for k in json.loads(self.ok("config", "lora_rank", "--json").out)], ["lora_rank"])

    def test_train_help_shows_the_usual_settings_alone(self):
        out = self.ok("train", "--help").out
        self.assertIn("qkv config", out)
        self.assertEqual(len(re.findall(r"^  \w+ = ", out, re.M)), 15)


if __name__ == "__main__":
    main()
