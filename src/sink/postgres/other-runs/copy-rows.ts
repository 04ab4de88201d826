import { createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { dirname } from "node:path";
import { pipeline } from "node:stream/promises";
import { to as copyTo } from "pg-copy-streams";
import type { StoredFiles } from "../../../publish/published-files.js";
import type { Session } from "../connections.js";
import type { RowSpool } from "../copy/spilled-copy.js";
import { finishSeconds } from "../finish-run.js";
import { retrying } from "../retry.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";

/** Where rows are copied from, and to. */
export interface CopiedTable extends Pick<RunTools, "connections" | "timeouts" | "warn" | "retry" | "name" | "target"> {
  readonly spool: RowSpool;
}

/**
 * Copies rows, as texts, into a file of the spool, which is removed when it was read.
 * @param select makes the SELECT statement
 */
export async function copyRows(
  tools: CopiedTable,
  select: (session: Session) => Promise<string>,
): Promise<StoredFiles> {
  const { spool, target, retry } = tools;
  await spool.prepare();
  const path = spool.newPath();
  const copied = await retrying(`reading ${target}`, retry, (last) =>
    transact(
      tools,
      async (session) => {
        await session.query(textSettings);
        const rows = await select(session);
        const copy = session.query(copyTo(`COPY (${rows}) TO STDOUT (FORMAT csv, NULL '\\N')`));
        await pipeline(copy, createWriteStream(path, { mode: 0o600 }));
        return copy;
      },
      { last, silentSeconds: finishSeconds },
    ),
  );
  // Postgres says the number of rows behind the last one: the transaction has ended since.
  return { format: "csv", rows: copied.rowCount, folder: dirname(path), groups: oneGroup(path) };
}

/** Texts are the same on every server, and floats have all their digits. */
const textSettings = `SET LOCAL statement_timeout = 0; SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC';
  SET LOCAL extra_float_digits = 1`;

async function* oneGroup(path: string): AsyncGenerator<readonly string[]> {
  try {
    yield [path];
  } finally {
    await rm(path, { force: true });
  }
}
