// Copies the small files of other projects' test data into fixtures/corpora/small, so that a clone of this repository
// has some of each kind: node scripts/small-corpora.mjs FOLDER, which holds parquet-testing and arrow-testing.
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";

const [folder] = process.argv.slice(2);
if (folder === undefined) {
  throw new Error("usage: node scripts/small-corpora.mjs FOLDER");
}
const fixtures = new URL("../fixtures/corpora/", import.meta.url).pathname;
const target = join(fixtures, "small");
const expectedOf = (name) => Object.keys(JSON.parse(readFileSync(join(fixtures, `${name}.expected.json`), "utf8")));
const sizeOf = (path) => statSync(path).size;

/** Bytes of the largest file that is copied, by kind. */
const limits = { parquet: 17_000, golden: 5000, fuzzed: 1500 };

const parquet = join(folder, "parquet-testing");
const isSmallParquet = (name) => sizeOf(join(parquet, name)) <= limits.parquet && !name.endsWith(".md");
const parquetNames = expectedOf("parquet-testing").filter(isSmallParquet);

const arrow = join(folder, "arrow-testing");
const twinOf = (name) => name.replace(/\.[^./]+$/, ".json.gz");
const goldenNames = expectedOf("arrow-testing")
  .map((name) => join("data", name))
  .flatMap((name) => (sizeOf(join(arrow, name)) <= limits.golden ? [name, twinOf(name)] : []));
const fuzzedNames = ["data/arrow-ipc-file", "data/arrow-ipc-stream"]
  .flatMap((kind) => readdirSync(join(arrow, kind), { withFileTypes: true }).map((entry) => ({ kind, entry })))
  .filter(({ entry }) => entry.isFile())
  .map(({ kind, entry }) => join(kind, entry.name))
  .filter((name) => sizeOf(join(arrow, name)) <= limits.fuzzed);

rmSync(target, { recursive: true, force: true });
let bytes = 0;
for (const [from, name, names] of [
  [parquet, "parquet-testing", ["LICENSE.txt", ...parquetNames]],
  [arrow, "arrow-testing", ["LICENSE.txt", ...goldenNames, ...fuzzedNames]],
]) {
  for (const file of new Set(names)) {
    const copy = join(target, name, file);
    mkdirSync(dirname(copy), { recursive: true });
    if (!existsSync(copy)) {
      copyFileSync(join(from, file), copy);
      bytes += sizeOf(copy);
    }
  }
}
writeFileSync(
  join(target, "README.md"),
  `# Small files of other projects

Unchanged copies, made by \`scripts/small-corpora.mjs\`, of files of up to ${limits.parquet} bytes of
[apache/parquet-testing](https://github.com/apache/parquet-testing) (commit 1a2a751) and of up to ${limits.golden} bytes of
[apache/arrow-testing](https://github.com/apache/arrow-testing) (commit 9cfebfe), both under the Apache License 2.0: see
LICENSE.txt in each folder. Neither project has a NOTICE file.
`,
);
console.log(`${target}: ${bytes} bytes`);
