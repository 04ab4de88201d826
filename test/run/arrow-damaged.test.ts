import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { writeArrow } from "../support/arrow.js";
import { identity, refusalOf, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { scoreHere } from "../support/score.js";

const numbers = (rows: number): string =>
  `SELECT i::BIGINT AS id, CASE WHEN i % 97 = 5 THEN NULL ELSE i / 8 END::DOUBLE AS x FROM range(${rows}) t(i)`;

describe("a shard that is not what it should be ends the run with 65 before anything is scored", () => {
  const cases: readonly (readonly [string, string, (bytes: Buffer) => Buffer, RegExp])[] = [
    [
      "a stream without its end",
      "a.arrows",
      (bytes) => bytes.subarray(0, -8),
      /the stream has no end: it stops at byte \d+/,
    ],
    ["a stream cut off in a batch", "a.arrows", (bytes) => bytes.subarray(0, -100), /the stream has no end/],
    ["a file without its end", "a.arrow", (bytes) => bytes.subarray(0, -9), /its end is missing/],
    ["an empty file", "a.arrow", () => Buffer.alloc(0), /the file is empty \(0 bytes\)/],
    ["a file without its beginning", "a.arrow", (bytes) => bytes.subarray(8), /a message before the schema/],
  ];

  test.each(cases)("%s ends the run with 65", async (_, name, damage, says) => {
    const job = await smallJob(scratch.path, { model: identity, select: "SELECT 1", input: { path: `in/${name}` } });
    const path = join(scratch.path, "in", name);
    await writeArrow(path, numbers(300), { kind: name.endsWith("s") ? "stream" : "file" });
    await writeFile(path, damage(await readFile(path)));

    const said = await refusalOf(scoreHere(job.spec));

    expect(said).toMatch(/^65 SHARD_CORRUPT\n/);
    expect(said).toMatch(says);
  });

  test("an Arrow stream may have any name if input.format is arrow", async () => {
    const job = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 1",
      input: { path: "in/a.arrow", format: "arrow", where: "x is not null" },
    });
    await writeArrow(join(scratch.path, "in/a.arrow"), numbers(300), { kind: "stream" });

    expect(await scoreHere(job.spec)).toMatchObject({ status: "complete", rowsScored: 296 });
  });
});
