// The text of docs/corpora.md, made from what the tests pin.
import { readFileSync } from "node:fs";

const read = (name) => JSON.parse(readFileSync(new URL(`../fixtures/corpora/${name}`, import.meta.url), "utf8"));

/** What a command does with a file, for a cell. */
function ending(expected, whenRead) {
  return expected === "read" ? whenRead : `refused (${expected.exit}): ${code(expected.says)}`;
}

/** Messages name the file and the act; the table has both. */
function code(says) {
  const short = says.replace(/^(reading the footer of|reading|inspecting) <file>: /, "");
  return `\`${short.replaceAll("|", "\\|")}\``;
}

function comparedWith({ run, csv }, golden) {
  if (run !== "read") {
    return "";
  }
  if (golden?.columns === undefined) {
    return "rows only; pyarrow refuses the file";
  }
  const values = Object.values(golden.columns).some((column) => column.values ?? column.sha256);
  return [values ? "pyarrow" : "pyarrow (rows only)", ...(csv === undefined ? [] : ["its CSV"])].join(", ");
}

function note({ refused = {}, note: said = "" }) {
  const types = Object.values(refused).map((says) => /whose type (.*) is not supported/.exec(says)?.[1] ?? "");
  const names = Object.keys(refused).map((name) => `\`${name}\``);
  const what = types.some((type) => type.includes("MAP(")) ? "map" : types.includes("GEOMETRY") ? "geometry" : "";
  const columns = names.length > shownColumns ? `${names.length} columns` : names.join(", ");
  return [said, names.length === 0 ? "" : `Cannot be used: ${columns}${what === "" ? "" : ` (${what})`}.`]
    .filter((text) => text !== "")
    .join(" ");
}

const shownColumns = 4;

/** Files that are not Parquet by their name, and refused for it. */
const isParquet = (file) => /\.parquet(\.encrypted)?$/.test(file);

const howToFetch = [
  "Apache publishes test files for readers of Parquet and Arrow. Those of up to 17,000 bytes (Parquet) and 5,000 bytes",
  "(Arrow) are part of this repository, in `fixtures/corpora/small`, copied by `scripts/small-corpora.mjs`: `npm test`",
  "reads those. To read all of them:",
  "",
  "```",
  "mkdir corpora && cd corpora",
  "git clone https://github.com/apache/parquet-testing && git -C parquet-testing checkout 1a2a751",
  "git clone https://github.com/apache/arrow-testing && git -C arrow-testing checkout 9cfebfe",
  "cd .. && INFER_BATCH_CORPORA=$PWD/corpora npm test",
  "```",
  "",
  "Without the variable, the tests look in `../shared/corpora`. With an empty `INFER_BATCH_CORPORA=` they read the small",
  "files in any case.",
  "",
];

export function corporaPage() {
  const expected = Object.entries(read("parquet-testing.expected.json"));
  const { reader, files: golden } = read("parquet-testing.json");
  const shown = expected.filter(([file]) => isParquet(file));
  const others = expected.filter(([file]) => !isParquet(file));
  const count = (which) => shown.filter(([, one]) => which(one)).length;
  return [
    "# Other projects' files",
    "",
    "Generated from `fixtures/corpora/*.expected.json` by `npm run docs`: do not edit this page.",
    "",
    ...howToFetch,
    "## Parquet",
    "",
    "`test/corpora/` takes each file of [apache/parquet-testing](https://github.com/apache/parquet-testing) (commit 1a2a751)",
    "through `inspect` and through a `run` that carries its columns and feeds the numeric ones to an identity model.",
    "Each command runs in a process of its own, within 10 seconds of processor time and 600 MB, so that a crash or a hang",
    "is attributed to its file. Each ends with 0, 64 or 65, without a stack trace. The output is compared with what",
    `${reader} reads (kept in \`fixtures/corpora/parquet-testing.json\`), and with the corpus's own CSV if there is one:`,
    "each value, NULL and row, in order.",
    "",
    `Of ${shown.length} files, ${count(({ run }) => run === "read")} are read and ${count(({ run }) => run !== "read")} are refused.`,
    "",
    "| file | inspect | run | compared with | note |",
    "| --- | --- | --- | --- | --- |",
    ...shown.map(([file, one]) => {
      const rows = `${one.rows} ${one.rows === 1 ? "row" : "rows"}`;
      const cells = [
        file,
        ending(one.inspect, rows),
        JSON.stringify(one.run) === JSON.stringify(one.inspect) && one.run !== "read"
          ? "the same"
          : ending(one.run, "read"),
        comparedWith(one, golden[file]),
        note(one),
      ];
      return `| ${cells.join(" | ")} |`.replaceAll("|  |", "| |");
    }),
    "",
    `The ${others.length} other files there (texts, CSV, bloom filters) are refused: \`inspect\` reports that they are neither`,
    "Parquet nor ONNX (64), a run reports that they are not Parquet (65).",
    "",
    ...arrowSection(),
  ].join("\n");
}

/** The part of a path that tells golden files apart. */
const goldenName = (file) => file.replace("arrow-ipc-stream/integration/", "").replace("generated_", "");

function arrowSection() {
  const expected = Object.entries(read("arrow-testing.expected.json"));
  const refused = expected.filter(([, one]) => one.says !== undefined).length;
  return [
    "## Arrow",
    "",
    "`test/corpora/` decodes each golden file of [apache/arrow-testing](https://github.com/apache/arrow-testing) (commit",
    "9cfebfe) and compares each value of each usable column with the file's JSON twin. The findings of fuzzers are read in",
    "one process of at most 600 MB: each is refused with 65, within 10 seconds of processor time.",
    "",
    `Of ${expected.length} golden files, ${expected.length - refused} are read and ${refused} are refused.`,
    "",
    "| file | ends | cannot be used |",
    "| --- | --- | --- |",
    ...expected.map(([file, { rows, says, refused: columns = {} }]) => {
      const types = [...new Set(Object.values(columns).map((type) => `\`${type.replaceAll("|", "\\|")}\``))];
      const shown = types.length > shownColumns ? [...types.slice(0, shownColumns), "…"] : types;
      const ends =
        says === undefined
          ? `${rows} ${rows === 1 ? "row" : "rows"}`
          : `refused (65): ${code(says.replace(/^reading the schema of <file>: /, ""))}`;
      return `| ${goldenName(file)} | ${ends} | ${shown.join(", ")} |`.replace("|  |", "| |");
    }),
    "",
  ];
}
