import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { faultsOfFinished, outputRows } from "../support/output.js";
import { useS3 } from "../support/s3.js";
import { folderName, s3OutputJob } from "../support/s3-output.js";
import { mirror } from "../support/s3-target.js";

const s3 = useS3();

s3.describe("erase in S3", () => {
  test("erase replaces the objects of a run by objects without the rows of the keys, and all commands take them for whole", async () => {
    const bucket = await s3.server().createBucket();
    const job = await s3OutputJob(scratch.path, { bucket, port: s3.server().port }, { checks: {}, commit_rows: 200 });
    await expectEnd(runHere(["run", job.spec]), 0);
    const keys = join(scratch.path, "keys.txt");
    await writeFile(keys, "5\n441\n9999\n");
    const erase = (...args: string[]) => runHere(["erase", job.spec, "--keys", keys, ...args]);
    expect(lastJson(await erase("--dry-run", "--json"))).toMatchObject({ rows: 2 });

    const erased = await expectEnd(erase("--json"), 0);
    expect(lastJson(erased)).toMatchObject({ rows: 2, rejects: 0, keys_not_found: 1, retained: 0 });
    const here = await mkdtemp(join(scratch.path, "mirror-"));
    await mirror(bucket, folderName, here);
    const ids = (await outputRows(here)).map(({ id }) => Number(id));
    expect([ids.length, ids.includes(5), ids.includes(441)]).toEqual([440, false, false]);
    expect(await faultsOfFinished(here, 440)).toEqual([]);
    const names = await job.names();
    expect(names.filter((name) => name.startsWith("part-")).every((name) => name.includes("-r2."))).toBe(true);
    expect(names.filter((name) => name.includes("staged"))).toEqual([]);
    expect(lastJson(await runHere(["status", job.spec, "--json"]))).toMatchObject({ status: "published", damage: [] });
    expect((await runHere(["run", job.spec])).stdout).toContain("already complete");
    expect((await erase()).stdout).toContain("3 keys not found");
  });
});
