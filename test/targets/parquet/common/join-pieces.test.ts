import { execFile } from "node:child_process";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { joinPieces } from "#src/targets/parquet/join-pieces.js";
import { projectFolder } from "../../../support/cli.js";
import { readIndependently } from "../../../support/hyparquet.js";
import { scratch } from "../../../support/job.js";
import { query, readFiles, writeRows } from "../../../support/parquet.js";

const select = (from: number, to: number): string =>
  `SELECT range AS id, 'text ' || (range % 7) AS text, [range::FLOAT, NULL] AS list FROM range(${from}, ${to})`;

async function writePieces(folder: string, cuts: readonly number[], label: string): Promise<string[]> {
  const paths: string[] = [];
  for (const [index, to] of cuts.entries()) {
    const path = join(folder, `${index}.parquet`);
    // Small row groups: a piece may have several, and dictionaries with bloom filters.
    await writeRows(
      path,
      select(cuts[index - 1] ?? 0, to),
      `COMPRESSION zstd, ROW_GROUP_SIZE 2048, KV_METADATA {label: '${label} ${index}'}`,
    );
    paths.push(path);
  }
  return paths;
}

test("joined pieces have all of their rows, in order, for readers that share no code", async () => {
  const pieces = await writePieces(scratch.path, [5000, 5000, 5001, 12_000], "piece");
  const joined = join(scratch.path, "joined.parquet");
  await joinPieces(pieces, joined);
  const rows = await readFiles([joined]);
  expect(rows).toEqual(await readFiles(pieces));
  expect(rows).toHaveLength(12_000);
  const independent = await readIndependently([joined]);
  expect(independent.map(({ id }) => Number(id))).toEqual(Array.from({ length: 12_000 }, (_, id) => id));
  expect(independent.at(-1)).toEqual({ id: 11_999n, text: "text 1", list: [11_999, null] });
});

test("the joined file has correct offsets of its row groups, and the last piece's metadata", async () => {
  const pieces = await writePieces(scratch.path, [3000, 9000], "piece");
  const joined = join(scratch.path, "joined.parquet");
  await joinPieces(pieces, joined);
  expect(await query(`SELECT num_rows, num_row_groups FROM parquet_file_metadata('${joined}')`)).toEqual([
    { num_rows: 9000n, num_row_groups: 5n },
  ]);
  expect(await query(`SELECT decode(value) AS label FROM parquet_kv_metadata('${joined}')`)).toEqual([
    { label: "piece 1" },
  ]);
  // By bloom filters and statistics, each row group's own.
  for (const id of [0, 2999, 3000, 8999]) {
    expect(
      await query(`SELECT id FROM read_parquet('${joined}') WHERE id = ${id} AND text = 'text ${id % 7}'`),
    ).toEqual([{ id: BigInt(id) }]);
  }
});

test("a footer of more row groups than a short list has is as long as it says", async () => {
  const pieces = await writePieces(
    scratch.path,
    Array.from({ length: 20 }, (_, index) => (index + 1) * 10),
    "piece",
  );
  const joined = join(scratch.path, "joined.parquet");
  await joinPieces(pieces, joined);
  expect((await readIndependently([joined])).map(({ id }) => Number(id))).toEqual(
    Array.from({ length: 200 }, (_, id) => id),
  );
});

test.runIf(process.platform === "linux")(
  "joining pieces fails when the file system takes only a part of the footer",
  async () => {
    const pieces = await writePieces(scratch.path, [3000, 9000], "long ".repeat(1000));
    const joined = join(scratch.path, "joined.parquet");
    await joinPieces(pieces, joined);
    const { size } = await stat(joined);
    // The limit is in KiB, and lies in the footer, which is longer: a write that reaches it is cut off, as on a full disk.
    const limit = Math.floor((size - 1) / 1024);
    const script = `import { joinPieces } from "#src/targets/parquet/join-pieces.js";
      await joinPieces(JSON.parse(process.argv[1]), process.argv[2]).then(() => console.log("joined"), (error) => console.log(error.code));`;
    const other = join(scratch.path, "other.parquet");
    const command = `ulimit -f ${limit}; exec "$0" --input-type=module -e "$1" "$2" "$3"`;
    const { stdout } = await promisify(execFile)(
      "bash",
      ["-c", command, process.execPath, script, JSON.stringify(pieces), other],
      { cwd: projectFolder },
    );
    expect(stdout).toBe("EFBIG\n");
  },
);
