// What came of a run: its output, row by row, against what the mock server must answer; and what the server was paid.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { digestOf, valueOf } from "../../test/support/prompt-server/answers.mjs";
import { isPoison } from "../../test/support/prompt-server/fates.mjs";
import { schema } from "./contenders.mjs";
import { system } from "./world.mjs";

/**
 * @typedef {object} Audit
 * @property {number} lost rows that the server answers, without an answer in the output
 * @property {number} empty of those, rows that are there with NULL in place of the answer
 * @property {number} doubled rows that are there more than once
 * @property {number} wrong rows with another answer than the server's, or with one to a prompt that it refuses
 * @property {number} refused rows that the server refuses: no client can have an answer to them
 * @property {number} broken files of the output that cannot be read
 */

/** @returns {Promise<Audit>} of the Parquet files in `folder`. `world`: seed and faults of the server */
export async function auditOutput(folder, rows, world) {
  const { found, broken } = await readOutput(folder);
  const audit = { lost: 0, empty: 0, doubled: 0, wrong: 0, refused: 0, broken };
  for (let id = 0; id < rows; id += 1) {
    const body = `ticket ${id}`;
    const all = found.get(id) ?? [];
    const answers = all.filter(({ label, sure }) => label !== null && sure !== null);
    const isRefused = isPoison(world, `system: ${system}\nuser: ${body}`);
    const right = valueOf(schema, digestOf(body));
    const isRight = ({ label, sure }) => !isRefused && label === right.label && Math.abs(sure - right.sure) < 1e-9;
    audit.refused += isRefused ? 1 : 0;
    audit.doubled += all.length > 1 ? 1 : 0;
    audit.wrong += answers.every(isRight) ? 0 : 1;
    audit.lost += !isRefused && answers.length === 0 ? 1 : 0;
    audit.empty += !isRefused && answers.length === 0 && all.length > 0 ? 1 : 0;
    found.delete(id);
  }
  audit.wrong += found.size; // rows that the table does not have
  return audit;
}

async function readOutput(folder) {
  const files = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".parquet")) : [];
  const connection = await (await DuckDBInstance.create()).connect();
  const found = new Map();
  let broken = 0;
  for (const file of files) {
    try {
      const result = await connection.runAndReadAll(
        `SELECT id::INTEGER AS id, label::VARCHAR AS label, sure::DOUBLE AS sure FROM '${join(folder, file)}'`,
      );
      for (const row of result.getRowObjects()) {
        found.set(row.id, [...(found.get(row.id) ?? []), row]);
      }
    } catch {
      broken += 1; // a file that a kill cut off
    }
  }
  connection.closeSync();
  return { found, broken };
}

/**
 * What was paid, by the books of the server: of all `paid` requests, `again` had been paid before, `undelivered` of them
 * because an answer had not arrived whole. `limited`: answers with status 429. `share`: what was used of the rate limit.
 */
export async function auditBooks(server) {
  const books = JSON.parse(await server.get("books"));
  const requests = (await server.get("requests"))
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line).times);
  const undelivered = requests.reduce(
    (sum, times) => sum + Math.min(times.length - 1, times.filter(({ how }) => how !== "whole").length),
    0,
  );
  const { taken, offered } = books.limits.requests;
  return {
    paid: books.billed.requests,
    again: books.billed_again.requests,
    undelivered,
    limited: books.statuses[429] ?? 0,
    share: offered === null ? undefined : taken / offered,
  };
}
