import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "vitest";
import type { OutputRows } from "#src/columns/types.js";
import { scratchFolder } from "../support/job.js";
import { type AnswersWorld, answersContractOf } from "../support/answers-contract.js";
import { type DiskCatalog, icebergMissing, icebergSink, useDiskCatalog } from "../support/iceberg.js";
import { memoryTarget } from "../support/memory-target.js";
import { outputRows } from "../support/output.js";
import { usePostgres } from "../support/postgres.js";
import { objectsAt, useFirstStores } from "../support/clouds.js";
import type { StoreServer } from "../support/s3.js";
import { mirror } from "../support/s3-target.js";
import { ascending, contractOf } from "../support/sink-contract.js";
import { findingContractOf } from "../support/finding-contract.js";
import { historyContractOf } from "../support/history-contract.js";
import { notesContractOf } from "../support/notes-contract.js";
import { pruneContractOf } from "../support/prune-contract.js";
import { stagingContractOf } from "../support/staging-contract.js";
import { deltaSink, parquetSink, pgSink, s3Sink } from "../support/sinks.js";
import { rowsOfDelta } from "../support/lakes.js";
import { torture } from "../support/torture.js";

const postgres = usePostgres();
const stores = useFirstStores();
let icebergTables = 0;

/** A part of each of three spans, the rejects of one, the manifest and the mark of the end. */
const pruningFiles = { keepsPrunedRows: false, prunes: { files: 6 } };

async function parquetWorld(): Promise<AnswersWorld> {
  const scratch = await scratchFolder();
  return {
    open: () => parquetSink(scratch.path),
    ids: async () => ascending((await outputRows(`${scratch.path}/out`)).map(({ id }) => Number(id))),
    adds: false,
    hasFiles: true,
    ...pruningFiles,
    journals: async () =>
      (await readdir(scratch.path, { recursive: true })).filter((name) => name.includes("/answers")),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

async function deltaWorld(): Promise<AnswersWorld> {
  const scratch = await scratchFolder();
  const table = join(scratch.path, "table");
  return {
    open: () => Promise.resolve(deltaSink(table)),
    ids: async () => ascending((await rowsOfDelta(table)).map(({ id }) => Number(id))),
    adds: true,
    hasFiles: true,
    ...pruningFiles,
    keepsPrunedRows: true,
    journals: async () =>
      (await readdir(scratch.path, { recursive: true })).filter((name) => name.includes("/answers")),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

async function icebergWorld(catalog: DiskCatalog): Promise<AnswersWorld> {
  icebergTables += 1;
  const table = `db.t${icebergTables}`;
  await catalog.pyiceberg.make(table, {
    columns: [
      ["id", "long", false],
      ["score", "float", false],
    ],
  });
  const port = Number(new URL(catalog.url).port);
  return {
    open: () => icebergSink(table, { port, runId: "job-000000000000", allowDuplicates: true }),
    ids: async () => ascending((await catalog.pyiceberg.read(table)).rows.map(({ id }) => Number(id))),
    adds: true,
    hasFiles: true,
    ...pruningFiles,
    keepsPrunedRows: true,
    journals: async () =>
      (await readdir(catalog.folderOf(table), { recursive: true })).filter((name) => name.includes("/answers")),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

async function objectsWorld(server: StoreServer): Promise<AnswersWorld> {
  const scratch = await scratchFolder();
  const bucket = await server.createBucket();
  let looks = 0;
  return {
    async open() {
      const uri = `${bucket.uri}/lake/out`;
      const objects = await objectsAt(server, uri);
      return await s3Sink({ port: server.port, uri, objects, spool: join(scratch.path, "spool") });
    },
    async ids() {
      looks += 1;
      const here = join(scratch.path, `look-${looks}`);
      await mirror(bucket, "lake/out", here);
      return ascending((await outputRows(here)).map(({ id }) => Number(id)));
    },
    adds: false,
    hasFiles: true,
    ...pruningFiles,
    journals: async () => (await bucket.keys()).filter((key) => key.includes("/answers/")),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

async function postgresWorld(mode: "append" | "upsert" | "replace"): Promise<AnswersWorld> {
  const database = await postgres.server().createDatabase();
  const key = mode === "append" ? [] : ["id"];
  return {
    open: () => Promise.resolve(pgSink({ url: database.url, postgres: { mode, key } })),
    ids: async () => {
      const [table] = await database.query("SELECT to_regclass('scores.predictions') IS NOT NULL AS there");
      const rows = table?.["there"] === true ? await database.query("SELECT id FROM scores.predictions") : [];
      return ascending(rows.map(({ id }) => Number(id)));
    },
    adds: mode === "append",
    showsSpans: mode === "append",
    hasFiles: false,
    keepsPrunedRows: true,
    prunes: { rejects: 1 },
    journals: async () => {
      const tables = await database.query("SELECT relname FROM pg_class WHERE relname ~ '^answers_[0-9a-f]+$'");
      return tables.map(({ relname }) => String(relname));
    },
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

function memoryWorld(): Promise<AnswersWorld> {
  const target = memoryTarget();
  return Promise.resolve({
    open: () => Promise.resolve(target.open()),
    ids: () => Promise.resolve(ascending(target.rows().flatMap(idsIn))),
    adds: false,
    hasFiles: false,
    keepsPrunedRows: false,
    prunes: { rejects: 1 },
    journals: () => Promise.resolve(target.journals()),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  });
}

const idsIn = ({ columns }: OutputRows): number[] =>
  columns.flatMap(({ name, column }) =>
    name === "id" && column.kind === "fixed" ? Array.from(column.data, Number) : [],
  );

type Suite = keyof typeof suites;
const suites = {
  rows: contractOf,
  staging: stagingContractOf,
  answers: answersContractOf,
  pruning: pruneContractOf,
  notes: notesContractOf,
  finding: findingContractOf,
  history: historyContractOf,
};
const all = Object.keys(suites) as Suite[];

function holds(name: string, worldOf: () => Promise<AnswersWorld>, about: readonly Suite[] = all): void {
  for (const suite of about) {
    suites[suite](`${name}, ${suite}`, worldOf);
  }
}

holds("the sink in memory", memoryWorld);
holds("the Parquet sink", parquetWorld);
holds("a Delta table", deltaWorld);
describe.skipIf(icebergMissing !== undefined)(icebergMissing ?? "", () => {
  const catalog = useDiskCatalog();
  holds("an Iceberg table", () => icebergWorld(catalog()), torture ? all : ["rows"]);
});
for (const { name, describe: describeStore, server } of stores) {
  describeStore(`the Parquet sink in ${name}`, () => {
    // The same code reads the others from a disk.
    holds("over it", () => objectsWorld(server()), torture ? all : ["rows"]);
  });
}
postgres.describe("the Postgres sink", () => {
  holds("append", () => postgresWorld("append"));
  holds("upsert", () => postgresWorld("upsert"), torture ? ["rows", "staging", "pruning"] : []);
  holds("replace", () => postgresWorld("replace"), torture ? ["rows", "staging", "finding", "history"] : ["staging"]);
});
