import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder } from "../support/cli.js";
import { httpProxy, type HttpProxy, s3Error } from "../support/http-proxy.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { runInS3, upload } from "../support/s3-job.js";
import { type Bucket, useS3 } from "../support/s3.js";
import { showResult } from "../support/shown.js";
import { fixtureNamed } from "../support/world.js";

const s3 = useS3();
const wine = fixtureNamed("wine-forest");

interface Lake extends AsyncDisposable {
  readonly bucket: Bucket;
  readonly proxy: HttpProxy;
  /** Runs the job over these patterns, and says what came of it. */
  run(...patterns: readonly string[]): Promise<string>;
}

/** Five shards below `lake/t/dt=1/` in a bucket behind a proxy. */
async function lake(): Promise<Lake> {
  const scratch = await scratchFolder();
  const proxy = await httpProxy(s3.server().port);
  const bucket = await s3.server().createBucket();
  await upload(bucket, join(projectFolder, "fixtures/data", wine.table), "lake/t/dt=1/");
  return {
    bucket,
    proxy,
    async run(...patterns) {
      const path = patterns.map((pattern) => `s3://${bucket.name}/${pattern}`);
      const spec = await writeSpec(scratch.path, wine, { input: { path, spool: { path: "spool" } } });
      const result = await runInS3(["run", spec, "--quiet"], { port: proxy.port });
      if (result.code !== 0) {
        expect(await readdir(scratch.path)).not.toContain("out");
      }
      return showResult(result, scratch.path).replaceAll(bucket.name, "<bucket>");
    },
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

s3.describe("files of a lakehouse table in S3 that a pattern matches are refused", () => {
  test.each([
    { pattern: "lake/t/dt=*/*.parquet", log: "lake/t/_delta_log/00000000000000000000.json", table: "lake/t" },
    { pattern: "lake/t/dt=1/*.parquet", log: "_delta_log/0.json", table: "" },
  ])("$pattern next to $log", async ({ pattern, log, table }) => {
    await using world = await lake();
    await world.bucket.put(log, "{}");

    const said = await world.run(pattern);

    expect(said).toMatch(/^exit 64\n/);
    const root = table === "" ? "s3://<bucket>" : `s3://<bucket>/${table}`;
    expect(said).toMatch(
      new RegExp(`/${pattern.replaceAll("*", "\\*")} matches data files of the \\w+( Lake)? table `),
    );
    expect(said).toContain(` table ${root}, those of deleted and rewritten rows among them\n`);
  });

  test("files of a lakehouse table in S3 are not refused if the role may not list the folders above them", async () => {
    await using world = await lake();
    await world.bucket.put("lake/t/_delta_log/0.json", "{}");
    world.proxy.twist = (request) =>
      /list-type=2/.test(request) && !request.includes("dt%3D1") ? s3Error(403, "AccessDenied") : undefined;

    expect(await world.run("lake/t/dt=1/*.parquet")).toMatch(/^exit 0\n/);
  });
});

s3.describe("an object that vanishes between the listing and its first bytes", () => {
  test("an object that vanishes between the listing and its first bytes ends the planning with 75, and the same command continues without it", async () => {
    await using world = await lake();
    const gone = "lake/t/dt=1/part-00002.parquet";
    const reached: Promise<void>[] = [];
    world.proxy.twist = (request) => {
      if (!request.includes("part-00002") || reached.length > 0) {
        return undefined;
      }
      reached.push(world.bucket.remove(gone));
      return { kind: "hold", until: Promise.all(reached) };
    };

    expect(await world.run("lake/t/dt=1/*.parquet")).toMatchInlineSnapshot(`
      "exit 75
      --- stderr
      error: planning wine-forest: the input changes while it is read: reading s3://<bucket>/lake/t/dt=1/part-00002.parquet: it is gone
      "
    `);

    expect(reached).toHaveLength(1);
    expect(await world.run("lake/t/dt=1/*.parquet")).toMatch(/^exit 0\n/);
  });
});
