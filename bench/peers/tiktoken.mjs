// tiktoken (npm, WebAssembly) on the lines of a text: prints megabytes_per_second tokens.
//   node tiktoken.mjs FOLDER_OF_node_modules NAME TEXT [ROUNDS]
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
const [folder, name, text, rounds = "5"] = process.argv.slice(2);
const encoding = createRequire(folder + "/")("tiktoken").get_encoding(name);
const whole = readFileSync(text, "utf8");
const lines = whole.replace(/\n$/, "").split("\n");
const seconds = [];
let tokens = 0;
for (let r = 0; r < Number(rounds); r++) {
  const start = performance.now();
  tokens = 0;
  for (const line of lines) tokens += encoding.encode_ordinary(line).length;
  seconds.push((performance.now() - start) / 1e3);
}
seconds.sort((a, b) => a - b);
console.log((Buffer.byteLength(whole) / 1e6 / seconds[seconds.length >> 1]).toFixed(2), tokens);
