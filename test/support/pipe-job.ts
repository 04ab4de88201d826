import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { writeArrow } from "./arrow.js";
import { identity, refusalOf, smallJob } from "./faulty.js";
import type { SpecOverrides } from "./job.js";
import type { Piped } from "./pipe.js";

export const numbers = (rows: number): string =>
  `SELECT i::BIGINT AS id, CASE WHEN i % 97 = 5 THEN NULL ELSE i / 8 END::DOUBLE AS x FROM range(${rows}) t(i)`;

export async function streamOf(folder: string, select: string, rowsEach = 37): Promise<Buffer> {
  const path = join(folder, "in.arrows");
  await writeArrow(path, select, { kind: "stream", batchRows: rowsEach });
  return await readFile(path);
}

export async function pipeJob(folder: string, overrides: Omit<SpecOverrides, "model"> = {}): Promise<string> {
  return (await smallJob(folder, { model: identity, select: "SELECT 1", output: { columns: ["id"] }, ...overrides }))
    .spec;
}

/** What a pipe ends with. */
export async function ending(piped: Promise<Piped>): Promise<{ said: string; output: Buffer }> {
  const { error, output } = await piped;
  return { said: await refusalOf(Promise.reject(error)), output };
}
