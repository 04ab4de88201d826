import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { OutputRows } from "#src/columns/types.js";
import { scratchFolder } from "../support/job.js";
import { type AnswersWorld, answersContractOf } from "../support/answers-contract.js";
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
import { parquetSink, pgSink, s3Sink } from "../support/sinks.js";
import { torture } from "../support/torture.js";

const postgres = usePostgres();
const stores = useFirstStores();

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

/** Ids of rows in memory. */
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

contractOf("the sink in memory", memoryWorld);
notesContractOf("the sink in memory, notes", memoryWorld);
stagingContractOf("the sink in memory, staging", memoryWorld);
findingContractOf("the sink in memory, finding", memoryWorld);
historyContractOf("the sink in memory, history", memoryWorld);
answersContractOf("the sink in memory, answers", memoryWorld);
pruneContractOf("the sink in memory, pruning", memoryWorld);
contractOf("the Parquet sink", parquetWorld);
notesContractOf("the Parquet sink, notes", parquetWorld);
stagingContractOf("the Parquet sink, staging", parquetWorld);
findingContractOf("the Parquet sink, finding", parquetWorld);
historyContractOf("the Parquet sink, history", parquetWorld);
answersContractOf("the Parquet sink, answers", parquetWorld);
pruneContractOf("the Parquet sink, pruning", parquetWorld);
for (const { name, describe, server } of stores) {
  describe(`the Parquet sink in ${name}`, () => {
    const world = (): Promise<AnswersWorld> => objectsWorld(server());
    contractOf("over it", world);
    stagingContractOf("over it, staging", world);
    answersContractOf("over it, answers", world);
    pruneContractOf("over it, pruning", world);
    if (torture) {
      // The same code reads these from a disk.
      notesContractOf("over it, notes", world);
      findingContractOf("over it, finding", world);
      historyContractOf("over it, history", world);
    }
  });
}
postgres.describe("the Postgres sink", () => {
  contractOf("append", () => postgresWorld("append"));
  contractOf("upsert", () => postgresWorld("upsert"));
  contractOf("replace", () => postgresWorld("replace"));
  for (const mode of torture ? (["append", "upsert", "replace"] as const) : (["append", "replace"] as const)) {
    stagingContractOf(`${mode}, staging`, () => postgresWorld(mode));
  }
  notesContractOf("append, notes", () => postgresWorld("append"));
  answersContractOf("append, answers", () => postgresWorld("append"));
  for (const mode of torture ? (["append", "replace"] as const) : (["append"] as const)) {
    findingContractOf(`${mode}, finding`, () => postgresWorld(mode));
    historyContractOf(`${mode}, history`, () => postgresWorld(mode));
  }
  for (const mode of torture ? (["append", "upsert"] as const) : (["append"] as const)) {
    pruneContractOf(`${mode}, pruning`, () => postgresWorld(mode));
  }
});
