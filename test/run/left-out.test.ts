import { chmod, copyFile, mkdir, readdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { expectEnd, projectFolder, runHere } from "../support/cli.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { listingWithoutErrors, outputRows } from "../support/output.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { showResult } from "../support/shown.js";
import { type OwnJob, ownJob } from "../support/world.js";

const isRoot = process.getuid?.() === 0;
const nobody = 65_534;

/** A job over `in/dt=1/` and `in/dt=2/`, whose five shards they share. */
async function twoDays(folder: string, path: string | readonly string[] = "in/*/*.parquet"): Promise<OwnJob> {
  const job = await ownJob(folder, "wine-forest");
  for (const [index, shard] of job.shards.entries()) {
    await mkdir(join(folder, `in/dt=${index < 3 ? 1 : 2}`), { recursive: true });
    await rename(shard, shard.replace("/in/", `/in/dt=${index < 3 ? 1 : 2}/`));
  }
  await job.rewrite({ input: { path }, commit_rows: 36 });
  return job;
}

/** What a run says that must be refused, and write nothing. */
async function refused(folder: string, spec: string, options: Parameters<typeof runSpec>[1] = {}): Promise<string> {
  const result = await runSpec(spec, { ...options, args: ["--quiet"] });
  expect((await readdir(folder)).filter((name) => name === "out")).toEqual([]);
  return `\n${showResult(result, folder)}`;
}

function failing(errno: string, folder: string): { node: string[]; env: Record<string, string> } {
  const preload = pathToFileURL(join(projectFolder, "test/support/failing-listing.mjs")).href;
  return { node: [`--import=${preload}`], env: { LISTING_FAILS: `${errno} ${folder}` } };
}

test.skipIf(!isRoot)(
  "a folder of the input that cannot be listed ends the run before it is planned with 64 where it is closed to this user",
  async () => {
    const { spec } = await twoDays(scratch.path);
    await chmod(scratch.path, 0o777);
    await chmod(join(scratch.path, "in/dt=2"), 0o700);

    expect(await refused(scratch.path, spec, { uid: nobody })).toMatchInlineSnapshot(`
        "
        exit 64
        --- stdout
        {"run_id":null,"status":"failed","exit_code":64,"code":"PERMISSION","message":"reading <folder>/job.yaml:5:13: input.path: listing <folder>/in/dt=2: permission denied","hint":"let this user read and enter the folder, or write a pattern that leaves it out"}
        --- stderr
        error: reading <folder>/job.yaml:5:13: input.path: listing <folder>/in/dt=2: permission denied
          hint: let this user read and enter the folder, or write a pattern that leaves it out
        "
      `);

    await chmod(join(scratch.path, "in/dt=2"), 0o755);
    expect((await runSpec(spec, { uid: nobody })).summary).toMatchObject({ status: "complete", rows_scored: 178 });
  },
);

test.each(["in/*/*.parquet", "in/**/*.parquet"])(
  "a folder of the input that cannot be listed ends the run before it is planned with 75 where the disk fails (%s)",
  async (path) => {
    const { spec } = await twoDays(scratch.path, path);

    const said = await refused(scratch.path, spec, failing("EIO", join(scratch.path, "in/dt=2")));

    expect(said).toContain("exit 75\n");
    expect(said).toContain("error: listing <folder>/in/dt=2: EIO\n  hint: run the same command again;");
  },
);

test("a run whose input cannot be listed when it is resumed ends with 75, and is finished later", async () => {
  const job = await twoDays(scratch.path);
  await leaveUnfinished(job.spec, job.out, (span) => span < 2);
  const before = await listingWithoutErrors(job.out);

  const { stderr } = await expectEnd(runSpec(job.spec, failing("EIO", join(scratch.path, "in/dt=2"))), 75);
  expect(stderr).not.toMatch(/missing|--new-run/);
  expect(await listingWithoutErrors(job.out)).toEqual(before);
  expect((await runSpec(job.spec)).summary).toMatchObject({ status: "complete", spans_resumed: 2 });
  expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
});

describe("a match of a pattern that is no file is refused with 64 when a run is planned", () => {
  test("a link that leads to nothing is refused with 64", async () => {
    const { spec } = await twoDays(scratch.path);
    await symlink("/mnt/nowhere/dt=3", join(scratch.path, "in/dt=3"));

    expect(await refused(scratch.path, spec)).toMatchInlineSnapshot(`
      "
      exit 64
      --- stdout
      {"run_id":null,"status":"failed","exit_code":64,"code":"SPEC_INVALID","message":"reading <folder>/job.yaml:5:13: input.path: in/*/*.parquet finds <folder>/in/dt=3, which is a link that leads to nothing","hint":"restore the target of the link (is a disk not mounted?), or remove the link"}
      --- stderr
      error: reading <folder>/job.yaml:5:13: input.path: in/*/*.parquet finds <folder>/in/dt=3, which is a link that leads to nothing
        hint: restore the target of the link (is a disk not mounted?), or remove the link
      "
    `);
  });

  test("a folder that is named like a shard is refused with 64", async () => {
    const job = await ownJob(scratch.path, "wine-forest");
    await mkdir(join(scratch.path, "in/x.parquet"));
    await rename(job.shard(4), join(scratch.path, "in/x.parquet/part-0.parquet"));

    expect(await refused(scratch.path, job.spec)).toMatchInlineSnapshot(`
      "
      exit 64
      --- stdout
      {"run_id":null,"status":"failed","exit_code":64,"code":"SPEC_INVALID","message":"reading <folder>/job.yaml:5:13: input.path: in/*.parquet finds <folder>/in/x.parquet, which is a folder","hint":"for its files add <folder>/in/x.parquet/*.parquet to input.path; else write a pattern that does not match it"}
      --- stderr
      error: reading <folder>/job.yaml:5:13: input.path: in/*.parquet finds <folder>/in/x.parquet, which is a folder
        hint: for its files add <folder>/in/x.parquet/*.parquet to input.path; else write a pattern that does not match it
      "
    `);

    await job.rewrite({ input: { path: ["in/*.parquet", "in/x.parquet/*.parquet"] } });
    expect((await runSpec(job.spec)).summary).toMatchObject({ status: "complete", rows_scored: 178 });
  });

  test("plan and validate refuse a link that leads to nothing, too", async () => {
    const { spec } = await twoDays(scratch.path);
    await symlink("dt=3", join(scratch.path, "in/dt=3"));

    for (const command of ["plan", "validate"]) {
      await expectEnd(runHere([command, spec]), 64, "in/dt=3, which is a link that leads to nothing");
    }
  });

  test("a planned run ignores new matches that are no files, because it reads the shards of its plan", async () => {
    const job = await twoDays(scratch.path);
    await leaveUnfinished(job.spec, job.out, (span) => span < 2);
    await symlink("nowhere", join(scratch.path, "in/dt=3"));
    await put(join(scratch.path, "in/_delta_log/00000000000000000000.json"));

    expect(await scoreHere(job.spec)).toMatchObject({ status: "complete", spansResumed: 2 });
    await rm(join(scratch.path, "in"), { recursive: true });
    expect(await scoreHere(job.spec)).toMatchObject({ status: "already_complete" });
  });
});

test("a pattern without matches is named if other patterns have matches", async () => {
  const job = await twoDays(scratch.path, ["in/dt=1/*.parquet", "in/dt=2/*.parquet", "in/dt=3/*.parquet"]);

  expect(await refused(scratch.path, job.spec)).toContain("exit 75\n");

  await mkdir(join(scratch.path, "in/dt=3"));
  await expectEnd(runSpec(job.spec), 0, "no file matches in/dt=3/*.parquet; other patterns of input.path have some");
});

test("what a job of Spark has written and not committed is waited for", async () => {
  const job = await twoDays(scratch.path, "in/**/*.parquet");
  const tried = join(scratch.path, "in/dt=1/_temporary/0/_temporary/attempt_0");
  await mkdir(tried, { recursive: true });
  await copyFile(join(scratch.path, "in/dt=1/part-00000.parquet"), join(tried, "part-00000.parquet"));

  const said = await refused(scratch.path, job.spec);

  expect(said).toContain("exit 75\n");
  expect(said).toContain(
    "/attempt_0/part-00000.parquet was written by a job of Spark or Hadoop that has not committed",
  );
  await job.rewrite({ input: { path: "in/*/*.parquet" } });
  expect(await scoreHere(job.spec)).toMatchObject({ status: "complete", rowsPlanned: 178 });
});

test("a folder that is to come leaves the spec valid", async () => {
  const job = await twoDays(scratch.path, "features/dt=3/*.parquet");

  await expectEnd(runHere(["validate", job.spec]), 0);
});

async function put(path: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, "{}");
}

