// tiktoken (npm, WebAssembly) on the lines of a text: prints megabytes_per_second tokens.
//   node tiktoken.mjs FOLDER_OF_node_modules NAME TEXT [ROUNDS]
import { createRequire } from "node:module";
import { report } from "./rounds.mjs";
const [folder, name, text, rounds = "5"] = process.argv.slice(2);
const encoding = createRequire(folder + "/")("tiktoken").get_encoding(name);
await report(text, rounds, (lines) => lines.reduce((n, line) => n + encoding.encode_ordinary(line).length, 0));
