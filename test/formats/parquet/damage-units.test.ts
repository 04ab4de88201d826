import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import type { SliceRequest } from "#src/formats/format.js";
import { JobError } from "#src/base/errors.js";
import { scratch, scratchFolder } from "../../support/job.js";
import { writeRows } from "../../support/parquet.js";
import { writeLists, writeTables, type Writing } from "../../support/parquet-tables.js";
import { openDuckDb, readByDuckDb, readUnits, type Shown, wholeSlice } from "../../support/parquet-units.js";
import { hasPyarrow } from "../../support/pyarrow.js";
import { randomOf } from "../../support/random.js";

const rounds = process.env["INFER_BATCH_TORTURE"] === "1" ? 5000 : 250;
/** Of one slice of some hundred rows: a hang, not a slow machine. */
const hangMs = 20_000;

/** A byte or two of the file that are another, somewhere in a chunk: in its first headers as often as behind them. */
async function damaged(whole: SliceRequest, random: () => number): Promise<{ bytes: Buffer; slice: SliceRequest }> {
  const below = (limit: number): number => Math.floor(random() * limit);
  const { rowGroups } = await readParquetFooter(whole.file);
  const chunks = rowGroups.flatMap((group) => group.chunks);
  const chunk = chunks[below(chunks.length)];
  const { passthrough } = whole.projection;
  const column = passthrough.find(({ source }) => source.name === chunk?.path[0]) ?? passthrough[0];
  const beside = passthrough[below(passthrough.length)];
  if (chunk === undefined || column === undefined || beside === undefined) {
    throw new RangeError("there is nothing to damage");
  }
  const good = await readFile(whole.file.path);
  const bytes = random() < 0.1 ? good.subarray(0, 12 + below(good.length - 12)) : Buffer.from(good);
  for (let count = below(2); count >= 0; count -= 1) {
    const at = chunk.start + below(random() < 0.5 ? Math.min(60, chunk.compressedBytes) : chunk.compressedBytes);
    bytes[at] = random() < 0.5 ? (bytes[at] ?? 0) ^ (1 << below(8)) : below(256);
  }
  const rowStart = random() < 0.5 ? 0 : below(whole.rowEnd);
  const carried = column === beside ? [column] : [column, beside];
  return { bytes, slice: { ...whole, rowStart, projection: { ...whole.projection, passthrough: carried } } };
}

type Outcome = "refused" | "left to DuckDB" | "equal" | "only DuckDB refuses";

/** Reads damaged bytes both ways. The footer is that of the whole file, as where a shard changes while it is read. */
async function outcomeOf(slice: SliceRequest, theirs: (slice: SliceRequest) => Promise<Shown>): Promise<Outcome> {
  const startMs = performance.now();
  let ours: Shown | undefined;
  try {
    ours = await readUnits(slice);
  } catch (error) {
    if (!(error instanceof RangeError || error instanceof JobError)) {
      throw error; // it would be reported as a bug, not as a damaged file
    }
    return "refused";
  } finally {
    expect(performance.now() - startMs).toBeLessThan(hangMs);
  }
  if (ours === undefined) {
    return "left to DuckDB";
  }
  let expected: Shown;
  try {
    expected = await theirs(slice);
  } catch {
    return "only DuckDB refuses";
  }
  expect(ours).toEqual(expected);
  return "equal";
}

async function torture(path: string, seed: number): Promise<Record<Outcome, number>> {
  await using folder = await scratchFolder();
  const whole = await wholeSlice(path);
  if (whole === undefined) {
    throw new Error(`${path} has nothing that is read without DuckDB`);
  }
  await using duckdb = openDuckDb(join(folder.path, "any"));
  const random = randomOf(seed);
  const outcomes = { refused: 0, "left to DuckDB": 0, equal: 0, "only DuckDB refuses": 0 };
  for (let round = 0; round < rounds; round += 1) {
    const { bytes, slice } = await damaged(whole, random);
    const file = join(folder.path, `${round}.parquet`); // a name of its own: nothing that is cached is meant
    await writeFile(file, bytes);
    const outcome = await outcomeOf({ ...slice, file: { path: file, name: file } }, (request) =>
      readByDuckDb(duckdb, request),
    ).catch((error: unknown) => {
      throw new Error(`seed ${seed}, round ${round}`, { cause: error });
    });
    outcomes[outcome] += 1;
    await rm(file);
  }
  return outcomes;
}

const columns = `row::INTEGER AS a, (row * 7919) % 1000003 AS b, CASE WHEN row % 3 = 0 THEN NULL ELSE row / 7 END AS c,
  'level ' || (row % 5) AS d, 'text ' || row AS e, CASE WHEN row < 200 THEN NULL ELSE row::DOUBLE END AS f,
  row % 2 = 0 AS g, (row % 200)::UTINYINT AS h, NULL::BIGINT AS i, DATE '2026-01-01' + row::INTEGER AS j`;

describe("damaged bytes are refused, or give what DuckDB makes of them", () => {
  test.each(["uncompressed", "snappy", "gzip"])(
    "damaged bytes are refused, or give what DuckDB makes of them in a file of DuckDB's (%s)",
    async (codec) => {
      const path = join(scratch.path, "a.parquet");
      await writeRows(path, `SELECT ${columns} FROM range(500) t(row)`, `COMPRESSION ${codec}, ROW_GROUP_SIZE 2048`);
      const { refused, equal } = await torture(path, 1);
      expect(refused).toBeGreaterThan(rounds / 10);
      expect(equal).toBeGreaterThan(codec === "gzip" ? 0 : rounds / 10); // it has checksums
    },
  );

  const writings: readonly Writing[] = ["none", "snappy"].flatMap((codec) =>
    ["1.0", "2.0"].map((version) => ({
      name: `${codec}-v${version[0]}`,
      options: `compression="${codec}", data_page_version="${version}", data_page_size=300, row_group_size=250`,
    })),
  );
  test.skipIf(!hasPyarrow).each(writings)(
    "damaged bytes are refused, or give what DuckDB makes of them in a file of pyarrow's ($name)",
    async (writing) => {
      writeTables(scratch.path, 400, [writing]);
      const { refused, equal } = await torture(join(scratch.path, `${writing.name}.parquet`), 2);
      expect(refused).toBeGreaterThan(rounds / 10);
      expect(equal).toBeGreaterThan(rounds / 10);
    },
  );

  test.skipIf(!hasPyarrow).each(writings)(
    "damaged lists are refused, or give what DuckDB makes of them in a file of pyarrow's ($name)",
    async (writing) => {
      writeLists(scratch.path, 120, [{ ...writing, options: `${writing.options}, write_batch_size=16` }]);
      const { refused, equal } = await torture(join(scratch.path, `${writing.name}.parquet`), 3);
      expect(refused).toBeGreaterThan(rounds / 10);
      expect(equal).toBeGreaterThan(rounds / 10);
    },
  );
});
