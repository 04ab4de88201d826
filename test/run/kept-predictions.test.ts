import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { outputs, shifted } from "../support/challenger.js";
import { runCli, runHere } from "../support/cli.js";
import { scratch, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { outputRows } from "../support/output.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { tcpProxy } from "../support/tcp-proxy.js";
import { torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("cancer-logistic");
const kept = { parquet: { path: "kept" } };

const jobOf = (challenger: object = {}): SpecOverrides => ({
  commit_rows: 100,
  model: { outputs },
  challenger: { path: shifted, outputs, output: kept, ...challenger },
});

const run = async (spec: string, ...args: string[]): Promise<Awaited<ReturnType<typeof runHere>>> =>
  await runHere(["run", spec, "--json", "--no-progress", ...args]);

const byId = (rows: Awaited<ReturnType<typeof outputRows>>): unknown[] =>
  rows.toSorted((one, other) => Number(one["id"]) - Number(other["id"]));

/** The rows of a job whose only model is the challenger. */
async function rowsAlone(folder: string): Promise<unknown[]> {
  const alone = join(folder, "alone");
  const spec = await writeSpec(folder, fixture, {
    name: "alone",
    model: { path: shifted, outputs },
    output: { columns: ["id"], parquet: { path: alone } },
  });
  expect((await run(spec)).code).toBe(0);
  const rows = byId(await outputRows(alone));
  await rm(alone, { recursive: true });
  return rows;
}

describe("the predictions of a challenger that are kept", () => {
  test("they are those of a job with that model alone, in a folder of their own, and the published rows are the champion's", async () => {
    const alone = await rowsAlone(scratch.path);
    const spec = await writeSpec(scratch.path, fixture, { ...jobOf(), checks: {}, report: { html: "page.html" } });

    const done = await run(spec);

    expect(done.code, done.stderr).toBe(0);
    expect(done.stderr).toMatch(/the challenger's predictions are in .*kept/);
    expect(await readFile(join(scratch.path, "page.html"), "utf8")).toMatch(
      /not published; they are kept in \S*kept\./,
    );
    const folder = join(scratch.path, "kept");
    expect(byId(await outputRows(folder))).toEqual(alone);
    expect(await readdir(folder)).toContain("_SUCCESS");
    expect(await outputRows(join(scratch.path, "out"))).not.toEqual(alone);
    expect((await readdir(join(scratch.path, "out"))).filter((name) => name.endsWith(".parquet"))).toHaveLength(6);
    const again = await run(spec, "--new-run");
    expect([again.code, lastJson(again)["status"]], again.stderr).toEqual([0, "complete"]);
    expect(byId(await outputRows(folder))).toEqual(alone);
  });

  test("a run that is killed and resumed, and one of two workers, keeps each prediction once", async () => {
    const alone = await rowsAlone(scratch.path);
    const spec = await writeSpec(scratch.path, fixture, { ...jobOf(), commit_rows: 40 });
    const folder = join(scratch.path, "kept");
    let kills = 0;
    let said = "";
    for (const parts of torture ? [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] : [3, 8]) {
      const { signal, stderr } = await runCli(["run", spec], { onStart: (child) => void killAt(child, folder, parts) });
      kills += signal === "SIGKILL" ? 1 : 0;
      said += stderr;
    }
    expect(kills).toBeGreaterThan(0);

    const [one, other] = [await run(spec, "--worker", "1/2"), await run(spec, "--worker", "0/2")];

    expect([one.code, other.code], other.stderr).toEqual([0, 0]);
    // On a slow machine an attempt may have ended before it was killed.
    expect(said + one.stderr + other.stderr).toMatch(/the challenger's predictions are in .*kept/);
    expect(byId(await outputRows(folder))).toEqual(alone);
    expect(await readdir(folder)).toContain("_SUCCESS");
  });

  test("predictions that cannot be kept cost no row of the run, and it says that they are not complete", async () => {
    const spec = await writeSpec(scratch.path, fixture, jobOf({ output: undefined }));
    expect((await run(spec, "--worker", "0/2")).code).toBe(0); // spans are committed without them
    await writeSpec(scratch.path, fixture, jobOf());

    const done = await run(spec);

    expect([done.code, lastJson(done)["status"]], done.stderr).toEqual([0, "complete"]);
    expect(done.stderr).toMatch(/WARN.*the challenger's predictions in .*kept are incomplete: 3 of 6 spans/);
    expect(await readdir(join(scratch.path, "kept"))).not.toContain("_SUCCESS");

    await mkdir(join(scratch.path, "other"));
    await writeFile(join(scratch.path, "other", "part-00000.parquet"), "not ours");
    await rm(join(scratch.path, "out"), { recursive: true });
    const foreign = await run(
      await writeSpec(scratch.path, fixture, jobOf({ output: { parquet: { path: "other" } } })),
    );
    expect([foreign.code, lastJson(foreign)["rows_scored"]], foreign.stderr).toEqual([0, 569]);
    expect(foreign.stderr).toMatch(/WARN.*the challenger's predictions are not kept in this attempt: .*other/);
  });

  test.each([
    [
      "the published folder",
      { parquet: { path: "out" } },
      'challenger.output.parquet.path: found "out", expected a folder outside',
    ],
    [
      "a folder below it",
      { parquet: { path: "out/challenger" } },
      'challenger.output.parquet.path: found "out/challenger", expected',
    ],
    [
      "the published folder under another name",
      { parquet: { path: "./out//x/../x" } },
      'challenger.output.parquet.path: found "./out//x/../x", expected',
    ],
    ["no target", {}, "challenger.output: expected exactly one of parquet and postgres"],
  ])("%s is refused as the place of a challenger's predictions", async (_name, output, message) => {
    const refused = await run(await writeSpec(scratch.path, fixture, jobOf({ output })));
    expect([refused.code, refused.stderr]).toEqual([64, expect.stringContaining(message)]);
  });
});

/** Kills a process once so many parts are there. */
async function killAt(child: { kill(signal: "SIGKILL"): boolean }, folder: string, parts: number): Promise<void> {
  for (let tries = 0; tries < 5000; tries += 1) {
    const names = await readdir(folder).catch(() => []);
    if (names.filter((name) => name.startsWith("part-")).length >= parts) {
      child.kill("SIGKILL");
      return;
    }
    await sleep(2);
  }
}

const postgres = usePostgres();

postgres.describe("in a database,", () => {
  test("a challenger's predictions are kept in a table of their own, in the same schema as the published ones", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, fixture, database, {
      ...jobOf({ output: { postgres: { url: database.url, table: "kept", mode: "replace" } } }),
      output: { postgres: { mode: "append" } },
    });
    const done = await run(spec);
    expect(done.code, done.stderr).toBe(0);
    expect(done.stderr).toContain("the challenger's predictions are in");
    const rows = await database.query("SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids FROM kept");
    expect(rows).toEqual([{ n: 569, ids: 569 }]);
  });

  test("the command that keeps all predictions is not refused in tables to which a new run adds", async () => {
    await using database = await postgres.server().createDatabase();
    const write = async (output?: object): Promise<string> =>
      await writePgSpec(scratch.path, fixture, database, {
        ...jobOf({ output }),
        output: { postgres: { mode: "append", table: "p" } },
      });
    expect((await run(await write(), "--worker", "0/2")).code).toBe(0);
    const spec = await write({ postgres: { url: database.url, table: "kept", mode: "append" } });
    const done = await run(spec);
    expect(done.stderr).toMatch(
      /are incomplete: 3 of 6 spans; .* --new-run --allow-duplicates, which adds all rows again: first delete those of this run in public\.p at \S+\n/,
    );
    await database.query("DELETE FROM p");

    const again = await run(spec, "--new-run", "--allow-duplicates");

    expect(again.stderr).toMatch(/the challenger's predictions are in public\.kept/);
    const rows = "SELECT (SELECT count(*)::int FROM p) AS published, (SELECT count(*)::int FROM kept) AS kept";
    expect(await database.query(rows)).toEqual([{ published: 569, kept: 569 }]);
  });

  test("a table for a challenger's predictions that hangs or fails delays the run by its timeouts, once, and the run is published", async () => {
    for (const fault of ["stall", "cut"] as const) {
      await using folder = await scratchFolder();
      await using database = await postgres.server().createDatabase();
      await using proxy = await tcpProxy(Number(new URL(database.url).port));
      const url = new URL(database.url);
      url.port = String(proxy.port);
      const timeouts = { connect: 1, statement: 1, lock: 1 };
      const target = { postgres: { url: url.href, table: "kept", mode: "append", timeouts } };
      // Everything after the first rows is lost, also on connections that are opened later.
      let copies = 0;
      const strike = (): void => {
        proxy.arm(fault, (chunk) => {
          copies += chunk.includes("COPY") ? 1 : 0;
          setImmediate(strike);
          return copies > 1;
        });
      };
      strike();
      const spec = await writeSpec(folder.path, fixture, { ...jobOf({ output: target }), retry: { max_seconds: 1 } });

      const done = await run(spec);

      expect([done.code, lastJson(done)["rows_scored"]], done.stderr).toEqual([0, 569]);
      expect(await outputRows(join(folder.path, "out"))).toHaveLength(569);
      expect(done.stderr.match(/WARN.*predictions are not kept from here on/g)).toHaveLength(1);
      expect(done.stderr).toMatch(/WARN.*the challenger's predictions (?:in .* are incomplete|are not finished)/);
      expect(proxy.struck).toBeGreaterThan(0);
    }
  });

  test("the published table is refused for a challenger's predictions, with its schema and without", async () => {
    await using database = await postgres.server().createDatabase();
    const spec = await writePgSpec(scratch.path, fixture, database, {
      ...jobOf({ output: { postgres: { url: database.url, table: "public.p", mode: "append" } } }),
      output: { postgres: { mode: "append", table: "p" } },
    });
    const { code, stderr } = await run(spec);
    expect([code, stderr]).toEqual([64, expect.stringContaining("expected another table than the published one")]);
  });
});
