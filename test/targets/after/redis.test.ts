import { spawnSync } from "node:child_process";
import { createCluster } from "@redis/client";
import { copyFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type CliResult, expectEnd, type RunningCli, runCli, runHere } from "../../support/cli.js";
import { scratch, type SpecOverrides } from "../../support/job.js";
import { heldNight, lastJson, nightlyJob, type Nights, nightsInTable } from "../../support/nights.js";
import { outputRows } from "../../support/output.js";
import { usePostgres } from "../../support/postgres.js";
import { freePort } from "../../support/s3-server.mjs";
import { missing, type RedisServer, skipped, startCluster, startRedis } from "../../support/redis.js";
import { type TcpProxy, tcpProxy } from "../../support/tcp-proxy.js";
import { torture } from "../../support/torture.js";
import { until } from "../../support/waiting.js";
import { ownJob } from "../../support/world.js";

const rows = 442;
const [monday, tuesday, wednesday] = ["2026-11-23", "2026-11-24", "2026-11-25"] as const;

const redisOf = (url: string, more: object = {}): SpecOverrides => ({
  publish: { redis: { url, key: ["id"], columns: ["score"], ttl: "2d", ...more } },
  retry: { max_seconds: 20 },
});

const jobAt = (url: string, more: object = {}, overrides: object = {}): Promise<Nights> =>
  nightlyJob(scratch.path, { commit_rows: 50, ...redisOf(url, more), ...overrides });

const runOf = (nights: Nights, date: string): Promise<Record<string, unknown>> =>
  expectEnd(nights.night("run", date, "--json"), 0).then(lastJson);

/** What a reader finds by two GETs for each key; undefined: nothing is current. @param name the prefix */
async function readAll(
  server: Pick<RedisServer, "ask">,
  name = "diabetes-mlp",
  keys: readonly (number | string)[] = Array.from({ length: rows }, (_, id) => id),
): Promise<{ readonly run: string; readonly values: readonly (string | null)[] } | undefined> {
  const shown = (await server.ask("GET", `${name}:current`)) as string | null;
  if (shown === null) {
    return undefined;
  }
  const values = await server.ask("MGET", ...keys.map((key) => `${name}:${shown}:${key}`));
  return { run: shown.replace(/\.[0-9a-f]{8}$/, ""), values: values as (string | null)[] };
}

async function expectCurrent(server: Pick<RedisServer, "ask">, runId: unknown, folder: string): Promise<void> {
  const found = await readAll(server);
  expect(found?.run).toBe(runId);
  const stored = await outputRows(folder);
  expect(stored).toHaveLength(rows);
  const scores = new Map(stored.map(({ id, score }) => [Number(id), score]));
  expect(found?.values.map((value) => Math.fround((JSON.parse(value ?? "{}") as { score: number }).score))).toEqual(
    Array.from({ length: rows }, (_, id) => scores.get(id)),
  );
}

/** Reads again and again until it is stopped. Returns which runs it found, and how many of their rows were missing. */
function pollingReader(server: RedisServer): { stop(): Promise<readonly string[]> } {
  const runs: string[] = [];
  const stopping = new AbortController();
  const faults: string[] = [];
  const reading = (async () => {
    while (!stopping.signal.aborted) {
      const found = await readAll(server).catch(() => undefined); // the server may be away
      const lost = found?.values.filter((value) => value === null).length ?? 0;
      if (lost > 0) {
        faults.push(`${found?.run} lacks ${lost} rows`);
      }
      if (found !== undefined && runs.at(-1) !== found.run) {
        runs.push(found.run);
      }
      await sleep(10);
    }
  })();
  return {
    async stop() {
      stopping.abort();
      await reading;
      expect(faults).toEqual([]);
      return runs;
    },
  };
}

