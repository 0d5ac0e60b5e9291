// Hugging Face's tokenizers (npm, native) on the lines of a text: prints megabytes_per_second tokens, as
// bench/tokenizer_speed.cc does, or with --train VOCABULARY the seconds that byte-level BPE takes.
//   node tokenizers.mjs FOLDER_OF_node_modules TOKENIZER.json TEXT [ROUNDS]
//   node tokenizers.mjs FOLDER_OF_node_modules --train TEXT
import { createRequire } from "node:module";
import { report } from "./rounds.mjs";
const [folder, file, text, rounds = "5"] = process.argv.slice(2);
const hf = createRequire(folder + "/")("tokenizers");
if (file === "--train") {
  const tokenizer = new hf.Tokenizer(hf.BPE.empty());
  tokenizer.setPreTokenizer(hf.byteLevelPreTokenizer(false));
  const start = performance.now();
  tokenizer.train([text]);
  console.log(((performance.now() - start) / 1e3).toFixed(2), tokenizer.getVocabSize());
} else {
  const tokenizer = hf.Tokenizer.fromFile(file);
  await report(text, rounds, async (lines) => {
    const encodings = await tokenizer.encodeBatch(lines, { addSpecialTokens: false });
    return encodings.reduce((n, e) => n + e.getLength(), 0);
  });
}
