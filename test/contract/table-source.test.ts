import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { TableColumn } from "#src/columns/types.js";
import { openParquetDecoder } from "#src/formats/parquet/decoder.js";
import type { SliceRequest } from "#src/formats/format.js";
import { openJob } from "#src/job/open.js";
import { unwatched } from "#src/run/plan/plan.js";
import { runJob } from "#src/run/run.js";
import { joinListings } from "#src/sources/listing.js";
import type { OpenShard, Source } from "#src/sources/source.js";
import { scratch } from "../support/job.js";
import { expectScored, writeLakeJob } from "../support/lakes.js";
import { writeRows } from "../support/parquet.js";
import { carryAll } from "../support/parquet-units.js";
import { randomOf } from "../support/random.js";
import { torture } from "../support/torture.js";

type TableRow = Readonly<Record<"id" | "x" | "t" | "z" | "dt", string | number | null>>;

/** A file of a table: how it stores the columns, which rows the table has removed, and the value of its partition. */
interface FileOfTable {
  readonly path: string;
  readonly rows: number;
  readonly first: number;
  readonly isNumbered: boolean;
  readonly isOld: boolean;
  readonly removed: readonly number[];
  readonly dt: string | null;
}

const columns: readonly TableColumn[] = [
  { name: "id", fieldId: 1, storedNames: ["id"], type: "int64", default: null, isPartition: false },
  { name: "x", fieldId: 2, storedNames: ["col-x"], type: "float64", default: null, isPartition: false },
  { name: "t", fieldId: 3, storedNames: ["other", "col-t"], type: "utf8", default: null, isPartition: false },
  { name: "z", fieldId: 4, storedNames: ["z"], type: "int64", default: "7", isPartition: false },
  { name: "dt", fieldId: 5, storedNames: ["dt"], type: "date32", default: null, isPartition: true },
];
const names = columns.map(({ name }) => name);

/** Writes a file. Numbered columns have names that mean others in the table; an old file has narrow types, names in other case and no `z`. */
async function write(folder: string, file: FileOfTable): Promise<void> {
  const { first, rows, isNumbered, isOld } = file;
  const [int, float] = isOld ? ["INTEGER", "FLOAT"] : ["BIGINT", "DOUBLE"];
  const [id, x, t] = isNumbered ? ["x", "t", "id"] : isOld ? ["ID", "COL-x", "col-t"] : ["id", "col-x", "col-t"];
  const z = isOld ? "" : `, CASE WHEN i % 3 > 0 THEN i * 2 END AS "z"`;
  const select = `'gone' AS "dropped", ('t' || i)::VARCHAR AS "${t}", i::${int} AS "${id}", (i / 4)::${float} AS "${x}"${z}, DATE '1999-01-01' AS dt FROM range(${first}, ${first + rows}) r(i)`;
  const ids = [`"dropped": 9, "${t}": 3, "${id}": 1, "${x}": 2`, ...(isOld ? [] : [`"z": 4`])].join(", ");
  const options = `COMPRESSION snappy, ROW_GROUP_SIZE 2048${isNumbered ? `, FIELD_IDS {${ids}}` : ""}`;
  await writeRows(join(folder, file.path), `SELECT ${select}`, options);
}

function rowsOf({ first, rows, isOld, removed, dt }: FileOfTable): TableRow[] {
  const gone = new Set(removed);
  return Array.from({ length: rows }, (_, row) => first + row)
    .filter((i) => !gone.has(i - first))
    .map((i) => ({ id: i, x: i / 4, t: `t${i}`, z: isOld ? 7 : i % 3 > 0 ? i * 2 : null, dt }));
}

