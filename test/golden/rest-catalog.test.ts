import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type CliResult, runCommand } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { missing } from "../support/lake-writers.js";
import { expectRuns, expectScored, writeLakeJob } from "../support/lakes.js";
import {
  catalogToken,
  findRestCatalog,
  type RestCatalogServer,
  startRestCatalog,
  startWriter,
  type TableWriter,
  type WrittenTable,
} from "../support/rest-catalog.js";
import { credentials } from "../support/s3-server.mjs";
import { runInS3 } from "../support/s3-job.js";
import { type S3Bucket, useS3 } from "../support/s3.js";

const found = findRestCatalog();
const why = "missing" in found ? found.missing : missing;
if (why !== undefined) {
  console.warn(`SKIPPED, no Iceberg REST catalog: ${why}`);
}

const s3 = useS3();
const secrets = [catalogToken, "a-client-secret", credentials.secretAccessKey];

s3.describe(`tables of an Iceberg REST catalog${why === undefined ? "" : ` (skipped: ${why})`}:`, () => {
  describe.skipIf(why !== undefined)("", () => {
    let catalog: RestCatalogServer;
    let writer: TableWriter;
    let bucket: S3Bucket;

    beforeAll(async () => {
      const { endpoint } = s3.server();
      bucket = await s3.server().createBucket("lake");
      catalog = await startRestCatalog("jars" in found ? found.jars : "", `s3://${bucket.name}/house`, endpoint);
      writer = startWriter(catalog.url, endpoint);
    }, 60_000);
    afterAll(async () => {
      await writer.stop();
      await catalog.stop();
    });

    const login = { token: "${CATALOG_TOKEN}" };
    const columnsOf = ({ rows: [first = {}] }: WrittenTable): string[] => Object.keys(first);

    async function jobOf(table: string, written: WrittenTable, input: object = {}, more: object = {}): Promise<string> {
      const columns = columnsOf(written);
      return await writeLakeJob(scratch.path, {
        table,
        columns,
        input: { catalog: { url: catalog.url, warehouse: "tests", ...login }, spool: { path: "spool" }, ...input },
        more: { commit_rows: 40, ...more },
      });
    }

    /** Runs a command without credentials of S3. No secret may be told. */
    async function run(args: readonly string[], env: Record<string, string> = {}): Promise<CliResult> {
      const ran = await runCommand(args, {
        env: { CATALOG_TOKEN: catalogToken, CLIENT_SECRET: "a-client-secret", ...env },
      });
      for (const secret of secrets) {
        expect(ran.stdout + ran.stderr).not.toContain(secret);
      }
      return ran;
    }

    async function planOf(ran: CliResult): Promise<{ text: string; table: Record<string, unknown> }> {
      const { run_id: id } = JSON.parse(ran.stdout) as { run_id: string };
      const text = await readFile(join(scratch.path, "out/_infer-batch", id, "plan.json"), "utf8");
      const plan = JSON.parse(text) as { input: { table: Record<string, unknown> } };
      return { text, table: plan.input.table };
    }

    test("the rows are those that pyiceberg reads, with credentials that the catalog gives out, and those of the folder", async () => {
      await writer.act("make", "db.deep er.golden");
      const written = await writer.act("change", "db.deep er.golden");
      const columns = columnsOf(written);
      const spec = await jobOf("db.deep er.golden", written);
      const ran = await run(["run", spec, "--json"]);
      expect(ran.code, ran.stderr).toBe(0);
      await expectScored(scratch.path, written.rows, columns);
      const { text, table } = await planOf(ran);
      expect(table).toMatchObject({
        uri: "db.deep er.golden",
        version: written.snapshot,
        catalog: { uuid: written.uuid, metadata: written.metadata },
      });
      for (const secret of secrets) {
        expect(text).not.toContain(secret);
      }
      expect((await run(["run", spec, "--json"], { CATALOG_TOKEN: "not-needed-any-more" })).stdout).toContain(
        "already_complete",
      );

      const byFolder = await writeLakeJob(join(scratch.path), {
        table: written.location,
        columns,
        input: { spool: { path: "spool" } },
        more: { name: "folder", output: { columns, parquet: { path: "by-folder/out" } } },
      });
      const again = await runInS3(["run", byFolder, "--json"], { port: s3.server().port });
      expect(again.code, again.stderr).toBe(0);
      await expectScored(join(scratch.path, "by-folder"), written.rows, columns);
    });

    test("a version is named as that of a folder: snapshot, tag, branch, time; the login is one of OAuth 2", async () => {
      const first = await writer.act("make", "db.versions");
      await writer.act("tag", "db.versions");
      const last = await writer.act("change", "db.versions");
      const { url } = catalog;
      const oauth2 = { client_id: "reader", client_secret: "${CLIENT_SECRET}" };
      for (const [at, expected] of [
        [first.snapshot, first],
        ["kept", first],
        [new Date(first.at_ms).toISOString(), first],
        ["main", last],
      ] as const) {
        const spec = await jobOf("db.versions", expected, { catalog: { url, warehouse: "tests", oauth2 }, at });
        const ran = await run(["run", spec, "--json", "--new-run"]);
        expect(ran.code, ran.stderr).toBe(0);
        await expectScored(scratch.path, expected.rows, columnsOf(expected));
      }
    });

    test("a run that goes on after the table has changed has the rows of its plan", async () => {
      const written = await writer.act("make", "db.changing");
      const spec = await jobOf("db.changing", written);
      expect((await run(["run", spec, "--worker", "0/2"])).code).toBe(0);
      await writer.act("change", "db.changing");
      const ran = await run(["run", spec, "--worker", "1/2", "--json"]);
      expect(ran.code, ran.stderr).toBe(0);
      await expectScored(scratch.path, written.rows, columnsOf(written));
      expect((await planOf(ran)).table).toMatchObject({ version: written.snapshot });

      // The metadata file may be cleaned up; the catalog's newest one still has the snapshot.
      const output = { columns: columnsOf(written), parquet: { path: "cleaned/out" } };
      const other = await jobOf("db.changing", written, { at: written.snapshot }, { name: "cleaned", output });
      expect((await run(["run", other, "--worker", "0/2"])).code).toBe(0);
      const { metadata } = await writer.act("tag", "db.changing");
      for (const key of await bucket.keys()) {
        if (key.includes("db/changing") && key.endsWith(".metadata.json") && !metadata.endsWith(key)) {
          await bucket.remove(key);
        }
      }
      const cleaned = await run(["run", other, "--worker", "1/2"]);
      expect(cleaned.code, cleaned.stderr).toBe(0);
      await expectScored(join(scratch.path, "cleaned"), written.rows, columnsOf(written));
    });

    describe("with since: last_run", () => {
      const since = { since: "last_run" };

      async function next(spec: string, ...options: readonly string[]): Promise<CliResult & Record<string, unknown>> {
        const ran = await run(["run", spec, "--json", ...options]);
        return { ...(JSON.parse(ran.stdout.trim().split("\n").at(-1) ?? "") as Record<string, unknown>), ...ran };
      }

      test("each run reads what is new, up to the snapshot that it was planned with", async () => {
        const written = await writer.act("make", "db.growing");
        const spec = await jobOf("db.growing", written, since);
        expect(await next(spec)).toMatchObject({ code: 0, status: "complete", rows_planned: 150 });
        expect(await next(spec)).toMatchObject({ code: 0, status: "nothing_new" });
        await writer.act("grow", "db.growing");
        expect((await run(["run", spec, "--worker", "0/2"])).code).toBe(0);
        const last = await writer.act("grow", "db.growing");
        for (const key of await bucket.keys()) {
          if (key.includes("db/growing") && key.endsWith(".metadata.json") && !last.metadata.endsWith(key)) {
            await bucket.remove(key);
          }
        }
        expect(await next(spec, "--worker", "1/2")).toMatchObject({ code: 0, rows_planned: 50 });
        expect(await next(spec)).toMatchObject({ code: 0, status: "complete", rows_planned: 50 });
        await expectRuns(scratch.path, last.rows, columnsOf(written));
      });

      test("a delete, and a table that was made anew under the name, end it with 66", async () => {
        const written = await writer.act("make", "db.rewritten");
        const spec = await jobOf("db.rewritten", written, since);
        expect(await next(spec)).toMatchObject({ code: 0, status: "complete" });
        await writer.act("change", "db.rewritten");
        expect(await next(spec)).toMatchObject({ code: 66, stderr: expect.stringContaining("new_files") as string });
        await writer.act("drop", "db.rewritten");
        const anew = await writer.act("make", "db.rewritten");
        await writer.act("grow", "db.rewritten");
        expect(await next(spec)).toMatchObject({
          code: 66,
          stderr: expect.stringContaining("another table") as string,
        });
        expect(await next(spec, "--new-run", "--allow-duplicates")).toMatchObject({ code: 0, rows_planned: 200 });
        expect(await next(spec)).toMatchObject({ code: 0, status: "nothing_new" });
        expect(anew.uuid).not.toBe(written.uuid);
      });
    });

    test.each(["made anew", "gone"])("a run whose table is %s ends with 66", async (how) => {
      const table = `db.dropped_${how.slice(0, 4)}`;
      const written = await writer.act("make", table);
      const spec = await jobOf(table, written);
      expect((await run(["run", spec, "--worker", "0/2"])).code).toBe(0);
      await writer.act("drop", table);
      const anew = how === "gone" ? undefined : await writer.act("make", table);
      const ran = await run(["run", spec, "--worker", "1/2"]);
      expect(ran.code).toBe(66);
      expect(ran.stderr).toContain(anew === undefined ? `has no table ${table}` : anew.uuid);
      expect(ran.stderr).toContain("--new-run");
    });

    test.each([
      [
        "a table that is not there",
        "db.versionz",
        {},
        {},
        /tables of namespace db: .*versions.*did you mean `versions`/s,
      ],
      ["a namespace that is not there", "nowhere.t", {}, {}, /its namespaces: .*db/],
      ["a wrong token", "db.versions", {}, { CATALOG_TOKEN: "wrong-token" }, /refuses the login.*who are you/s],
      ["a wrong warehouse", "db.versions", { warehouse: "other" }, {}, /there is no such warehouse/],
      ["no login", "db.versions", { token: undefined }, {}, /asks for a login/],
      [
        "a wrong client",
        "db.versions",
        { token: undefined, oauth2: { client_id: "reader", client_secret: "wrong-secret" } },
        {},
        /gives out no token: HTTP 401: invalid_client: no such client/,
      ],
    ])("%s ends with 64", async (_, table, changed, env, message) => {
      const { url } = catalog;
      const written = { rows: [{ id: 1 }] } as unknown as WrittenTable;
      const spec = await jobOf(table, written, { catalog: { url, warehouse: "tests", ...login, ...changed } });
      const ran = await run(["run", spec], env);
      expect(ran.code).toBe(64);
      expect(ran.stderr).toMatch(message);
      expect(ran.stderr).not.toMatch(/wrong-(token|secret)/);
    });

    test("credentials that the store refuses are asked for again", async () => {
      const written = await writer.act("make", "db.renewed");
      const loads: string[] = [];
      const proxy = createServer((request, response) => {
        void (async () => {
          const answer = await fetch(`${catalog.url}${request.url ?? ""}`, { headers: headersOf(request) });
          let text = await answer.text();
          if (request.url?.includes("/tables/renewed") === true) {
            loads.push(text);
            // The first ones are wrong, as if they had been revoked.
            text = loads.length === 1 ? text.replaceAll(credentials.secretAccessKey, "revoked-secret") : text;
          }
          response.writeHead(answer.status, { "content-type": "application/json" }).end(text);
        })();
      });
      await new Promise<void>((resolve) => void proxy.listen(0, "127.0.0.1", resolve));
      try {
        const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
        const spec = await jobOf("db.renewed", written, { catalog: { url, warehouse: "tests", ...login } });
        const ran = await run(["run", spec]);
        expect(ran.code, ran.stderr).toBe(0);
        expect(loads.length).toBe(2);
        await expectScored(scratch.path, written.rows, columnsOf(written));
      } finally {
        proxy.closeAllConnections();
        proxy.close();
      }
    });

    test("with credentials of its own, the job reads what the environment lets it", async () => {
      const written = await writer.act("make", "db.own");
      const { url } = catalog;
      const spec = await jobOf("db.own", written, {
        catalog: { url, warehouse: "tests", ...login, credentials: "own" },
      });
      const env = { CATALOG_TOKEN: catalogToken };
      const wrong = await runInS3(["run", spec], {
        port: s3.server().port,
        env: { ...env, AWS_SECRET_ACCESS_KEY: "wrong" },
      });
      expect(wrong.code).toBe(64);
      const ran = await runInS3(["run", spec, "--json"], { port: s3.server().port, env });
      expect(ran.code, ran.stderr).toBe(0);
      await expectScored(scratch.path, written.rows, columnsOf(written));
    });
  });
});

function headersOf({ headers }: IncomingMessage): Record<string, string> {
  const names = ["authorization", "x-iceberg-access-delegation"];
  return Object.fromEntries(
    names.flatMap((name) => (typeof headers[name] === "string" ? [[name, headers[name]]] : [])),
  );
}
