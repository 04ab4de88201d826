import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import type { RunId } from "#src/run/plan/plan.js";
import { connectionOf } from "#src/targets/postgres/connect.js";
import { type Connections, openConnections, retrying } from "#src/targets/postgres/connections.js";
import { JobError } from "#src/base/errors.js";
import { count, runOf } from "../../support/pg-amid.js";
import type { Database } from "../../support/pg-database.js";
import { runCli } from "../../support/cli.js";
import { scratch } from "../../support/job.js";
import { tableFaults, writePgSpec } from "../../support/pg-job.js";
import { usePostgres } from "../../support/postgres.js";
import { begun, commitSpans, pgSink, planFor } from "../../support/sinks.js";
import { until } from "../../support/waiting.js";
import { fixtureNamed } from "../../support/world.js";

const folder = mkdtempSync(join(tmpdir(), "infer-batch-rotated-"));
chmodSync(folder, 0o755); // the server is another user
const hba = join(folder, "pg_hba.conf");
writeFileSync(hba, "host all rotating 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n", { mode: 0o644 });
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const postgres = usePostgres({ flags: ["-c", `hba_file=${hba}`, "-c", "password_encryption=scram-sha-256"] });

interface Rotating extends AsyncDisposable {
  readonly database: Database;
  /** As the role that must give a password; without one in it. */
  readonly url: string;
  /** Changes the role's password, and ends its connections. */
  rotate(password: string): Promise<void>;
  write(password: string): void;
}

async function rotating(): Promise<Rotating> {
  const database = await postgres.server().createDatabase();
  const role = "SELECT FROM pg_roles WHERE rolname = 'rotating'";
  await database.query(`DO $$ BEGIN IF NOT EXISTS (${role}) THEN CREATE ROLE rotating SUPERUSER LOGIN; END IF; END $$`);
  const file = join(folder, "pgpass");
  process.env["PGPASSFILE"] = file;
  const world: Rotating = {
    database,
    url: postgres.server().url(database.name, "rotating"),
    async rotate(password) {
      await database.query(`ALTER ROLE rotating PASSWORD '${password}'`);
      await database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotating'");
    },
    write(password) {
      writeFileSync(file, `127.0.0.1:*:*:rotating:${password}\n`, { mode: 0o600 });
    },
    async [Symbol.asyncDispose]() {
      delete process.env["PGPASSFILE"];
      await database[Symbol.asyncDispose]();
    },
  };
  await world.rotate("first");
  world.write("first");
  return world;
}