/** A source of such files, which has everything but their bytes in memory. */
function memorySource(folder: string, files: readonly FileOfTable[]): Source {
  return {
    readAhead: { files: 2, coalescedFiles: 4, windowBytes: Number.POSITIVE_INFINITY, bytes: Number.POSITIVE_INFINITY },
    async list() {
      const shards = files.map(async ({ path: uri }) => {
        return { uri, sizeBytes: (await stat(join(folder, uri))).size, fingerprint: "one" };
      });
      const table = { uri: "t", at: "latest", format: "delta", version: "1", removedRows: 0 } as const;
      return { ...joinListings([]), shards: await Promise.all(shards), folders: [folder], table };
    },
    published: () => Promise.resolve(unwatched),
    listNames: () => Promise.resolve([]),
    exists: () => Promise.resolve(true),
    open({ uri }) {
      const file = files.find(({ path }) => path === uri);
      return Promise.resolve(file === undefined ? Promise.reject(new Error(uri)) : opened(folder, file));
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

function opened(folder: string, { path, removed, dt }: FileOfTable): OpenShard {
  return {
    path: join(folder, path),
    name: path,
    partitions: new Map([["dt", dt]]),
    table: { columns, removed: () => Promise.resolve(Uint32Array.from(removed)) },
    check: () => Promise.resolve(),
    digest: () => Promise.resolve(""),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

async function runOver(
  files: readonly FileOfTable[],
  input: object,
  carried = names,
): Promise<Awaited<ReturnType<typeof runJob>>> {
  const folder = scratch.path;
  for (const file of files) {
    await write(folder, file);
  }
  const more = { commit_rows: 1000, checks: { on_fail: "warn" } };
  const spec = await writeLakeJob(folder, { table: "t", columns: carried, input, more });
  await using job = await openJob(spec, { param: [] });
  return await runJob({ ...job, input: { ...job.input, source: memorySource(folder, files) } });
}

test.each(Array.from({ length: torture ? 100 : 6 }, (_, seed) => seed))(
  "files of a table have its columns and rows, however they store them (seed %i)",
  async (seed) => {
    const random = randomOf(seed);
    const whole = (below: number): number => Math.floor(random() * below);
    let first = 0;
    const files = Array.from({ length: 3 + whole(6) }, (_, index): FileOfTable => {
      const rows = 1 + whole(whole(3) === 0 ? 9000 : 200);
      const share = [0, 0, 0.01, 0.5, 1][whole(5)] ?? 0;
      const removed = Array.from({ length: rows }, (__, row) => row).filter(() => random() < share);
      const file = {
        path: `f${index}.parquet`,
        rows,
        first,
        removed,
        dt: [null, "2026-11-20", "2026-11-21"][whole(3)] ?? null,
      };
      first += rows;
      return { ...file, isNumbered: random() < 0.5, isOld: random() < 0.5 };
    });
    const [where, isKept]: [string | undefined, (row: TableRow) => boolean] = [
      [undefined, () => true] as [undefined, () => boolean],
      ["dt = DATE '2026-11-20'", ({ dt }: TableRow) => dt === "2026-11-20"] as [string, (row: TableRow) => boolean],
      ["z > 7 AND id % 2 = 0", ({ z, id }: TableRow) => Number(z) > 7 && Number(id) % 2 === 0] as [
        string,
        (row: TableRow) => boolean,
      ],
    ][whole(3)] ?? [undefined, () => true];

    // Threads score doubles as they are, and leave integers that become doubles to DuckDB.
    const carried = seed % 2 === 0 ? names : ["x", "id", "t", "z", "dt"];

    const report = await runOver(files, where === undefined ? {} : { where }, carried);

    const expected = files.flatMap(rowsOf).filter(isKept);
    await expectScored(scratch.path, expected, carried);
    expect(report).toMatchObject({ rowsScored: expected.length, rowsFiltered: first - expected.length });
  },
  60_000,
);

test("a column whose values are none of the table's type is refused where the job uses it, and not else", async () => {
  const file = { path: "f.parquet", rows: 3, first: 0, isNumbered: false, isOld: true, removed: [], dt: null };
  await write(scratch.path, file);
  const narrow = columns.map(
    (column): TableColumn => Object.assign({}, column, column.name === "t" ? { type: "int64" } : {}),
  );
  const decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" });
  await using _ = decoder;
  const shard = opened(scratch.path, file);
  for await (const { schema } of decoder.footers([
    { ...shard, table: { columns: narrow, removed: shard.table?.removed ?? never } },
  ])) {
    expect(schema.columns.map(({ type }) => type)).toEqual(["int64", "float64", undefined, "int64", "date32"]);
    expect(schema.columns[2]?.sourceType).toBe("VARCHAR in the file and int64 in the table");
  }
});

test("fields of a struct that the table has added again after it had dropped them are not those of the file", async () => {
  const ids = "FIELD_IDS {s: {__duckdb_field_id: 1, a: 2, b: 3}, l: {__duckdb_field_id: 4, element: 5}}";
  await writeRows(join(scratch.path, "f.parquet"), "SELECT {a: 1.5, b: 2::BIGINT} AS s, [1.5] AS l", ids);
  const a = { name: "a", type: { kind: "decimal", precision: 2, scale: 1 } } as const;
  const type = { kind: "struct", fields: [a, { name: "b", type: "int64" }] } as const;
  await using decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" });
  const typesOf = async (leafIds: readonly number[]): Promise<unknown> => {
    const more = { storedNames: [], default: null, isPartition: false };
    const list = { kind: "list", element: a.type } as const;
    const both: readonly TableColumn[] = [
      { name: "s", fieldId: 1, leafIds, type, ...more },
      { name: "l", fieldId: 4, leafIds: [5], type: list, ...more },
    ];
    const path = join(scratch.path, "f.parquet");
    for await (const { schema } of decoder.footers([{ path, name: path, table: { columns: both, removed: never } }])) {
      return schema.columns.map((column) => column.type ?? column.sourceType);
    }
    return undefined;
  };

  expect(await typesOf([2, 3])).toMatchObject([{ kind: "struct" }, { kind: "list" }]);
  expect(await typesOf([7, 3])).toMatchObject([
    expect.stringContaining("of other field ids in the file"),
    { kind: "list" },
  ]);
});

test("a column of a file that DuckDB takes for another one, which the table does not have, is refused", async () => {
  const path = join(scratch.path, "f.parquet");
  await writeRows(path, `SELECT 1.5::DOUBLE AS x, 'p' AS "y", 2::BIGINT AS n`, "FIELD_IDS {x: 1, y: 2, n: 3}");
  const bytes = await readFile(path);
  // DuckDB writes no such names either: the schema's name, and those of the column chunk.
  for (let at = bytes.indexOf("\u0001y"); at >= 0; at = bytes.indexOf("\u0001y", at + 1)) {
    bytes.write("X", at + 1);
  }
  await writeFile(path, bytes);
  const more = { storedNames: [], default: null, isPartition: false };
  const table: readonly TableColumn[] = [
    { name: "X", fieldId: 2, type: "utf8", ...more },
    { name: "n", fieldId: 3, type: "int64", ...more },
  ];
  await using decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" });
  for await (const { schema } of decoder.footers([{ path, name: path, table: { columns: table, removed: never } }])) {
    expect(schema.columns.map(({ type }) => type)).toEqual([undefined, "int64"]);
    expect(schema.columns[0]?.sourceType).toContain("names differ in case");
  }
});

test("instants in lists that a file does not say to be in UTC are so, whatever the zone of the job", async () => {
  const path = join(scratch.path, "f.parquet");
  await writeRows(path, "SELECT [[TIMESTAMP '2026-07-01'], NULL] AS at");
  const list = { kind: "list", element: "timestamp[us, UTC]" } as const;
  const more = { fieldId: undefined, storedNames: ["at"], default: null, isPartition: false };
  const nested = [{ name: "at", type: { kind: "list", element: list }, ...more } as const];
  const table = { columns: nested, removed: () => Promise.resolve(new Uint32Array()) };
  await using decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "America/New_York" });
  const slice = { file: { path, name: path, table }, projection: carryAll(nested), partitions: new Map() };

  for await (const { carried } of decoder.read([{ ...slice, rowStart: 0, rowEnd: 1 }])) {
    expect(carried).toMatchObject([
      { child: { child: { data: BigInt64Array.of(BigInt(Date.UTC(2026, 6, 1)) * 1000n) } } },
    ]);
  }
});

test.each([
  { isOld: false, isNumbered: true, carried: ["x", "t", "z"], inUnits: true },
  { isOld: true, isNumbered: true, carried: ["t"], inUnits: true },
  { isOld: true, isNumbered: false, carried: ["t", "x"], inUnits: false },
  { isOld: true, isNumbered: false, carried: ["t", "z"], inUnits: false },
])(
  "threads read the columns that need no more than their names: %j",
  async ({ isOld, isNumbered, carried, inUnits }) => {
    const file = { path: "f.parquet", rows: 3000, first: 0, isNumbered, isOld, removed: [7, 9], dt: null };
    await write(scratch.path, file);
    await using decoder = openParquetDecoder({ threads: 1, folders: [scratch.path], timezone: "UTC" });
    const projection = carryAll(columns.filter(({ name }) => carried.includes(name)));
    const shard = opened(scratch.path, file);
    const slice: SliceRequest = { file: shard, rowStart: 0, rowEnd: 3000, projection, partitions: shard.partitions };

    const units = await decoder.units(slice, { isAlone: true });

    expect(units === undefined ? undefined : [...units.removed]).toEqual(inUnits ? [7, 9] : undefined);
  },
);

function never(): never {
  throw new Error("nothing is removed");
}

test("small files beside each other are read together only where they are stored alike, with all rows of one partition", async () => {
  const alike = { isNumbered: true, isOld: true, removed: [] as number[], dt: null as string | null };
  // Four are read together: each group has a file that is not like the others.
  const kinds = [{}, { dt: "2026-11-20" }, { isOld: false }, { removed: [0, 99] }].flatMap((other) => [
    alike,
    alike,
    { ...alike, ...other },
    alike,
  ]);
  const files = kinds.map((kind, index) =>
    Object.assign({ path: `f${index}.parquet`, rows: 100, first: index * 100 }, kind),
  );

  const report = await runOver(files, {});

  await expectScored(scratch.path, files.flatMap(rowsOf), names);
  expect(report).toMatchObject({ rowsScored: 1598, rowsFiltered: 2 });
});

test("threads that score leave removed rows of a large file out", async () => {
  const removed = Array.from({ length: 24_000 }, (_, index) => index * 7 + (index % 3));
  const file = { path: "f.parquet", rows: 180_000, first: 0, isNumbered: true, isOld: false, removed, dt: null };
  const carried = ["x", "id", "t", "z", "dt"];

  const report = await runOver([file], {}, carried);

  await expectScored(scratch.path, rowsOf(file), carried);
  expect(report).toMatchObject({ rowsScored: 156_000, rowsFiltered: 24_000 });
}, 60_000);
