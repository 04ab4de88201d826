// node bench/lists.mjs [--rows N] [--runs N] [--only TEXT]: rows a second of CPU time that one thread decodes of lists of 384
// floats in Parquet, as a worker thread reads them, as DuckDB does, and pyarrow. In turns; medians.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { DuckDBInstance } from "@duckdb/node-api";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { withPageBytes } from "#src/formats/parquet/long-values.js";
import { openParquetUnitReader, parquetUnits } from "#src/formats/parquet/units.js";
import { dataFolder } from "./data.mjs";
import { median } from "./measure.mjs";
import { findPython } from "./python.mjs";

const { values } = parseArgs({
  options: {
    rows: { type: "string", default: "60000" },
    runs: { type: "string", default: "5" },
    only: { type: "string", default: "" },
  },
});
const rows = Number(values.rows);
const width = 384;
const folder = join(dataFolder, "lists");
const { interpreter, absent } = findPython();
if (absent !== undefined) {
  throw new Error(`writing lists: ${absent}`);
}

/** Options of pyarrow's write_table. `few`: 10,000 different floats, which are written as a dictionary. */
const layouts = {
  "pyarrow's defaults (Snappy)": "",
  "no codec": "use_dictionary=False, compression='none'",
  gzip: "use_dictionary=False, compression='gzip'",
  "pages of version 2, Snappy": "use_dictionary=False, data_page_version='2.0'",
  "one page of 88 MiB": "use_dictionary=False, data_page_size=2**30, compression='none'",
  "0.1 % of lists NULL": "nulls",
  "few values: pyarrow's dictionary": "few",
  "few values: one large page of DuckDB": "duckdb",
};

const script = `
import json, sys, time
import numpy, pyarrow, pyarrow.parquet
act, path, rows, options = sys.argv[1:]
rows = int(rows)
pyarrow.set_cpu_count(1)
if act == "write":
    random = numpy.random.default_rng(1)
    if options == "few":
        values = random.integers(-5000, 5000, rows * ${width}).astype(numpy.float32) / 1000
    else:
        values = random.standard_normal(rows * ${width}, dtype=numpy.float32)
    values = values.reshape(rows, ${width})
    lists = [None if options == "nulls" and row % 1000 == 7 else values[row] for row in range(rows)]
    table = pyarrow.table({"embedding": pyarrow.array(lists, pyarrow.list_(pyarrow.float32()))})
    pyarrow.parquet.write_table(table, path, **({} if options in ["few", "nulls"] else eval(f"dict({options})")))
else:
    start = time.process_time()
    file = pyarrow.parquet.ParquetFile(path, pre_buffer=False)
    read = sum(batch.num_rows for batch in file.iter_batches(8192, use_threads=False))
    print(json.dumps([read, time.process_time() - start]))
`;
const python = (...args) => execFileSync(interpreter, ["-c", script, ...args], { encoding: "utf8" });

const type = { kind: "list", element: "float32" };
const source = { name: "embedding", path: ["embedding"], type };
const projection = {
  inputs: [{ kind: "list", input: "x", dtype: "float32", width, column: source }],
  passthrough: [],
  expressions: null,
  cast: "exact",
  missing: "bad_row",
};
const sliceOf = (path) => ({
  file: { path, name: path },
  rowStart: 0,
  rowEnd: rows,
  projection,
  partitions: new Map(),
});
const limits = { pageBytes: 2 ** 27, batchBytes: 2 ** 23 };

function cpuSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** The values of "few", in a row group as large as DuckDB's default. */
async function writeByDuckDb(path) {
  const connection = await (await DuckDBInstance.create(":memory:")).connect();
  const value = `((hash(i * 1000 + k) % 10000) / 1000.0 - 5)::FLOAT`;
  const lists = `SELECT list_transform(range(${width}), k -> ${value}) AS embedding FROM range(${rows}) t(i)`;
  await connection.run(`COPY (${lists}) TO '${path}' (FORMAT parquet)`);
  connection.closeSync();
}

/** One thread as a worker thread reads a slice, without packing. */
async function readHere(path, reader) {
  const slice = sliceOf(path);
  const start = cpuSeconds();
  let read = 0;
  for (const unit of parquetUnits(await withPageBytes(await readParquetFooter(slice.file), slice), slice, { limits })) {
    for (const piece of reader.read(structuredClone(unit), projection)) {
      read += piece.rowEnd - piece.rowStart;
    }
  }
  return [read, cpuSeconds() - start];
}

/** The decoder in one thread, with the check of levels that comes before it. */
async function readByDuckDb(path, decoder) {
  const start = cpuSeconds();
  let read = 0;
  for await (const { rowCount } of decoder.read([sliceOf(path)])) {
    read += rowCount;
  }
  return [read, cpuSeconds() - start];
}

mkdirSync(folder, { recursive: true });
const reader = openParquetUnitReader();
const decoder = openParquetDecoder({ threads: 1, folders: [folder], timezone: "UTC" });
console.log(`| layout | a worker thread | DuckDB | pyarrow |\n| --- | ---: | ---: | ---: |`);
for (const [index, [name, options]] of Object.entries(layouts).entries()) {
  if (!name.includes(values.only)) {
    continue;
  }
  const path = join(folder, `${index}.parquet`);
  const stamp = `${path}.json`;
  const recipe = JSON.stringify([rows, options]);
  if (textOf(stamp) !== recipe) {
    await (options === "duckdb" ? writeByDuckDb(path) : python("write", path, String(rows), options));
    writeFileSync(stamp, recipe);
  }
  const contenders = {
    here: () => readHere(path, reader),
    duckdb: () => readByDuckDb(path, decoder),
    pyarrow: () => JSON.parse(python("read", path, String(rows), "")),
  };
  const rates = { here: [], duckdb: [], pyarrow: [] };
  for (let run = 0; run <= Number(values.runs); run += 1) {
    for (const [contender, once] of Object.entries(contenders)) {
      const [found, seconds] = await once();
      if (found !== rows) {
        throw new Error(`reading ${path} by ${contender}: ${found} rows of ${rows}`);
      }
      if (run > 0) {
        rates[contender].push(found / seconds);
      }
    }
  }
  const shown = Object.values(rates).map((all) => Math.round(median(all) / 1000).toLocaleString("en"));
  console.log(`| ${name} | ${shown.join(" k | ")} k |`);
}
reader.close();
await decoder[Symbol.asyncDispose]();

function textOf(file) {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}
