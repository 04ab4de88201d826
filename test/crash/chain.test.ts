import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type CliResult, runCli } from "../support/cli.js";
import { icebergMissing, useDiskCatalog } from "../support/iceberg.js";
import { growingLake, type LakeKind, lakeKinds, missing, skipped } from "../support/lake-writers.js";
import { scratch } from "../support/job.js";
import { appsOfDelta, rowsOfDelta, writeLakeJob } from "../support/lakes.js";
import { outputRows } from "../support/output.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { randomOf } from "../support/random.js";
import { type Bucket, s3Env, useS3 } from "../support/s3.js";
import { mirror } from "../support/s3-target.js";
import { torture } from "../support/torture.js";

const postgres = usePostgres();
const s3 = useS3();
let catalog: ReturnType<typeof useDiskCatalog>;
let tables = 0;

const columns = ["x", "id"];
/** Runs of a chain, and processes that are killed. */
const { ticks, kills } = torture ? { ticks: 50, kills: 20 } : { ticks: 4, kills: 4 };

interface Place extends AsyncDisposable {
  readonly output: object;
  readonly env: Readonly<Record<string, string>>;
  ids(): Promise<number[]>;
}

const places = {
  async disk(): Promise<Place> {
    return await Promise.resolve({
      output: { parquet: { path: "out" } },
      env: {},
      ids: () => idsBelow(join(scratch.path, "out")),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    });
  },
  async s3(): Promise<Place> {
    const bucket: Bucket = await s3.server().createBucket();
    return {
      output: { parquet: { path: `s3://${bucket.name}/out`, spool: { path: "spool" } } },
      env: s3Env(s3.server().port),
      async ids() {
        const copy = join(scratch.path, "copy");
        await mirror(bucket, "out", copy);
        return await idsBelow(copy);
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  },
  async delta(): Promise<Place> {
    const scores = join(scratch.path, "scores");
    return await Promise.resolve({
      output: { delta: { path: scores } },
      env: {},
      async ids() {
        expect(await appsOfDelta(scores), "what the table keeps of the chain does not grow").toHaveLength(1);
        return (await rowsOfDelta(scores)).map(({ id }) => Number(id)).toSorted((left, right) => left - right);
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    });
  },
  async iceberg(): Promise<Place> {
    const { url, env, pyiceberg } = catalog();
    const name = `db.scores${(tables += 1)}`;
    return await Promise.resolve({
      output: { iceberg: { table: name, catalog: { url, warehouse: "tests", token: "${CATALOG_TOKEN}" } } },
      env,
      async ids() {
        const { rows, runs } = await pyiceberg.read(name);
        expect(Object.keys(runs), "what the table keeps of the chain does not grow").toHaveLength(1);
        return rows.map(({ id }) => Number(id)).toSorted((left, right) => left - right);
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    });
  },
  append: () => table({ mode: "append" }),
  upsert: () => table({ mode: "upsert", key: ["id"] }),
};

async function table(mode: object): Promise<Place> {
  const database: Database = await postgres.server().createDatabase();
  return {
    output: { postgres: { url: database.url, table: "scores", timeouts: { lock: 1 }, ...mode } },
    env: {},
    async ids() {
      const rows = await database.query("SELECT id FROM scores ORDER BY id");
      return rows.map(({ id }) => Number(id));
    },
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

async function idsBelow(folder: string): Promise<number[]> {
  const names = (await readdir(folder)).filter((name) => name.startsWith("run="));
  const rows = await Promise.all(names.map((name) => outputRows(join(folder, name))));
  return rows
    .flat()
    .map(({ id }) => Number(id))
    .toSorted((left, right) => left - right);
}

function moments(random: () => number): ReadonlySet<number> {
  const chosen = new Set<number>();
  while (chosen.size < kills) {
    chosen.add(Math.floor(random() * ticks));
  }
  return chosen;
}

/** Ticks of a cron while a table grows and is compacted, some of them killed; at last, a run reads what is left. */
async function live(kind: LakeKind, place: Place, seed: number): Promise<number> {
  const random = randomOf(seed);
  const lake = await growingLake(kind, scratch.path);
  const spec = await writeLakeJob(scratch.path, {
    table: lake.table,
    columns,
    input: { since: "last_run" },
    more: {
      commit_rows: 30,
      engine: { batch_size: 16 },
      output: { columns, ...place.output },
      ...(seed % 2 === 0 ? { checks: {} } : {}), // then the day of each run is noted, too
    },
  });
  const killed = moments(random);
  let rows = 0;
  let started = 0;
  let landed = 0;
  const tick = async (...options: readonly string[]): Promise<CliResult> => {
    const isKilled = killed.has(started);
    started += 1;
    const delayMs = 60 + random() * 500;
    return await runCli(["run", spec, "--no-progress", ...options], {
      env: place.env,
      onStart(child) {
        if (isKilled) {
          setTimeout(() => child.kill("SIGKILL"), delayMs);
        }
      },
    });
  };
  for (let each = 0; each < ticks; each += 1) {
    const appended = 20 + Math.floor(random() * 150);
    await lake.act(`append ${rows} ${appended}`);
    rows += appended;
    if (random() < 0.2) {
      await lake.act("compact");
    }
    const how = Math.floor(random() * 3);
    const ran =
      how === 0
        ? [await tick()]
        : await Promise.all([0, 1].map((index) => tick(...(how === 1 ? [] : ["--worker", `${index}/2`]))));
    landed += ran.filter(({ signal }) => signal === "SIGKILL").length;
    for (const { code, signal, stderr } of ran) {
      expect(signal === "SIGKILL" || code === 0, stderr).toBe(true);
    }
  }
  for (;;) {
    const last = await tick();
    expect(last.code, last.stderr).toBe(0);
    if (last.stdout.includes("nothing new")) {
      expect(landed, "processes that were killed before they ended").toBeGreaterThan(torture ? kills / 2 : 0);
      return rows;
    }
  }
}

const worlds = (Object.keys(places) as (keyof typeof places)[]).flatMap((name) =>
  lakeKinds.map((kind) => ({ name, kind })),
);
const short: Readonly<Record<string, LakeKind>> = {
  disk: "delta",
  delta: "iceberg",
  iceberg: "delta",
  upsert: "delta",
};
const told = torture ? worlds : worlds.filter(({ name, kind }) => short[name] === kind);

function testEach(each: typeof worlds): void {
  test.skipIf(missing !== undefined).each(each)(
    `a $kind table into $name: each once, however processes of the chain are killed${skipped}`,
    async ({ name, kind }) => {
      await using place = await places[name]();
      const rows = await live(
        kind,
        place,
        worlds.findIndex((world) => world.name === name && world.kind === kind),
      );
      expect(await place.ids()).toEqual(Array.from({ length: rows }, (_, id) => id));
    },
    torture ? 1_200_000 : 240_000,
  );
}

s3.describe("in every place", () => {
  postgres.describe("rows of", () => {
    testEach(told.filter(({ name }) => name !== "iceberg"));

    describe.skipIf(icebergMissing !== undefined)(icebergMissing ?? "", () => {
      catalog = useDiskCatalog();
      testEach(told.filter(({ name }) => name === "iceberg"));
    });
  });
});
