#!/usr/bin/env python3
"""Multimodal checkpoints, of which the language model is used, and names of model types that qkv does not read.

usage: test_multimodal.py QKV [unittest arguments]
"""
# Covers: qkv/cli/model_notes.cc, qkv/io/family/language_part.cc
import json
import os
import shutil

from qkv_cli import CliTest, load_safetensors, main, read_text, safetensors_bytes, write

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "hf")


class Multimodal(CliTest):
    def logits(self, model):
        ids = [5, 9, 30, 2, 11, 7]
        write(self.path("in.safetensors"), safetensors_bytes({"input_ids": ("I64", [1, 6], ids)}))
        done = self.ok("forward", model, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
        return load_safetensors(self.path("out.safetensors"))["logits"], done.err

    def wrapped(self, case, outer, prefixes, head):
        """The case's model inside another, with a part that sees."""
        folder = self.path(outer)
        shutil.copytree(os.path.join(GOLDEN, case), folder)
        config = json.loads(read_text(os.path.join(GOLDEN, case, "config.json")))
        ids = {key: config.pop(key) for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in config}
        tied = config.pop("tie_word_embeddings", None)
        whole = {"model_type": outer, "architectures": ["XForConditionalGeneration"], "text_config": config,
                 "vision_config": {"model_type": "siglip_vision_model"}, **ids}
        if tied is not None:
            whole["tie_word_embeddings"] = tied
        write(os.path.join(folder, "config.json"), json.dumps(whole))
        tensors = {}
        for name, (shape, values) in load_safetensors(os.path.join(folder, "model.safetensors")).items():
            inside = head + name if name.startswith("lm_head.") else prefixes + name.removeprefix("model.")
            tensors[inside] = ("F32", shape, values)
        tensors["vision_tower.patch.weight"] = ("F32", [1, 2], [1.0, 2.0])
        tensors["model.multi_modal_projector.weight"] = ("F32", [1, 1], [3.0])
        write(os.path.join(folder, "model.safetensors"), safetensors_bytes(tensors))
        return folder

    def test_the_language_model_is_used(self):
        for case, outer, prefixes, head in (("gemma3_text", "gemma3", "language_model.model.", "language_model."),
                                            ("gemma4_text", "gemma4", "model.language_model.", ""),
                                            ("llama4_text", "llama4", "language_model.model.", "language_model."),
                                            ("llama_mha", "llava", "model.language_model.", ""),
                                            ("llama_mha", "smolvlm", "model.text_model.", "")):
            with self.subTest(outer):
                model = self.wrapped(case, outer, prefixes, head)
                alone, _ = self.logits(os.path.join(GOLDEN, case))
                got, err = self.logits(model)
                self.assertEqual(got, alone)
                self.assertIn("only its language model is used (left out: multi_modal_projector, vision_tower)", err)
                # It is saved as what it is.
                self.ok("convert", model, "--out", outer + "-alone")
                saved = json.loads(read_text(self.path(outer + "-alone", "config.json")))
                self.assertEqual(saved["model_type"], json.loads(read_text(os.path.join(GOLDEN, case, "config.json")))["model_type"])
                self.assertEqual(self.logits(outer + "-alone"), (alone, ""))
                self.assertIn(saved["model_type"], self.ok("inspect", model).out)

    def test_names_of_model_types(self):
        def refused(config, says, never=()):
            os.makedirs(self.path("model"), exist_ok=True)
            write(self.path("model", "config.json"), json.dumps(config))
            text = self.refused("inspect", "model", says=["config.json", *says]).err
            for part in never:
                self.assertNotIn(part, text)
        refused({"model_type": "gpt-neox"}, ["\"gpt-neox\" is not supported (did you mean gpt_neox?); qkv reads"])
        refused({"model_type": "gemma3"}, ["did you mean gemma3_text?"])
        # Another model is not near because its name is.
        for other in ("olmoe", "qwen3_vl", "hyena"):
            refused({"model_type": other}, [other, "is not supported; qkv reads"], ["did you mean"])
        refused({"model_type": "qwen9_vl", "text_config": {"model_type": "qwen9"}}, ["\"qwen9_vl\" is not supported"])
        refused({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "vocab_size": "many"}}, ["text_config", "vocab_size"])


if __name__ == "__main__":
    main()
