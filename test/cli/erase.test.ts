import { chmod, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder, runCli, runHere } from "../support/cli.js";
import { spoiltJob } from "../support/faulty.js";
import { outputs as outputsOfBoth, shifted } from "../support/challenger.js";
import { scratch, writeSpec } from "../support/job.js";
import { fixtureNamed } from "../support/world.js";
import { fewRows, lastJson, nightlyJob, publishedRun } from "../support/nights.js";
import { faultsOfFinished, outputRows } from "../support/output.js";
import { query, writeRows } from "../support/parquet.js";
import { reject, rejectLines, spoil } from "../support/rejects.js";

const idsIn = async (folder: string): Promise<number[]> => (await outputRows(folder)).map(({ id }) => Number(id));

test("erase removes the rows of some keys from every night, and all commands take the result for whole", async () => {
  const job = await nightlyJob(scratch.path);
  for (const date of ["2026-01-01", "2026-01-02"]) {
    await job.night("run", date);
  }
  const before = await outputRows(job.folder("2026-01-01"));
  const keys = join(scratch.path, "keys.txt");
  await writeFile(keys, "5\r\n7\n\n7\n441\n99999\n");
  const erase = (...args: string[]) => runHere(["erase", job.spec, "--keys", keys, ...args]);

  expect(lastJson(await erase("--dry-run", "--json"))).toMatchObject({ dry_run: true, rows: 6, keys: 4 });
  expect(await publishedRun(job.folder("2026-01-01"))).not.toMatch(/-r2$/);
  const erased = await erase("--json");
  expect(erased.code, erased.stderr).toBe(0);
  expect(lastJson(erased)).toMatchObject({
    dry_run: false,
    key: ["id"],
    keys: 4,
    keys_not_found: 1,
    rows: 6,
    rejects: 0,
    retained: 0,
    runs: [
      { params: { ds: "2026-01-02" }, rows: 3 },
      { params: { ds: "2026-01-01" }, rows: 3 },
    ],
  });
  expect(await outputRows(job.folder("2026-01-01"))).toEqual(
    before.filter(({ id }) => ![5, 7, 441].includes(Number(id))),
  );
  expect(await faultsOfFinished(job.folder("2026-01-01"), 439)).toEqual([]);
  const names = await readdir(job.folder("2026-01-01"), { recursive: true });
  expect(names.filter((name) => /\/(tmp|parts|withdrawn)\//.test(name))).toEqual([]);

  expect(lastJson(await job.night("status", "2026-01-01", "--json"))).toMatchObject({
    status: "published",
    damage: [],
  });
  expect((await job.night("run", "2026-01-01")).stdout).toContain("already complete");
  const diff = await job.night("diff", "2026-01-02", "--against", "ds=2026-01-01", "--json");
  expect(lastJson(diff)).toMatchObject({ rows_a: 439, rows_b: 439, rows_compared: 439, rows_changed: 0 });
  expect((await job.night("history", "2026-01-01")).stdout).toMatch(
    /-r2 .* published +439 .* erased by \w+\n.* published .* replaced by \S+-r2\n/,
  );
  expect((await job.night("stats", "2026-01-01")).code).toBe(0);
  expect((await job.night("run", "2026-01-03")).code).toBe(0); // its checks compare it with the nights before
  expect((await erase()).stdout).toContain("ds=2026-01-03");
  expect((await erase()).stdout).toContain("erased 0 rows and 0 rejected rows of 4 keys (id); 4 keys not found");

  const everything = (await readdir(scratch.path, { recursive: true })).filter((name) => name.includes("out/"));
  for (const name of everything.filter((one) => one.endsWith(".json"))) {
    expect(await readFile(join(scratch.path, name), "utf8"), name).not.toContain("99999"); // no record of keys
  }
  expect((await job.night("run", "2026-01-01", "--new-run")).code).toBe(0);
  expect(await idsIn(job.folder("2026-01-01"))).toContain(5); // the input has them
});

test("rows that stay after an erasure are reused by the next night, and the erased row, which the input has, is scored anew", async () => {
  const job = await nightlyJob(scratch.path, { checks: undefined, reuse: { key: ["id"] } });
  expect((await job.night("run", "2026-01-01")).code).toBe(0);
  const keys = join(scratch.path, "keys.txt");
  await writeFile(keys, "7\n");
  expect((await runHere(["erase", job.spec, "--keys", keys])).code).toBe(0);
  expect(lastJson(await job.night("run", "2026-01-02", "--json"))).toMatchObject({
    status: "complete",
    rows_scored: 442,
    rows_reused: 441,
  });
});

test("erase removes rejected rows of the keys, of which other rejects stay, whatever the columns are called", async () => {
  const spoilt = [3, 100, 400].map((row) => spoil(row, "age", "NULL", "null", null));
  const named = { input: { columns: { n: "id", row: "id" } }, output: { columns: ["id", "n", "row"] } };
  const job = await spoiltJob(scratch.path, "diabetes-mlp", spoilt, { ...reject, ...named, commit_rows: 100 });
  expect((await runHere(["run", job.spec])).code).toBe(0);
  const keys = join(scratch.path, "keys.parquet");
  await writeRows(keys, "SELECT i::INTEGER AS row FROM (VALUES (3), (4), (400)) AS t (i)");

  const erased = await runHere(["erase", job.spec, "--keys", keys, "--json"]);
  expect(lastJson(erased)).toMatchObject({ rows: 1, rejects: 2, keys_not_found: 0 });
  expect((await rejectLines(job.out)).map(({ columns }) => columns)).toEqual([{ id: "100", n: "100", row: "100" }]);
  expect(await idsIn(job.out)).toHaveLength(438);
  expect(lastJson(await runHere(["status", job.spec, "--json"]))).toMatchObject({ status: "published", damage: [] });
  const manifest = JSON.parse(await readFile(join(job.out, "_manifest.json"), "utf8")) as object;
  expect(manifest).toMatchObject({ rows: 438, rows_rejected: 1, rows_filtered: 0, rows_erased: 3 });
  expect((await readdir(join(job.out, "_rejects"))).length).toBe(1);
});

test("a challenger's predictions and the rows that it differs most in go with the rows of a key", async () => {
  const outputs = { label: "label", p: "probabilities[1]" };
  const challenger = { path: join(projectFolder, "fixtures/challenger/shifted.onnx"), outputs };
  const job = await nightlyJob(scratch.path, { model: { outputs }, challenger }, "cancer-logistic");
  expect((await job.night("run", "2026-01-01")).code).toBe(0);
  const out = job.folder("2026-01-01");
  const named = async (): Promise<boolean> => {
    const results = (await readdir(out, { recursive: true })).filter((name) => name.endsWith("comparison.json"));
    const texts = await Promise.all(results.map((name) => readFile(join(out, name), "utf8")));
    return texts.some((text) => /"keys":|"id":/.test(text));
  };
  expect(await named()).toBe(true);
  const keys = join(scratch.path, "keys.csv");
  await writeFile(keys, `id\n${String((await outputRows(out))[13]?.["id"])}\n`);
  const erased = await runHere(["erase", job.spec, "--keys", keys]);
  expect(erased.code, erased.stderr).toBe(0);
  expect(await named()).toBe(false);
  const left = await query(`SELECT count(*)::INTEGER AS n FROM read_parquet('${out}/_challenger/part-*.compared')`);
  expect(left).toEqual([{ n: 568 }]);
  const stats = lastJson(await job.night("stats", "2026-01-01", "--json"));
  expect(stats["challenger"]).toMatchObject({ rows_compared: 569, outputs: { p: { most_different: [] } } });
  expect((await job.night("status", "2026-01-01")).stdout).toContain("published");
});

test("a held or unfinished run keeps its rows, is named with what to do, and is erased once it is decided", async () => {
  const job = await nightlyJob(scratch.path);
  await job.night("run", "2026-01-01");
  await job.night("run", "2026-01-02");
  await job.rewrite(fewRows);
  expect((await job.night("run", "2026-01-03")).code).toBe(67);
  await rm(join(job.folder("2026-01-01"), "_SUCCESS"));
  const keys = join(scratch.path, "keys.txt");
  await writeFile(keys, "5\n");
  const erase = (...args: string[]) => runHere(["erase", job.spec, "--keys", keys, ...args]);
  expect((await erase("--dry-run")).code).toBe(0);
  const refused = await erase("--json");
  expect(refused).toMatchObject({ code: 67, stderr: expect.stringContaining("2 runs may still have rows") });
  expect(lastJson(refused)).toMatchObject({
    rows: 1,
    retained: 2,
    runs: [
      { params: { ds: "2026-01-03" }, retained: expect.stringMatching(/checks hold it.* approve .*ds=2026-01-03/) },
      { params: { ds: "2026-01-02" }, rows: 1, retained: null },
      { params: { ds: "2026-01-01" }, retained: expect.stringMatching(/publish|not finished/) },
    ],
  });
  await job.night("approve", "2026-01-03", "--by", "ana", "--reason", "a holiday");
  await job.rewrite({});
  await job.night("run", "2026-01-01");
  const again = await erase();
  expect(again.code, again.stderr).toBe(0);
  for (const date of ["2026-01-01", "2026-01-02", "2026-01-03"]) {
    expect(await idsIn(job.folder(date))).not.toContain(5);
  }
  const { runs } = lastJson(await job.night("history", "2026-01-03", "--json")) as {
    runs: { run_id: string; decision: { by: string } | null }[];
  };
  expect(runs[0]).toMatchObject({ run_id: expect.stringMatching(/-r2$/), decision: { by: "ana" } });
});

test("a key that is not a value of its column, a column that is not in the output and an empty file are refused, without a key in the message", async () => {
  const job = await nightlyJob(scratch.path, { checks: undefined });
  await job.night("run", "2026-01-01");
  const keys = join(scratch.path, "keys.txt");
  const refused = async (text: string, ...args: string[]): Promise<string> => {
    await writeFile(keys, text);
    const { code, stderr } = await runHere(["erase", job.spec, "--keys", keys, ...args]);
    expect(code).toBe(64);
    return stderr;
  };
  const wrong = await refused("5\nmiller\n");
  expect(wrong).toContain("line 2 is not a value of id int64");
  expect(wrong).not.toContain("miller");
  expect(await refused("7.5\n")).toContain("line 1 is not a value of id int64"); // nor of what it rounds to
  expect(await refused("5\n", "--key", "name")).toContain("name is not in output.columns");
  expect(await refused("\n\n")).toContain("it has no keys");
  expect(await refused("5\n", "--key", "id", "--key", "name")).toContain("the key has several columns: id, name");
  expect((await runHere(["erase", job.spec, "--keys", join(scratch.path, "none.csv")])).code).toBe(64);
  expect(await idsIn(job.folder("2026-01-01"))).toHaveLength(442);
});

// Root may read every folder.
test.skipIf(process.getuid?.() !== 0)("erase ends with 64 if it may not read a folder that may have rows", async () => {
  const job = await nightlyJob(scratch.path);
  await job.night("run", "2026-01-01");
  await job.night("run", "2026-01-02");
  const keys = join(scratch.path, "keys.txt");
  await writeFile(keys, "5\n");
  await chmod(scratch.path, 0o755);
  await chmod(job.folder("2026-01-01"), 0o700);
  const nobody = 65_534;
  const erased = await runCli(["erase", job.spec, "--keys", keys, "--dry-run"], { uid: nobody });
  expect(erased.code, erased.stderr).toBe(64);
  expect(erased.stderr).toMatch(/looking for the runs of the job: .*dt=2026-01-01.*EACCES/);
  expect(erased.stdout).toBe("");
});

test("erase says what to do with a challenger's incomplete predictions of a published run", async () => {
  const spec = await writeSpec(scratch.path, fixtureNamed("cancer-logistic"), {
    commit_rows: 100,
    model: { outputs: outputsOfBoth },
    challenger: { path: shifted, outputs: outputsOfBoth },
  });
  expect((await runHere(["run", spec])).code).toBe(0);
  const kept = join(scratch.path, "out/_challenger");
  const part = (await readdir(kept)).find((name) => name.startsWith("part-")) ?? "";
  for (const name of ["_SUCCESS", "_manifest.json", part]) {
    await rm(join(kept, name));
  }
  const keys = join(scratch.path, "keys.txt");
  await writeFile(keys, "300\n");
  const erased = await runHere(["erase", spec, "--keys", keys]);
  expect(erased.code, erased.stderr).toBe(67);
  expect(erased.stdout).toMatch(/no run completes them: remove the folder .*_challenger/);
});

test("erase warns of runs that it cannot find because the job or its folder was renamed", async () => {
  const job = await nightlyJob(scratch.path);
  await job.night("run", "2026-01-01");
  const keys = join(scratch.path, "keys.txt");
  await writeFile(keys, "5\n");
  const erase = (...args: string[]) => runHere(["erase", job.spec, "--keys", keys, ...args]);
  expect((await erase("--dry-run")).stderr).toBe("");

  await job.rewrite({ name: "weekly" });
  const renamed = await erase();
  expect(renamed).toMatchObject({ code: 0, stdout: expect.stringContaining("erased 0 rows") });
  expect(renamed.stderr).toMatch(
    /^warning: some folders that the spec names have runs of job diabetes-mlp, which are not searched; .*: name: diabetes-mlp\n$/,
  );
  await job.night("run", "2026-01-02");
  expect(await erase("--json")).toMatchObject({ code: 0, stderr: renamed.stderr });

  await job.rewrite({ output: { parquet: { path: join(scratch.path, "moved/dt=${ds}") } } });
  expect((await erase()).stderr).toMatch(
    /^warning: no run of job diabetes-mlp is in \S*moved\/dt=\S+, nor in its folders of other params; if .*output.parquet.path was changed/,
  );
});

test("erase removes the errors of attempts, which may quote a value", async () => {
  const job = await spoiltJob(scratch.path, "diabetes-mlp", [{ row: 7, column: "age", sql: "NULL" }]);
  expect((await runHere(["run", job.spec])).code).toBe(65);
  const names = (await readdir(job.out, { recursive: true })).filter((name) => name.endsWith("errors.json"));
  expect(names).toHaveLength(1);
  await job.rewrite({ on_bad_row: "reject", max_rejects: "50%" });
  expect((await runHere(["run", job.spec])).code).toBe(0);
  await writeFile(join(scratch.path, "keys.txt"), "5\n");
  const erased = await runHere(["erase", job.spec, "--keys", join(scratch.path, "keys.txt"), "--key", "id"]);
  expect(erased.code, erased.stderr).toBe(0);
  expect(JSON.parse(await readFile(join(job.out, names[0] ?? ""), "utf8"))).toMatchObject({ errors: [] });
});
