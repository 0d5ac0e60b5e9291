// What Hugging Face's tokenizers (npm, native) learn of a text, with their trainers' defaults, beside a trained tokenizer.json.
//   node trained_vocabulary.mjs FOLDER_OF_node_modules bpe|wordpiece|word TEXT TOKENIZER.json
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
const [folder, kind, text, ours] = process.argv.slice(2);
const hf = createRequire(folder + "/")("tokenizers");
const scratch = mkdtempSync(join(tmpdir(), "trained-"));

function learn() {
  const empty = { bpe: hf.BPE, wordpiece: hf.WordPiece, word: hf.WordLevel }[kind];
  const tokenizer = new hf.Tokenizer(empty.empty());
  if (kind === "bpe") tokenizer.setPreTokenizer(hf.byteLevelPreTokenizer(false));
  if (kind === "wordpiece") tokenizer.setNormalizer(hf.bertNormalizer());
  if (kind === "wordpiece") tokenizer.setPreTokenizer(hf.bertPreTokenizer());
  if (kind === "word") tokenizer.setPreTokenizer(hf.whitespacePreTokenizer());
  tokenizer.train([text]);
  const file = join(scratch, "theirs.json");
  tokenizer.save(file);
  return entries(file);
}

// In the order in which they were learnt. The tokens that are there before anything is learnt are not among them.
function entries(file) {
  const { model, added_tokens } = JSON.parse(readFileSync(file, "utf8"));
  if (model.merges) return model.merges.map((m) => (Array.isArray(m) ? m.join(" ") : m));
  const added = new Set((added_tokens ?? []).map((t) => t.content)).add("<unk>");
  const ids = Object.entries(model.vocab).filter(([token]) => !added.has(token));
  return ids.sort((a, b) => a[1] - b[1]).map(([token]) => token);
}

const lacking = (a, b) => { const have = new Set(b); return a.filter((x) => !have.has(x)).length; };
const [first, again, mine] = [learn(), learn(), entries(ours)];
rmSync(scratch, { recursive: true });
const apart = first.findIndex((x, i) => x !== mine[i]);
console.log(
  `${kind}: ${mine.length} learnt, ${first.length} by tokenizers; ${lacking(mine, first)} are not among theirs ` +
  `(${lacking(again, first)} of theirs are not when they learn it again); in the same order ` +
  (apart < 0 ? "throughout" : `as far as ${apart}`));
