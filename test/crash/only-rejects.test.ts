import { describe, expect, test } from "vitest";
import { runCli, runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratchFolder } from "../support/job.js";
import { faultsOfFinished, outputRows } from "../support/output.js";
import type { Row } from "../support/parquet.js";
import { usePostgres } from "../support/postgres.js";
import { randomOf } from "../support/random.js";
import { reject } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";
import { torture } from "../support/torture.js";

const postgres = usePostgres();
const rounds = torture ? 20 : 1;
const [rowCount, commitRows] = [200, 10];
const select = `SELECT row::INTEGER AS id, if(row % 4 = 0, NULL, row)::FLOAT AS x FROM range(${rowCount}) t(row)`;
const settings = { ...reject, commit_rows: commitRows, engine: { threads: 1 } };
const corrected = { ...settings, model: { inputs: { x: ["y"] } }, input: { columns: { y: "coalesce(x, -1)" } } };
const due = Array.from({ length: rowCount }, (_, id): Row => ({ id, score: id % 4 === 0 ? -1 : id }));

/** Kills the command behind some of its spans, once as soon as it knows the rejects, until one ends. */
async function killUntilDone(spec: string, random: () => number): Promise<number> {
  let kills = 0;
  for (;;) {
    const after = kills === 0 ? 0 : 1 + Math.floor((random() * rowCount) / commitRows / 2);
    let killed = false;
    const { code, stderr } = await runCli(["run", spec, "--only-rejects", "--log-level", "debug", "--no-progress"], {
      onStderr: (seen, child) => {
        const committed = [...seen.matchAll(/span \d+ committed/g)].length;
        if (!killed && kills < 3 && (after === 0 ? seen.includes("scoring ") : committed >= after)) {
          killed = child.kill("SIGKILL");
        }
      },
    });
    kills += killed ? 1 : 0;
    if (code === 0) {
      return kills;
    }
    expect(killed, stderr).toBe(true);
  }
}

async function expectComplete(spec: string): Promise<void> {
  const { stdout } = await runHere(["run", spec, "--json", "--no-progress"]);
  expect(JSON.parse(stdout)).toMatchObject({ status: "already_complete", run_id: expect.stringMatching(/-r2$/) });
}

describe("a process that is killed while it scores rejected rows", () => {
  test("each row is in the files once, kept or scored", async () => {
    const random = randomOf(5);
    for (let round = 0; round < rounds; round += 1) {
      await using scratch = await scratchFolder();
      const job = await smallJob(scratch.path, { model: identity, select, ...settings });
      await scoreHere(job.spec);
      await job.rewrite(corrected);

      expect(await killUntilDone(job.spec, random)).toBeGreaterThan(0);

      expect(await outputRows(job.out)).toEqual(due);
      expect(await faultsOfFinished(job.out, rowCount)).toEqual([]);
      await expectComplete(job.spec);
    }
  });
});

postgres.describe("a process that is killed while it scores rejected rows of a table", () => {
  test.each(["append", "upsert"])("each row is in the table once: %s", async (mode) => {
    const random = randomOf(6);
    for (let round = 0; round < rounds; round += 1) {
      await using scratch = await scratchFolder();
      await using database = await postgres.server().createDatabase();
      const table = { url: database.url, table: "scores.predictions", mode, timeouts: { lock: 1 } };
      const target = mode === "append" ? table : { ...table, key: ["id"] };
      const output = { parquet: undefined, lineage: true, postgres: target };
      const job = await smallJob(scratch.path, { model: identity, select, ...settings, output });
      await scoreHere(job.spec);
      await job.rewrite({ ...corrected, output });

      expect(await killUntilDone(job.spec, random)).toBeGreaterThan(0);

      expect(await database.query("SELECT id, score FROM scores.predictions ORDER BY id")).toEqual(due);
      const ofRuns = "SELECT count(*)::int AS rows FROM scores.predictions GROUP BY run_id ORDER BY run_id";
      expect(await database.query(ofRuns)).toEqual([{ rows: 150 }, { rows: 50 }]);
      await expectComplete(job.spec);
    }
  });
});
