import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { splitRunId } from "#src/run/plan/identity.js";
import type { RunId } from "#src/run/plan/plan.js";
import { type HttpProxy, httpProxy } from "../support/http-proxy.js";
import { scratchFolder } from "../support/job.js";
import { fewRows, lastJson, type Night, nightAt, nightlyJob, type Nights, publishedRun } from "../support/nights.js";
import { outputRows, partNames } from "../support/output.js";
import { type Bucket, useS3 } from "../support/s3.js";
import { type Moment, nthMoment, numbered, refuseFrom } from "../support/s3-moments.js";
import { useCredentials } from "../support/s3-output.js";
import { mirror } from "../support/s3-target.js";
import { torture } from "../support/torture.js";
import { expectEnd } from "../support/cli.js";

const s3 = useS3();
const date = "2026-11-21";
const out = `lake/dt=${date}`;

/** A night whose output lies in S3, behind a proxy. The night before is published. */
interface World extends AsyncDisposable {
  readonly proxy: HttpProxy;
  readonly night: Night;
  readonly rewrite: Nights["rewrite"];
  /** Names below the output's folder. */
  names(): Promise<string[]>;
  save(as: State): Promise<void>;
  restore(state: State): Promise<void>;
  /** What a reader finds that follows `_SUCCESS`: `r2: 50` are the 50 rows of run 2. */
  seen(): Promise<string>;
  /** Verdicts and decisions, by name. */
  controls(): Promise<Map<string, string>>;
}

/** `published`: run 1 has all rows. `held`: after it, run 2 has too few. */
type State = "nothing" | "published" | "held";

