import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { auditBooks, auditOutput } from "../../bench/prompts/audit.mjs";
import { scratch } from "../support/job.js";
import { readRows, writeRows } from "../support/parquet.js";
import { startPromptServer } from "../support/prompt-server.js";

const labels = ["billing", "bug", "other"];
const world = { seed: 7, faults: {} };

/** What the server must answer to ticket `id`, computed by DuckDB. */
const right = (ids: string): string =>
  `SELECT i::INTEGER AS id, ['${labels.join("', '")}'][1 + ('0x' || sha256('ticket ' || i)[1:2])::INTEGER % 3] AS label,
    ('0x' || sha256('ticket ' || i)[3:4])::INTEGER / 255 AS sure FROM (SELECT unnest(${ids}) AS i)`;

test("bench:prompts-peers finds rows that are lost, empty, doubled or wrong, and files that cannot be read", async () => {
  const out = join(scratch.path, "out");
  await mkdir(out);
  await writeRows(join(out, "whole.parquet"), right("range(10)"));
  expect(await readRows(join(out, "*.parquet"))).toHaveLength(10);
  expect(await auditOutput(out, 10, world)).toEqual({ lost: 0, empty: 0, doubled: 0, wrong: 0, refused: 0, broken: 0 });

  await writeRows(join(out, "again.parquet"), right("[3, 4]"));
  await writeRows(
    join(out, "bad.parquet"),
    "SELECT 10 AS id, NULL::VARCHAR AS label, NULL::DOUBLE AS sure UNION ALL SELECT unnest([5, 11]), 'sorry', 0.5",
  );
  await writeFile(join(out, "torn.parquet"), "PAR1");
  const audit = await auditOutput(out, 13, world);
  expect(audit).toEqual({ lost: 2, empty: 1, doubled: 3, wrong: 2, refused: 0, broken: 1 });
  const strict = await auditOutput(out, 13, { seed: 7, faults: { poison: 1 } });
  expect(strict).toMatchObject({ lost: 0, wrong: 11, refused: 13 });
});

test("bench:prompts-peers tells what was paid twice from what had been lost on its way", async () => {
  await using server = await startPromptServer({ seed: 7, faults: { cut: 1 } });
  const ask = async (text: string): Promise<unknown> => {
    const body = JSON.stringify({ model: "mock-1", messages: [{ role: "user", content: text }] });
    return await (await fetch(`${server.url}/chat/completions`, { method: "POST", body }))
      .json()
      .catch(() => undefined);
  };
  await ask("a");
  await server.control({ faults: {} });
  for (const text of ["a", "b", "b", "c"]) {
    expect(await ask(text)).toMatchObject({ object: "chat.completion" });
  }
  const get = async (path: string): Promise<string> =>
    await (await fetch(server.url.replace(/v1$/, `_mock/${path}`))).text();
  expect(await auditBooks({ get })).toMatchObject({ paid: 5, again: 2, undelivered: 1, limited: 0 });
});
