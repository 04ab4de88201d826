// Makes *-code.ts of the files *.wat beside it. With --check it changes nothing and fails when one is stale.
import { readFileSync, writeFileSync } from "node:fs";
import openWabt from "wabt";

const loops = [
  { source: "src/models/trees/tree-loops.wat", target: "src/models/trees/tree-loops-code.ts", name: "treeLoopsCode" },
  { source: "src/columns/loops/vectors.wat", target: "src/columns/loops/vector-code.ts", name: "vectorCode" },
  {
    source: "src/columns/loops/page-loops.wat",
    target: "src/columns/loops/page-loops-code.ts",
    name: "pageLoopsCode",
  },
  {
    source: "src/columns/loops/hash-loops.wat",
    target: "src/columns/loops/hash-loops-code.ts",
    name: "hashLoopsCode",
  },
  {
    source: "src/checks/profile/profile-loops.wat",
    target: "src/checks/profile/profile-loops-code.ts",
    name: "profileLoopsCode",
  },
];

/**
 * Writes out what a file repeats: the lines from `;; each NAMES: VALUES, VALUES` to `;; end`, once for each of the values,
 * with `{NAME}`, or arithmetic such as `{NAME * 16}`, replaced.
 */
function writtenOut(lines, names = {}) {
  const text = [];
  for (let at = 0; at < lines.length; at += 1) {
    const [, wanted, values] = /^\s*;; each ([\w ]+): (.*)$/.exec(lines[at]) ?? [];
    if (wanted === undefined) {
      text.push(lines[at].replaceAll(/\{([^}]+)\}/g, (_, sum) => sumOf(sum, names)));
      continue;
    }
    const start = at + 1;
    for (let depth = 1; depth > 0; ) {
      at += 1;
      depth += /^\s*;; each /.test(lines[at]) ? 1 : /^\s*;; end$/.test(lines[at]) ? -1 : 0;
    }
    for (const one of values.split(", ")) {
      const own = one
        .split(" ")
        .map((value, index) => [wanted.split(" ")[index], /^\d+$/.test(value) ? Number(value) : value]);
      text.push(...writtenOut(lines.slice(start, at), { ...names, ...Object.fromEntries(own) }));
    }
  }
  return text;
}

/** A sum of products of names and numbers; or one name's text. */
const sumOf = (sum, names) =>
  sum
    .split(" + ")
    .map((product) =>
      product
        .split(" * ")
        .map((factor) => names[factor] ?? Number(factor))
        .reduce((left, right) => left * right),
    )
    .reduce((left, right) => left + right);

const fileOf = (path) => new URL(`../${path}`, import.meta.url);

const wabt = await openWabt();
for (const { source, target, name } of loops) {
  const lines = readFileSync(fileOf(source), "utf8").split("\n");
  const module = wabt.parseWat(source, writtenOut(lines).join("\n"), { simd: true, bulk_memory: true });
  module.validate();
  const code = Buffer.from(module.toBinary({}).buffer).toString("base64");
  const from = source.replace(/.*\//, "");
  const text = `/** Made from \`${from}\` by \`npm run wasm\`; do not edit. In base64. */\nexport const ${name} =\n  "${code}";\n`;
  if (!process.argv.includes("--check")) {
    writeFileSync(fileOf(target), text);
  } else if (readFileSync(fileOf(target), "utf8") !== text) {
    console.error(`${target} is stale: npm run wasm`);
    process.exitCode = 1;
  }
}
