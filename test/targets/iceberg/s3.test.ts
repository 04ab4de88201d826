import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectEnd, runCommand } from "../../support/cli.js";
import { icebergMissing, type Pyiceberg, startPyiceberg } from "../../support/iceberg.js";
import { scratch, writeSpec } from "../../support/job.js";
import { catalogToken, findRestCatalog, type RestCatalogServer, startRestCatalog } from "../../support/rest-catalog.js";
import { credentials } from "../../support/s3-server.mjs";
import { useS3 } from "../../support/s3.js";
import { fixtureNamed } from "../../support/world.js";

const s3 = useS3();
const found = findRestCatalog();
const fixture = fixtureNamed("diabetes-mlp");

s3.describe(
  `an Iceberg table in S3 as the target${icebergMissing === undefined ? "" : ` (skipped: ${icebergMissing})`}`,
  () => {
    describe.skipIf(icebergMissing !== undefined)("", { timeout: 120_000 }, () => {
      let catalog: RestCatalogServer;
      let pyiceberg: Pyiceberg;

      beforeAll(async () => {
        const { endpoint } = s3.server();
        const bucket = await s3.server().createBucket("target");
        catalog = await startRestCatalog("jars" in found ? found.jars : "", `s3://${bucket.name}/house`, endpoint);
        pyiceberg = startPyiceberg(catalog.url, [endpoint, credentials.accessKeyId, credentials.secretAccessKey]);
      }, 120_000);
      afterAll(async () => {
        await pyiceberg[Symbol.asyncDispose]();
        await catalog.stop();
      });

      test("has each night once, with credentials that the catalog gives out, held and replaced", async () => {
        const columns = [
          ["id", "long", false],
          ["score", "float", false],
          ["ds", "date", false],
        ] as const;
        await pyiceberg.make("db.scores", { columns, partition: [["ds", "identity"]] });
        await pyiceberg.append("db.scores", [{ id: 1, score: 1, ds: "2026-11-22" }]);
        const write = (more: object = {}): Promise<string> =>
          writeSpec(scratch.path, fixture, {
            name: "scores",
            params: { ds: { type: "date", default: "2026-11-20" } },
            commit_rows: 100,
            output: {
              columns: ["id"],
              parquet: undefined,
              iceberg: {
                table: "db.scores",
                catalog: { url: catalog.url, warehouse: "tests", token: "${CATALOG_TOKEN}" },
                mode: "replace",
                partition: { ds: "${ds}" },
                spool: { path: "spool" },
              },
            },
            ...more,
          });
        const command = (...args: readonly string[]): ReturnType<typeof runCommand> =>
          runCommand(args, { env: { CATALOG_TOKEN: catalogToken } });
        const spec = await write();
        await expectEnd(command("run", spec), 0);
        await expectEnd(command("run", spec, "--param", "ds=2026-11-21"), 0);
        await write({ input: { where: "id >= 100" }, checks: { sql: { many: "count(*) > 1000" } } });
        await expectEnd(command("run", spec, "--new-run"), 67);
        expect((await pyiceberg.read("db.scores")).rows).toHaveLength(885);
        await expectEnd(command("approve", spec, "--reason", "fine"), 0);
        const { rows, operations, points } = await pyiceberg.read("db.scores", [1, 100]);
        expect(rows).toHaveLength(1 + 442 + 342);
        expect(operations).toEqual(["append", "append", "append", "overwrite"]);
        expect(points).toEqual([2, 2]);
      });
    });
  },
);