/** Runs a night in a process of its own, and does something to it when so many bytes have gone to the server. */
async function disturbed(
  nights: Nights,
  date: string,
  proxy: TcpProxy,
  bytes: number,
  disturb: (child: RunningCli) => boolean | undefined,
): Promise<CliResult> {
  let child: RunningCli | undefined;
  proxy.arm("cut", (chunk, before) => before + chunk.length > bytes && child !== undefined && disturb(child) === true);
  return await runCli(["run", nights.spec, "--param", `ds=${date}`, "--json"], {
    onStart: (started) => {
      child = started;
    },
  });
}

/** Stops a night while it sends its rows to the server. Returns what lets it go on, and ends with it. */
async function stopped(nights: Nights, date: string, proxy: TcpProxy): Promise<() => Promise<CliResult>> {
  let night: RunningCli | undefined;
  const ended = disturbed(nights, date, proxy, 20_000, (child) => {
    if (night === undefined) {
      night = child;
      child.kill("SIGSTOP");
    }
    return false;
  });
  await until(() => night !== undefined);
  return async () => {
    night?.kill("SIGCONT");
    return await ended;
  };
}

describe.skipIf(missing !== undefined)(`publish.redis${skipped}`, () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
  });

  /** Of a prefix of its own: tests share the server. */
  const fresh = async (): Promise<void> => {
    await server.ask("FLUSHALL");
  };

  test("two GETs answer each row of the last run, until it expires", async () => {
    await fresh();
    const nights = await jobAt(server.url);
    const { run_id: runId } = await runOf(nights, monday);
    await expectCurrent(server, runId, nights.folder(monday));
    const current = Number(await server.ask("TTL", "diabetes-mlp:current"));
    expect(current).toBeGreaterThan(172_000);
    const row = `diabetes-mlp:${String(await server.ask("GET", "diabetes-mlp:current"))}:7`;
    expect(Number(await server.ask("TTL", row))).toBeGreaterThan(current);
    const { run_id: next } = await runOf(nights, tuesday);
    await expectCurrent(server, next, nights.folder(tuesday));
    expect(await server.ask("EXISTS", row)).toBe(1); // a reader may be between its GETs
  });

  test("an older run is published at its target, and is never current", async () => {
    await fresh();
    const nights = await jobAt(server.url);
    const { run_id: later } = await runOf(nights, tuesday);
    await expectEnd(nights.night("run", monday), 0, "is not the newest one");
    await expectCurrent(server, later, nights.folder(tuesday));
    expect(await outputRows(nights.folder(monday))).toHaveLength(rows);
    const { run_id: again } = lastJson(await expectEnd(nights.night("run", tuesday, "--new-run", "--json"), 0));
    await expectCurrent(server, again, nights.folder(tuesday));
    expect(again).toBe(`${later as string}-r2`);
  });

  test("a run that is made anew, or has another key, has none of the rows that its name had before", async () => {
    await fresh();
    const nights = await jobAt(server.url);
    await runOf(nights, monday);
    await rm(nights.folder(monday), { recursive: true });
    const fewer = await jobAt(server.url, {}, { input: { where: "id >= 40" } });
    await runOf(fewer, monday);
    expect((await readAll(server, undefined, [7, 39, 40]))?.values).toMatchObject([null, null, /score/]);
  });

  test("the same command again refreshes what is half expired, and restores what the server lost", async () => {
    await fresh();
    const nights = await jobAt(server.url);
    const { run_id: runId } = await runOf(nights, monday);
    const progress = `diabetes-mlp:{diabetes-mlp:current}:${String(await server.ask("GET", "diabetes-mlp:current"))}`;
    const ttl = async (key: string): Promise<number> => Number(await server.ask("TTL", key));
    const age = async (seconds: number): Promise<void> => {
      const stored = JSON.parse((await server.ask("GET", progress)) as string) as { until: number };
      const aged = stored.until - seconds;
      await server.ask("SET", progress, JSON.stringify({ ...stored, until: aged }));
      await server.ask("EXPIREAT", "diabetes-mlp:current", String(aged));
    };
    await age(80_000);
    await expectEnd(nights.night("run", monday), 0);
    expect(await ttl("diabetes-mlp:current")).toBeLessThan(93_000);
    await age(10_000);
    await expectEnd(nights.night("run", monday), 0, /wrote 442 rows/);
    expect(await ttl("diabetes-mlp:current")).toBeGreaterThan(172_000);
    await fresh();
    await expectEnd(nights.night("run", monday), 0);
    await expectCurrent(server, runId, nights.folder(monday));
  });

  test("a server that is away is 75, and the same command needs neither model nor input then", async () => {
    await using own = await startRedis();
    const job = await ownJob(scratch.path, "diabetes-mlp", {
      ...redisOf(own.url),
      retry: { max_seconds: 0 },
    });
    await own.kill();
    const run = (): Promise<CliResult> => runCli(["run", job.spec, "--json"]);
    const failed = await expectEnd(
      run(),
      75,
      "publishing run",
      "is published; Redis at 127.0.0.1",
      "same command again",
    );
    expect(lastJson(failed)["status"]).toBe("failed");
    expect(await outputRows(job.out)).toHaveLength(rows);
    await own.start();
    await copyFile(job.shard(0), join(scratch.path, "in", "added.parquet"));
    const changed = lastJson(await expectEnd(run(), 66)); // Redis comes first
    await expectCurrent(own, changed["run_id"], job.out);
    await own.ask("FLUSHALL");
    await rm(job.model);
    await rm(join(scratch.path, "in"), { recursive: true });
    const { run_id: runId, status } = lastJson(await expectEnd(run(), 0));
    expect(status).toBe("already_complete");
    await expectCurrent(own, runId, job.out);
  });

  test("a held run is not current, and its approval makes it so", async () => {
    await fresh();
    const nights = await jobAt(server.url);
    await heldNight(nights);
    const before = (await readAll(server))?.run;
    await expectEnd(nights.night("approve", "2026-11-21"), 0);
    const after = await readAll(server);
    expect(after?.run).not.toBe(before);
    expect(after?.values.filter((value) => value !== null)).toHaveLength(50);
  });

  test("keys of several columns", async () => {
    await fresh();
    const nights = await jobAt(
      server.url,
      { prefix: "churn-eu", key: ["id", "place"], columns: ["place", "score"] },
      {
        input: { columns: { place: "'50%:a'" } },
        output: { columns: ["id", "place"], parquet: { path: "out/dt=${ds}" } },
        checks: undefined,
      },
    );
    await runOf(nights, monday);
    const found = await readAll(
      server,
      "churn-eu",
      [1, 2].map((id) => `${id}:50%25%3Aa`),
    );
    expect(found?.values.map((value) => value?.replace(/"score":[\d.]+/, '"score":0'))).toEqual([
      '{"place":"50%:a","score":0}',
      '{"place":"50%:a","score":0}',
    ]);
  });

  test("what cannot be looked up is refused before anything is scored", async () => {
    await fresh();
    const wrong = await jobAt(server.url, { columns: ["scores"] });
    await expectEnd(wrong.night("run", monday), 64, "publish.redis.columns", "no column scores");
    await expectEnd(wrong.night("plan", monday), 64, "no column scores");
    const other = await jobAt(server.url, {}, { params: { ds: "${today}", region: "EU" } });
    await expectEnd(other.night("run", monday), 0);
    await expectEnd(other.night("plan", tuesday, "--param", "region=US"), 64, "region=EU", "publish.redis.prefix");
    await expectEnd(other.night("run", tuesday, "--param", "region=US"), 64, "is published", "publish.redis.prefix");
    const chained = await jobAt(
      server.url,
      {},
      {
        input: { table: "t", path: undefined, since: "last_run" },
        params: undefined,
        checks: undefined,
        output: { parquet: { path: "out" } },
      },
    );
    await expectEnd(runHere(["validate", chained.spec]), 64, "publish.redis", "new rows only");
    const shared = await jobAt(
      server.url,
      {},
      { output: { parquet: undefined, postgres: { url: "postgres://x", table: "t" } } },
    );
    await expectEnd(runHere(["validate", shared.spec]), 64, "publish.redis", "output.lineage");
  });

  test("an erasure says that its rows stay until they expire, and takes them from the run that is current", async () => {
    await fresh();
    const nights = await jobAt(server.url);
    await runOf(nights, monday);
    await runOf(nights, tuesday);
    const keys = join(scratch.path, "keys.txt");
    await writeFile(keys, "7\n");
    const erase = ["erase", nights.spec, "--keys", keys];
    expect((await expectEnd(runHere([...erase, "--dry-run"]), 0)).stderr).not.toContain("until they expire");
    expect((await expectEnd(runHere(erase), 0)).stderr.match(/until they expire/g)).toHaveLength(1);
    const found = await readAll(server);
    expect(found?.run).toMatch(/-r2$/);
    expect(found?.values.flatMap((value, id) => (value === null ? [id] : []))).toEqual([7]);
  });

  test("a run for other readers leaves Redis alone", async () => {
    await fresh();
    const nights = await jobAt(server.url);
    await expectEnd(nights.night("run", monday, "--limit", "10", "--output", join(scratch.path, "some")), 0);
    expect(await server.ask("DBSIZE")).toBe(0);
  });

  test("the password and what the user may do are said, and no secret is", async () => {
    await using own = await startRedis("--requirepass", "a-secret");
    const url = (login: string): string => own.url.replace("//", `//${login}@`);
    const wrong = await jobAt(url(":a-wrong-one"));
    const refused = await expectEnd(
      wrong.night("run", monday, "--log-level", "debug"),
      64,
      "WRONGPASS",
      "is published",
    );
    expect(refused.stderr + refused.stdout).not.toContain("a-wrong-one");
    await expectEnd(wrong.night("plan", tuesday), 64, "WRONGPASS");
    const none = await jobAt(own.url);
    await expectEnd(none.night("run", monday), 64, "NOAUTH");
    const nights = await jobAt(url(":a-wrong-one"), { password: "a-secret" });
    await expectEnd(nights.night("run", monday), 0);
  });

  test("TLS with an authority of its own, and a user that may do little", async () => {
    const key = join(scratch.path, "key.pem");
    const ca = join(scratch.path, "cert.pem");
    const subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"];
    spawnSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", ca, ...subject]);
    const secure = await freePort();
    const user = ["--user", "app", "on", ">p@w", "~diabetes-mlp:*", "+get", "+set", "+eval", "+info", "+time"];
    const files = ["--tls-cert-file", ca, "--tls-key-file", key, "--tls-auth-clients", "no"];
    await using own = await startRedis("--tls-port", String(secure), ...files, ...user);
    const url = `rediss://app:p%40w@127.0.0.1:${secure}`;
    const nights = await jobAt(url, { ca: "cert.pem" });
    const { run_id: runId } = await runOf(nights, monday);
    await expectCurrent(own, runId, nights.folder(monday));
    const unknown = await jobAt(url);
    await expectEnd(unknown.night("run", tuesday), 64, "publish.redis.ca", "is published");
    await own.ask("ACL", "SETUSER", "app", "-eval");
    const refused = await jobAt(url, { ca: "cert.pem" });
    await expectEnd(refused.night("run", wednesday), 64, "NOPERM");
  });

  test("a cluster has the rows on all of its servers", async () => {
    await using cluster = await startCluster();
    const [one, ...others] = cluster.servers;
    const nights = await jobAt(one?.url ?? "");
    const { run_id: runId } = await runOf(nights, monday);
    const counts = await Promise.all(cluster.servers.map(async (each) => Number(await each.ask("DBSIZE"))));
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(rows + 3);
    expect(Math.min(...counts)).toBeGreaterThan(rows / 6);
    const clients = createCluster({ rootNodes: [{ url: one?.url ?? "" }] });
    clients.on("error", () => undefined);
    await clients.connect();
    const stored = await outputRows(nights.folder(monday));
    const current = await clients.get("diabetes-mlp:current");
    expect(current?.replace(/\.[0-9a-f]{8}$/, "")).toBe(runId);
    for (const { id, score } of stored) {
      const value = await clients.get(`diabetes-mlp:${current}:${id as bigint}`);
      expect(Math.fround((JSON.parse(value ?? "{}") as { score: number }).score)).toBe(score);
    }
    clients.destroy();
    // One of them is restarted without what it had: the same command writes all rows again.
    await others[0]?.kill();
    await others[0]?.start();
    await until(async () => String(await one?.ask("CLUSTER", "INFO")).includes("cluster_state:ok"));
    await expectEnd(nights.night("run", monday), 0, /wrote 442 rows/);
    expect(await others[0]?.ask("DBSIZE").then(Number)).toBeGreaterThan(rows / 6);
  });

  describe("while readers poll", () => {
    const kills = torture ? 20 : 2;

    test(`a run that is killed ${kills} times is found whole, or not at all`, async () => {
      await fresh();
      await using proxy = await tcpProxy(server.port);
      const nights = await jobAt(`redis://127.0.0.1:${proxy.port}`, {}, { checks: undefined });
      let before = (await runOf(nights, "2026-10-01"))["run_id"];
      const reader = pollingReader(server);
      const expected = [before];
      for (let kill = 1; kill <= kills; kill += 1) {
        const date = new Date(Date.UTC(2026, 9, 1 + kill)).toISOString().slice(0, 10);
        const bytes = 500 + (kill * 56_000) / (kills + 1);
        const killed = await disturbed(nights, date, proxy, bytes, (child) => child.kill("SIGKILL"));
        expect(killed.signal, killed.stderr).toBe("SIGKILL");
        expect((await readAll(server))?.run).toBe(before);
        before = (await runOf(nights, date))["run_id"];
        expected.push(before);
        await expectCurrent(server, before, nights.folder(date));
      }
      expect(await reader.stop()).toEqual(expected);
    }, 900_000);

    test("a publication goes on with the part that it was killed in", async () => {
      await fresh();
      await using proxy = await tcpProxy(server.port);
      const nights = await jobAt(`redis://127.0.0.1:${proxy.port}`);
      await disturbed(nights, monday, proxy, 30_000, (child) => child.kill("SIGKILL"));
      const sent = await expectEnd(nights.night("run", monday), 0, /wrote \d+ rows/);
      expect(Number(/wrote (\d+) rows/.exec(sent.stderr)?.[1])).toBeLessThan(rows * 0.7);
      await expectCurrent(
        server,
        lastJson(await nights.night("run", monday, "--json"))["run_id"],
        nights.folder(monday),
      );
    });

    test("a run that waited while a later one was published is not current", async () => {
      await fresh();
      await using proxy = await tcpProxy(server.port);
      const slow = await jobAt(`redis://127.0.0.1:${proxy.port}`);
      const reader = pollingReader(server);
      const goOn = await stopped(slow, monday, proxy);
      const fast = await jobAt(server.url);
      const { run_id: later } = await runOf(fast, tuesday);
      await expectEnd(goOn(), 0, "is not the newest one");
      await expectCurrent(server, later, fast.folder(tuesday));
      expect(await reader.stop()).toEqual([later]);
    });

    test.each([
      ["without what it had", []],
      ["with what it had", ["--appendonly", "yes", "--appendfsync", "always"]],
    ])("a server that is restarted %s gets all rows", async (_, options) => {
      await using own = await startRedis(...options);
      await using proxy = await tcpProxy(own.port);
      const nights = await jobAt(`redis://127.0.0.1:${proxy.port}`);
      const { run_id: first } = await runOf(nights, monday);
      const reader = pollingReader(own);
      let restarted: Promise<void> | undefined;
      const run = await disturbed(nights, tuesday, proxy, 30_000, () => {
        restarted = own.kill().then(() => own.start());
        return true;
      });
      await restarted;
      await expectEnd(run, 0, "trying again");
      const { run_id: runId } = lastJson(run);
      await expectCurrent(own, runId, nights.folder(tuesday));
      const found = await reader.stop();
      expect([first, runId]).toEqual(expect.arrayContaining([...found]));
      expect(found.at(-1)).toBe(runId);
    });
  });

  const postgres = usePostgres();
  postgres.describe("of a table", () => {
    test("a rollback puts Redis back, too", async () => {
      await fresh();
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, "replace", redisOf(server.url));
      const { run_id: first } = await runOf(nights, monday);
      const { run_id: second } = await runOf(nights, tuesday);
      expect((await readAll(server))?.run).toBe(second);
      await expectEnd(runHere(["rollback", nights.spec]), 0);
      const found = await readAll(server);
      expect(found?.run).toBe(first);
      expect(found?.values).not.toContain(null);
      await expectEnd(nights.night("run", tuesday), 0); // it is rolled back, and stays so
      expect((await readAll(server))?.run).toBe(first);
      const { run_id: again } = lastJson(await expectEnd(nights.night("run", tuesday, "--new-run", "--json"), 0));
      expect((await readAll(server))?.run).toBe(again);
      await fresh();
      await expectEnd(nights.night("run", monday), 0, "is not the newest one"); // its rows are not in the table
    });

    test("a run that was rolled back while it was published to Redis is not current", async () => {
      await fresh();
      await using database = await postgres.server().createDatabase();
      await using proxy = await tcpProxy(server.port);
      const nights = await nightsInTable(scratch.path, database, "replace", redisOf(`redis://127.0.0.1:${proxy.port}`));
      const { run_id: first } = await runOf(nights, monday);
      const goOn = await stopped(nights, tuesday, proxy);
      await expectEnd(runHere(["rollback", nights.spec]), 0);
      await expectEnd(goOn(), 0);
      expect((await readAll(server))?.run).toBe(first);
    });

    test("a rollback that Redis did not follow is finished by the run that is back", async () => {
      await using own = await startRedis("--appendonly", "yes", "--appendfsync", "always");
      await using database = await postgres.server().createDatabase();
      const nights = await nightsInTable(scratch.path, database, "replace", {
        ...redisOf(own.url),
        retry: { max_seconds: 0 },
      });
      const { run_id: first } = await runOf(nights, monday);
      const { run_id: second } = await runOf(nights, tuesday);
      await own.kill();
      await expectEnd(
        runHere(["rollback", nights.spec]),
        75,
        `rows of run ${String(first)} again`,
        `--param ds=${monday}`,
      );
      await own.start();
      expect((await readAll(own))?.run).toBe(second);
      await expectEnd(nights.night("run", monday), 0);
      expect((await readAll(own))?.run).toBe(first);
    });

    test.each(["append", "upsert"])("in mode %s, readers find the rows of the last run", async (mode) => {
      await fresh();
      await using database = await postgres.server().createDatabase();
      const output = { lineage: true };
      const nights = await nightsInTable(scratch.path, database, mode, { ...redisOf(server.url), output });
      await runOf(nights, monday);
      const { run_id: runId } = await runOf(nights, tuesday);
      const found = await readAll(server);
      expect(found?.run).toBe(runId);
      const stored = await database.query(`SELECT id, score FROM scores.predictions WHERE run_id = '${String(runId)}'`);
      expect(stored).toHaveLength(rows);
      for (const { id, score } of stored) {
        expect(JSON.parse(found?.values[Number(id)] ?? "{}")).toEqual({ score });
      }
    });
  });
});