describe("files of a lakehouse table that a pattern matches are refused: not all of their rows are current", () => {
  const delta = "in/_delta_log/00000000000000000000.json";
  const iceberg = "metadata/00003-6d8e5a1c-3f5f-4d5c-9a43-1b0a4e0d5a01.metadata.json";

  test.each([
    { path: "in/*/*.parquet", log: delta, format: "Delta Lake", table: "in" },
    { path: "in/**", log: "in/_delta_log/00000000000000000010.checkpoint.parquet", format: "Delta Lake", table: "in" },
    { path: "in/dt=2/*.parquet", log: delta, format: "Delta Lake", table: "in" },
    { path: "**/dt=*/*.parquet", log: delta, format: "Delta Lake", table: "in" },
    { path: "in/*/*.parquet", log: "in/dt=2/_delta_log/0.json", format: "Delta Lake", table: "in/dt=2" },
    { path: "in/dt=*/*.parquet", log: iceberg, format: "Iceberg", table: "" },
    { path: "in/**/*.parquet", log: "in/metadata/v12.gz.metadata.json", format: "Iceberg", table: "in" },
    { path: "in/**/*.parquet", log: "in/metadata/snap-1-1-a.avro", format: "Iceberg", table: "in" },
    { path: "in/*/*.parquet", log: "in/.hoodie/hoodie.properties", format: "Hudi", table: "in" },
  ])("$path next to $log", async ({ path, log, format, table }) => {
    const job = await twoDays(scratch.path, path);
    await put(join(scratch.path, log));

    const said = await refused(scratch.path, job.spec);

    expect(said).toContain("exit 64\n");
    const named = join("<folder>", table);
    expect(said).toContain(`input.path: ${path} matches data files of the ${format} table ${named}, those of deleted`);
    const remedy =
      format === "Hudi" ? "export the table's current rows and read those" : `write input.table: ${named} in`;
    expect(said).toContain(`hint: ${format === "Hudi" ? "" : "read the table's current rows: "}${remedy}`);
  });

  test("a pattern that matches files of a lakehouse table through a link is refused", async () => {
    const job = await twoDays(scratch.path, "latest/*.parquet");
    await symlink("in/dt=1", join(scratch.path, "latest"));
    await put(join(scratch.path, delta));

    expect(await refused(scratch.path, job.spec)).toContain("the Delta Lake table <folder>/in,");
    await expectEnd(runHere(["validate", job.spec]), 64);
  });

  test.each([
    { what: "lists files without wildcards", path: ["in/dt=1", "in/dt=2"], log: delta },
    { what: "lies beside another table", path: "in/*/*.parquet", log: "other/_delta_log/0.json" },
    { what: "has an empty log above it", path: "in/*/*.parquet", log: "in/_delta_log/README" },
    { what: "has other metadata beside it", path: "in/dt*/*.parquet", log: "in/metadata/schema.json" },
    { what: "leaves the table out", path: "in/dt=[12]/*.parquet", log: "in/dt=3/_delta_log/0.json" },
  ])("files of a lakehouse table are not refused if input.path $what", async ({ path, log }) => {
    const job = await twoDays(scratch.path);
    const plain = async (folder: string): Promise<string[]> =>
      (await readdir(join(scratch.path, folder))).map((name) => `${folder}/${name}`);
    await job.rewrite({
      input: { path: typeof path === "string" ? path : (await Promise.all(path.map(plain))).flat() },
    });
    await put(join(scratch.path, log));

    expect(await scoreHere(job.spec)).toMatchObject({ status: "complete", rowsPlanned: 178 });
  });
});