async function worldOf(): Promise<World> {
  useCredentials();
  const scratch = await scratchFolder();
  const proxy = await httpProxy(s3.server().port);
  const bucket = await s3.server().createBucket();
  const path = `s3://${bucket.name}/lake/dt=\${ds}`;
  const parquet = { path, endpoint: `http://127.0.0.1:${proxy.port}`, spool: { path: "spool" } };
  const nights = await nightlyJob(scratch.path, { output: { parquet }, commit_rows: 150 });
  await expectEnd(nights.night("run", "2026-11-20"), 0);
  const names = (): Promise<string[]> => namesBelow(bucket, out);
  const night = nightAt(scratch.path, date);
  const keys = join(scratch.path, "keys.txt");
  await writeFile(keys, "5\n441");
  return {
    proxy,
    night: {
      ...night,
      run: (command, ...args) => night.run(command, ...args.map((word) => (word === "keys.txt" ? keys : word))),
    },
    rewrite: (overrides) => nights.rewrite(overrides),
    names,
    async save(as) {
      for (const name of await names()) {
        await bucket.copy(`${out}/${name}`, `${as}/${name}`);
      }
    },
    async restore(state) {
      for (const name of await names()) {
        await bucket.remove(`${out}/${name}`);
      }
      for (const name of await namesBelow(bucket, state)) {
        await bucket.copy(`${state}/${name}`, `${out}/${name}`);
      }
    },
    async seen() {
      const folder = await mkdtemp(join(scratch.path, "mirror-"));
      await mirror(bucket, out, folder);
      return await seenIn(folder);
    },
    async controls() {
      const found = (await names()).filter((name) => /\/(?:verdict|decision)\.json$/.test(name));
      const read = found.map(async (name) => {
        return [name, Buffer.from(await bucket.get(`${out}/${name}`)).toString("utf8")] as const;
      });
      return new Map(await Promise.all(read));
    },
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}

async function namesBelow(bucket: Bucket, folder: string): Promise<string[]> {
  const keys = (await bucket.keys()).filter((key) => key.startsWith(`${folder}/`) && !key.endsWith("/"));
  return keys.map((key) => key.slice(folder.length + 1));
}

async function seenIn(folder: string): Promise<string> {
  const runId = await publishedRun(folder);
  if (runId === undefined) {
    return "nothing";
  }
  const ids = (await outputRows(folder)).map(({ id }) => String(id));
  const parts = await partNames(folder);
  const isWhole = new Set(ids).size === ids.length && parts.every((name) => name.includes(`.${runId}.`));
  return `r${splitRunId(runId as RunId).number}: ${isWhole ? ids.length : `${ids.length} rows in ${parts.join()}`}`;
}

interface Case {
  readonly title: string;
  readonly command: readonly [string, ...string[]];
  /** The exit code of an undisturbed command. */
  readonly code: number;
  readonly before: State;
  /** A command that is carried out once, before the others. */
  readonly first?: readonly [string, ...string[]];
  /** Whether the spec leaves rows out. */
  readonly few?: true;
  /** What readers may find at any moment. */
  readonly seen: readonly string[];
  /** What readers find when the same command has run again. */
  readonly end: RegExp;
  readonly status: "held" | "discarded" | "published" | "pruned";
  /** Requests after which the short form kills the command. */
  readonly short: readonly RegExp[];
}

const cases: readonly Case[] = [
  {
    title: "a new run that its checks hold",
    command: ["run", "--new-run"],
    code: 67,
    before: "published",
    few: true,
    seen: ["r1: 442"],
    end: /^r1: 442$/,
    status: "held",
    short: [/^PUT .*verdict\.json/],
  },
  {
    title: "a first run that its checks hold",
    command: ["run"],
    code: 67,
    before: "nothing",
    few: true,
    seen: ["nothing"],
    end: /^nothing$/,
    status: "held",
    short: [],
  },
  {
    title: "the approval of a held run",
    command: ["approve", "--by", "ann"],
    code: 0,
    before: "held",
    seen: ["r1: 442", "nothing", "r2: 50"],
    end: /^r2: 50$/,
    status: "published",
    short: [/^PUT .*\/part-\d+\.[^/]*\.parquet/, /^PUT .*_SUCCESS/], // after the last, the key is left
  },
  {
    title: "the discarding of a held run",
    command: ["discard", "--by", "ann"],
    code: 0,
    before: "held",
    seen: ["r1: 442"],
    end: /^r1: 442$/,
    status: "discarded",
    short: [/^PUT .*decision\.json/],
  },
  {
    title: "a new run over a held one",
    command: ["run", "--new-run"],
    code: 0,
    before: "held",
    seen: ["r1: 442", "nothing", "r3: 442"],
    end: /^r[34]: 442$/, // run 4 follows when run 3 was complete
    status: "published",
    short: [/^DELETE .*_SUCCESS/],
  },
  {
    title: "the pruning of a night before the latest",
    command: ["prune", "--keep", "1"],
    code: 0,
    before: "published",
    first: ["prune", "--keep", "2"], // the night before, whose profile the other cases need
    seen: ["r1: 442", "nothing"],
    end: /^nothing$/,
    status: "pruned",
    short: [/^PUT .*plan\.json/],
  },
  {
    title: "the erasing of rows",
    command: ["erase", "--keys", "keys.txt"],
    code: 0,
    before: "published",
    first: ["erase", "--keys", "keys.txt"], // in the other nights
    seen: ["r1: 442", "nothing", "r2: 440"],
    end: /^r[23]: 440$/, // run 3 follows when run 2 had not begun to take the place of run 1
    status: "published",
    short: [], // crash/erase-calls.test.ts kills it on a disk
  },
];

/** The long form: before and after each request that changes the store; other kills leave what those leave. */
async function momentsOf(world: World, { command, code, short, end }: Case): Promise<Moment[]> {
  if (!torture) {
    return short.map((pattern) => ({
      text: `after ${pattern.source}`,
      isIt: (request) => pattern.test(request),
      after: true,
    }));
  }
  const { night, proxy } = world;
  const from = proxy.requests.length;
  await expectEnd(night.run(...command), code);
  expect(await world.seen()).toMatch(end);
  const changes = numbered(proxy.requests.slice(from)).filter(({ kind }) => !/^(?:GET|HEAD) /.test(kind));
  expect(changes.length).toBeGreaterThan(4);
  return changes.flatMap(({ kind, nth }) => [nthMoment(kind, nth, false), nthMoment(kind, nth, true)]);
}

async function killedAt(world: World, one: Case, moment: Moment): Promise<string> {
  const { night, proxy } = world;
  const hasStruck = refuseFrom(proxy, moment);
  const dead = await night.run(...one.command);
  expect(await hasStruck(), "it was not killed").toBe(true);
  const left = await world.seen();
  expect(one.seen, `ended with ${dead.code}: ${dead.stderr}`).toContain(left);
  const before = await world.controls();
  await expectEnd(night.run(...one.command), one.code);
  expect(await world.seen()).toMatch(one.end);
  // Verdicts and decisions stay as they were; pruning takes examples of rows out of verdicts.
  const stays = [...before].filter(([name]) => one.status !== "pruned" || name.endsWith("/decision.json"));
  expect([...(await world.controls())]).toEqual(expect.arrayContaining(stays));
  const leftovers = {
    held: [],
    discarded: [/\.staged$/, /\.key$/],
    published: [/\.staged$/, /probe\./, /\.key$/],
    pruned: [/part-/, /_SUCCESS/, /\.key$/],
  }[one.status];
  const names = await world.names();
  expect(names.filter((name) => leftovers.some((pattern) => pattern.test(name)))).toEqual([]);
  if (torture) {
    expect(lastJson(await night.run("status", "--json"))["status"]).toBe(one.status);
  }
  return left;
}

s3.describe("a command that dies at any request to S3", () => {
  let world: World;

  beforeAll(async () => {
    world = await worldOf();
    const { night } = world;
    await expectEnd(night.run("run"), 0);
    await world.save("published");
    await world.rewrite(fewRows);
    await expectEnd(night.run("run", "--new-run"), 67);
    await world.save("held");
    await world.rewrite({});
    await expectEnd(night.run("run", "--param", "ds=2026-11-22"), 0);
  });
  afterAll(() => world[Symbol.asyncDispose]());

  test.each(torture ? cases : cases.filter(({ short }) => short.length > 0))(
    "$title that is killed at any request to S3 is carried on by the same command, and readers never see a mix",
    { timeout: 3_600_000 },
    async (one) => {
      await world.rewrite(one.few === true ? fewRows : {});
      await world.restore(one.before);
      expect(one.first === undefined ? 0 : (await world.night.run(...one.first)).code).toBe(0);
      await world.restore(one.before);
      const failures: string[] = [];
      const seen = new Set<string>();
      const moments = await momentsOf(world, one);
      console.info(`${one.title}: ${moments.length} kills`);
      for (const moment of moments) {
        await world.restore(one.before);
        try {
          seen.add(await killedAt(world, one, moment));
        } catch (error) {
          failures.push(`killed ${moment.text}: ${error instanceof Error ? error.message : String(error)}`);
        }
      }
      expect(failures).toEqual([]);
      if (torture) {
        expect([...seen].toSorted()).toEqual([...one.seen].toSorted());
      }
    },
  );
});
