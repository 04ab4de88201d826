import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { memoryBudget } from "#src/base/memory-budget.js";
import { silentLog } from "#src/flow/opened-job.js";
import { attemptServices } from "#src/job/attempt.js";
import { openSink } from "#src/job/kinds.js";
import { minBudgetBytes } from "#src/job/machine.js";
import { readSpec } from "#src/job/reading.js";
import type { Sink } from "#src/targets/target.js";
import { scratch, writeSpec } from "./job.js";
import { lakeWriter, missing } from "./lake-writers.js";
import { catalogToken, findRestCatalog, type RestCatalogServer, startRestCatalog } from "./rest-catalog.js";
import { fixtureNamed } from "./world.js";

const jars = findRestCatalog();

/** Why there is no catalog; undefined: there is one. */
export const icebergMissing = "missing" in jars ? jars.missing : missing;

export interface ReadTable {
  readonly rows: readonly Readonly<Record<string, unknown>>[];
  /** For each of the ids that were asked for: how many rows a scan for it finds. */
  readonly points: readonly number[];
  readonly operations: readonly string[];
  readonly records: string | null;
  /** Properties that name runs. */
  readonly runs: Readonly<Record<string, string>>;
  readonly files: readonly (readonly [uri: string, ds: string])[];
}

export interface TableShape {
  readonly columns: readonly (readonly [name: string, type: string, required: boolean])[];
  readonly partition?: readonly (readonly [column: string, transform: string, name?: string])[];
  readonly properties?: Readonly<Record<string, string>>;
}

/** pyiceberg, which makes, changes and reads tables of a catalog. */
export interface Pyiceberg extends AsyncDisposable {
  make(table: string, shape: TableShape): Promise<void>;
  append(table: string, rows: readonly object[]): Promise<void>;
  delete(table: string, where: string): Promise<void>;
  forget(table: string): Promise<void>;
  /** Takes off what runs have told of themselves in the properties. */
  untell(table: string): Promise<void>;
  evolve(table: string, columns: readonly string[]): Promise<void>;
  drop(table: string): Promise<void>;
  read(table: string, points?: readonly number[]): Promise<ReadTable>;
}

/** @param store endpoint, key and secret of S3; none: tables are on the disk */
export function startPyiceberg(url: string, store: readonly string[] = []): Pyiceberg {
  // versitygw refuses uploads after one whose checksum comes behind its body, on the same connection.
  const env = { AWS_REQUEST_CHECKSUM_CALCULATION: "when_required" };
  const writer = lakeWriter("iceberg_tables.py", [url, ...store], env);
  let last: Promise<unknown> = Promise.resolve();
  const act = async (name: string, table: string, argument: unknown): Promise<unknown> => {
    const acting = last.then(async () => {
      const answer = JSON.parse(await writer.ask(JSON.stringify([name, table, argument]))) as {
        done?: unknown;
        failed?: string;
      };
      if (answer.failed !== undefined) {
        throw new Error(`pyiceberg: ${name} ${table}: ${answer.failed}`);
      }
      return answer.done;
    });
    last = acting.catch(() => undefined);
    return await acting;
  };
  return {
    async make(table, shape) {
      await act("make", table, shape);
    },
    async append(table, rows) {
      await act("append", table, rows);
    },
    async delete(table, where) {
      await act("delete", table, where);
    },
    async forget(table) {
      await act("forget", table, null);
    },
    async untell(table) {
      await act("untell", table, null);
    },
    async evolve(table, columns) {
      await act("evolve", table, columns);
    },
    async drop(table) {
      await act("drop", table, null);
    },
    read: async (table, points = []) => (await act("read", table, { points })) as ReadTable,
    [Symbol.asyncDispose]: () => writer[Symbol.asyncDispose](),
  };
}

export interface IcebergSinkSetup {
  /** Of the catalog, or of a proxy before it. */
  readonly port: number;
  readonly runId: string;
  readonly retrySeconds?: number;
  readonly signal?: AbortSignal;
  readonly allowDuplicates?: boolean;
}

export async function icebergSink(
  table: string,
  { port, runId, retrySeconds = 10, signal = new AbortController().signal, allowDuplicates = false }: IcebergSinkSetup,
): Promise<Sink> {
  process.env["CATALOG_TOKEN"] = catalogToken;
  const catalog = { url: `http://127.0.0.1:${port}`, warehouse: "tests", token: "${CATALOG_TOKEN}" };
  const folder = await mkdtemp(join(scratch.path, "job-"));
  const path = await writeSpec(folder, fixtureNamed("diabetes-mlp"), {
    name: runId,
    retry: { max_seconds: retrySeconds },
    output: { columns: ["id"], parquet: undefined, iceberg: { table, catalog } },
  });
  const { spec, outputPattern, variablesOf, where } = await readSpec(path, { param: [] });
  const memory = memoryBudget(minBudgetBytes);
  const tools = { folder, ...attemptServices(spec, silentLog, signal), cores: 1, memory, attempt: { allowDuplicates } };
  return await openSink(spec, { ...tools, outputPattern, variablesOf, where });
}

export interface DiskCatalog {
  readonly url: string;
  readonly env: Readonly<Record<string, string>>;
  readonly pyiceberg: Pyiceberg;
  folderOf(table: string): string;
}

/** Apache's REST catalog, whose tables are on this disk, for the tests of a file. */
export function useDiskCatalog(): () => DiskCatalog {
  let server: RestCatalogServer;
  let folder: string;
  let catalog: DiskCatalog;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "infer-batch-lake-"));
    server = await startRestCatalog("jars" in jars ? jars.jars : "", `file://${folder}`, "");
    catalog = {
      url: server.url,
      env: { CATALOG_TOKEN: catalogToken },
      pyiceberg: startPyiceberg(server.url),
      folderOf: (table) => join(folder, ...table.split(".")),
    };
  }, 120_000);
  afterAll(async () => {
    await catalog.pyiceberg[Symbol.asyncDispose]();
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });
  return () => catalog;
}
