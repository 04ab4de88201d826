// Tables of few rows with many bytes, and a limit on memory: what a job holds must follow bytes, not rows.
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { quote } from "./data.mjs";

/**
 * @typedef {object} LargeValues
 * @property {string} title
 * @property {(path: string) => Promise<void>} make writes the shard
 * @property {object} [spec] keys of the job spec besides the common ones
 * @property {number} [groupMiB] limit of a control group that the job runs in
 * @property {number} [code] the exit code that is right; default 0
 */

const letter = "chr(97 + (range % 26)::INT)";
const zstd = "COMPRESSION zstd";
/** Rows of one row group: DuckDB makes no smaller ones. */
const group = (rows) => `ROW_GROUP_SIZE ${Math.max(2048, rows)}`;

/** @type {readonly LargeValues[]} */
export const largeValues = [
  texts("40 texts of 60 MB", 40, `repeat(${letter}, 60000000)`, zstd),
  texts("2,000 texts of 1 MB", 2000, `repeat(${letter}, 1000000)`, zstd),
  texts("20,000 texts of 50 KB", 20_000, `rpad(range::VARCHAR, 50000, ${letter})`, `${zstd}, ${group(20_000)}`),
  texts("1,500 rows of one text of 1 MB", 1500, "repeat('a', 1000000)", "COMPRESSION snappy"),
  texts("the same, zstd", 1500, "repeat('a', 1000000)", zstd),
  texts("the same of 26 texts of 50 KB", 20_000, `repeat(${letter}, 50000)`, `${zstd}, ${group(20_000)}`),
  {
    ...texts("the same, commit_rows: 20", 1500, "repeat('a', 1000000)", "COMPRESSION snappy"),
    spec: { commit_rows: 20 },
  },
  texts(
    "24 lists of 1 M floats",
    24,
    "(SELECT list(random()::FLOAT) FROM range(1000000) r WHERE range IS NOT NULL)",
    zstd,
  ),
  {
    title: "a broken DELTA_BYTE_ARRAY prefix",
    code: 65,
    async make(path) {
      await writeTable(path, {
        rows: prefixRows,
        body: `repeat(${letter}, 30) AS body`,
        options: "COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 0",
      });
      await breakPrefixes(path);
    },
  },
  {
    title: "4 M rows, two texts, in 512 MiB",
    groupMiB: 512,
    spec: { output: { columns: ["id", "body", "kind"], parquet: { path: "out" } } },
    make: (path) =>
      writeTable(path, {
        rows: 4_000_000,
        body: "'customer-' || lpad(range::VARCHAR, 9, '0') AS body, 'kind-' || (range % 1000)::VARCHAR AS kind",
        options: `COMPRESSION snappy, ${group(1_000_000)}`,
      }),
  },
];

/** @returns {LargeValues} */
function texts(title, rows, body, options) {
  return { title, make: (path) => writeTable(path, { rows, body: `${body} AS body`, options }) };
}

async function writeTable(path, { rows, body, options }) {
  await rm(path, { force: true });
  await mkdir(join(path, ".."), { recursive: true });
  const features = Array.from({ length: 32 }, (_, index) => `(range % ${index + 2})::FLOAT AS f${index}`);
  const instance = await DuckDBInstance.create(":memory:", { threads: "1" });
  const connection = await instance.connect();
  try {
    const select = `SELECT range AS id, ${features.join(", ")}, ${body} FROM range(${rows})`;
    await connection.run(`COPY (${select}) TO ${quote(path)} (FORMAT parquet, ${options})`);
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

/** Values of the table of broken prefixes. */
const prefixRows = 2048;
/** As each of its texts claims to share with the text before it, which has none. */
const claimedBytes = 2_000_000;

/**
 * Makes the plain texts of the column `body`, in one page without compression, into texts that share beginnings
 * (DELTA_BYTE_ARRAY) which do not exist. The bytes that are left over stay behind them.
 * https://github.com/apache/parquet-format/blob/master/Encodings.md#DELTASTRING
 */
async function breakPrefixes(path) {
  const bytes = await readFile(path);
  const claims = Buffer.concat([sameNumbers(prefixRows, claimedBytes), sameNumbers(prefixRows, 0)]);
  const firstText = Buffer.concat([Buffer.of(30, 0, 0, 0), Buffer.from("a".repeat(30))]);
  claims.copy(bytes, find(bytes, firstText));
  const [deltaByteArray, plain] = [7 * 2, 0]; // as zigzag numbers
  // Of the page's header: so many values, of this encoding, with levels in runs.
  const header = Buffer.from([0x15, ...varint(prefixRows * 2), 0x15, plain, 0x15, 6, 0x15, 6]);
  bytes[find(bytes, header, bytes.lastIndexOf(header)) + 4] = deltaByteArray;
  // Of the footer: the list of encodings before the column's name.
  const name = Buffer.concat([Buffer.from([0x19, 0x18, 4]), Buffer.from("body")]);
  bytes[find(bytes, name) - 1] = deltaByteArray;
  await writeFile(path, bytes);
}

/** Equal numbers as DELTA_BINARY_PACKED: blocks of 128 in 4 parts, differences of 0 in no bits. */
function sameNumbers(count, number) {
  const blocks = Math.ceil((count - 1) / 128);
  return Buffer.from([...varint(128), 4, ...varint(count), ...varint(number * 2), ...Array(blocks * 5).fill(0)]);
}

function varint(number) {
  return number < 128 ? [number] : [(number % 128) | 128, ...varint(Math.floor(number / 128))];
}

function find(bytes, part, from = 0) {
  const at = bytes.indexOf(part, from);
  if (at < 0) {
    throw new Error("making a broken prefix: DuckDB writes the page in another way");
  }
  return at;
}

/** A control group with a limit on memory, below the one that this process is in; undefined: there may be none. */
export function memoryGroup(groupMiB) {
  const bytes = String(groupMiB * 1024 ** 2);
  for (const [root, file] of [
    ["/sys/fs/cgroup/memory", "memory.limit_in_bytes"],
    ["/sys/fs/cgroup", "memory.max"],
  ]) {
    const folder = join(root, `infer-batch-bench-${process.pid}`);
    try {
      mkdirSync(folder);
    } catch {
      continue; // another version, or no permission
    }
    try {
      writeFileSync(join(folder, file), bytes);
      return { folder, remove: () => rmdirSync(folder) };
    } catch {
      rmdirSync(folder);
    }
  }
  return undefined;
}
