// Makes src/batch/vector-code.ts of src/batch/vectors.wat. With --check it changes nothing and fails when it is stale.
import { readFileSync, writeFileSync } from "node:fs";
import openWabt from "wabt";

const source = "src/batch/vectors.wat";
const target = "src/batch/vector-code.ts";
const fileOf = (path) => new URL(`../${path}`, import.meta.url);

const wabt = await openWabt();
const module = wabt.parseWat(source, readFileSync(fileOf(source), "utf8"), { simd: true });
module.validate();
const code = Buffer.from(module.toBinary({}).buffer).toString("base64");
const text = `/** Made from \`vectors.wat\` by \`npm run wasm\`; do not edit. In base64. */\nexport const vectorCode =\n  "${code}";\n`;

if (!process.argv.includes("--check")) {
  writeFileSync(fileOf(target), text);
} else if (readFileSync(fileOf(target), "utf8") !== text) {
  console.error(`${target} is stale: npm run wasm`);
  process.exitCode = 1;
}
