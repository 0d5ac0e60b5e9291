// What the tokenizers' peers print: megabytes_per_second tokens, of the median of so many rounds over a text's lines.
import { readFileSync } from "node:fs";

// `encode`: lines -> the number of their tokens.
export async function report(text, rounds, encode) {
  const whole = readFileSync(text, "utf8");
  const lines = whole.replace(/\n$/, "").split("\n");
  const seconds = [];
  let tokens = 0;
  for (let r = 0; r < Number(rounds); r++) {
    const start = performance.now();
    tokens = await encode(lines);
    seconds.push((performance.now() - start) / 1e3);
  }
  seconds.sort((a, b) => a - b);
  console.log((Buffer.byteLength(whole) / 1e6 / seconds[seconds.length >> 1]).toFixed(2), tokens);
}