postgres.describe("a password that is changed in mid-run", () => {
  test("a run goes on with the password that .pgpass has then, also where the file comes later than the change", async () => {
    await using world = await rotating();
    const warnings: string[] = [];
    const warn = (message: string): void => void warnings.push(message);
    await using sink = pgSink({ url: world.url, retrySeconds: 60, warn });
    const { stored, run } = await begun(sink, planFor(sink.planTarget, { rows: 40, runId: runOf(40) }));
    await commitSpans(run, stored, (span) => span === 0);
    await world.rotate("second");
    world.write("second");
    await commitSpans(run, stored, (span) => span === 1);
    await world.rotate("third");
    const rest = commitSpans(run, stored);
    await until(() => warnings.some((text) => text.includes("no longer takes the password")));
    world.write("third");
    await rest;
    await run.finish();

    expect(await count(world.database)).toBe(40);
  });

  test("a run ends with 75 where the password does not come within retry.max_seconds, or cannot", async () => {
    await using world = await rotating();
    const given = world.url.replace("rotating@", "rotating:first@");
    for (const url of [world.url, given]) {
      await world.rotate("first");
      await using sink = pgSink({ url, retrySeconds: 1 });
      const { stored, run } = await begun(sink, planFor(sink.planTarget, { rows: 40, runId: runOf(40) }));
      await world.rotate("other");
      const error: unknown = await commitSpans(run, stored).catch((caught: unknown) => caught);

      expect(error).toMatchObject({ code: "DATABASE", exitCode: 75, message: expect.stringContaining("the password") });
      expect(error).toMatchObject({ hint: expect.stringContaining("run the same command again") });
      expect(String(error)).not.toMatch(/first|other/);
    }
  });

  test("a password that is wrong from the start ends in 64", async () => {
    await using world = await rotating();
    const run = runOf(40) as RunId;
    world.write("wrong");
    await using sink = pgSink({ url: world.url, retrySeconds: 60 });
    await expect(sink.find(run)).rejects.toMatchObject({ code: "PERMISSION", exitCode: 64 });
    world.write("first");
    expect(await sink.find(run)).toBeUndefined();
  });

  test("a password that is read while the file is being written is read again", async () => {
    await using world = await rotating();
    const read = ["", "first"];
    const settings = {
      ...connectionOf({ url: world.url }, {}),
      password: () => Promise.resolve(read.length > 1 ? read.shift() : read[0]),
    };
    await using connections = openConnections(settings, { connect: 60, statement: 60, lock: 60 });
    const { rows } = await connections.use((session) => session.query("SELECT 1 AS one"));

    expect(rows).toEqual([{ one: 1 }]);
  });

  test("the command scores each row once through two changes of the password", async () => {
    await using world = await rotating();
    const fixture = fixtureNamed("diabetes-mlp");
    const retry = { max_seconds: 60 };
    const spec = await writePgSpec(scratch.path, fixture, { url: world.url }, { commit_rows: 10, retry });
    await world.database.query(`CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8, score real);
      CREATE FUNCTION scores.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END $$;
      CREATE TRIGGER slow AFTER INSERT ON scores.predictions FOR EACH STATEMENT EXECUTE FUNCTION scores.slow()`);
    const run = runCli(["run", spec, "--json"]);
    for (const password of ["second", "third"]) {
      const before = await count(world.database);
      await until(async () => (await count(world.database)) > before);
      await world.rotate(password);
      world.write(password);
    }
    const { code, stderr } = await run;

    expect(code, stderr).toBe(0);
    expect(stderr).not.toMatch(/first|second|third/);
    expect(await tableFaults(world.database, fixture)).toEqual([]);
  });

  test("a run takes the password that ${file:…} holds then, in a URL or alone, with every character", async () => {
    await using world = await rotating();
    const fixture = fixtureNamed("diabetes-mlp");
    const secrets = join(scratch.path, "secrets");
    mkdirSync(secrets);
    const asUrl = (password: string): string =>
      world.url.replace("rotating@", `rotating:${encodeURIComponent(password)}@`);
    const write = (password: string): void => {
      writeFileSync(join(secrets, "password"), `${password}\n`, { mode: 0o644 });
      writeFileSync(join(secrets, "url"), `${asUrl(password)}\n`, { mode: 0o644 });
    };
    await world.database.query(`CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8, score real);
      CREATE FUNCTION scores.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END $$;
      CREATE TRIGGER slow AFTER INSERT ON scores.predictions FOR EACH STATEMENT EXECUTE FUNCTION scores.slow()`);
    for (const given of [{ url: world.url, password: "${file:secrets/password}" }, { url: "${file:secrets/url}" }]) {
      await world.rotate("first-secret");
      write("first-secret");
      const retry = { max_seconds: 60 };
      const spec = await writePgSpec(scratch.path, fixture, world, {
        output: { postgres: given },
        commit_rows: 10,
        retry,
      });
      const before = await count(world.database);
      let hasEnded = false;
      const run = runCli(["run", spec, "--json", "--log-level", "debug", "--new-run", "--allow-duplicates"]).finally(
        () => {
          hasEnded = true;
        },
      );
      await until(async () => hasEnded || (await count(world.database)) > before);
      await world.rotate("a/b@c:d#e%f é");
      write("a/b@c:d#e%f é");
      const { code, stdout, stderr } = await run;

      expect(code, stderr).toBe(0);
      expect(`${stdout}${stderr}`).not.toMatch(/first-secret|a\/b@c/);
      const plans = await world.database.query("SELECT plan FROM infer_batch.runs");
      expect(JSON.stringify(plans)).not.toMatch(/first-secret|a\/b@c|secrets/);
    }
    expect(await count(world.database)).toBe(2 * fixture.rows);
  });

  test("a missing password file is waited for during a run while it is rewritten, and ends the command at the start", async () => {
    await using world = await rotating();
    const warnings: string[] = [];
    const away = new JobError("FILE_MISSING", "reading output.postgres.password: /run/x: there is no such file");
    let read = (): Promise<string> => Promise.reject(away);
    const url = world.url;
    const settings = connectionOf({ url, password: "" }, {}, { reread: async () => ({ url, password: await read() }) });
    const tools = { maxSeconds: 60, nowMs: () => performance.now(), random: Math.random, warnedMs: new Map() };
    const asking = async (connections: Connections): Promise<unknown> =>
      retrying("asking", { ...tools, sleep: () => Promise.resolve(), warn: (text) => void warnings.push(text) }, () =>
        connections.use((session) => session.query("SELECT 1")),
      );
    await using connections = openConnections(settings, { connect: 60, statement: 60, lock: 60 });
    await expect(asking(connections)).rejects.toMatchObject({ exitCode: 64 });
    read = () => Promise.resolve("first");
    await asking(connections);
    await world.rotate("second");
    let reads = 0;
    read = () => {
      reads += 1;
      return reads < 3 ? Promise.reject(away) : Promise.resolve("second");
    };
    await asking(connections);

    expect(warnings.join("\n")).toContain("/run/x: there is no such file");
  });
});
