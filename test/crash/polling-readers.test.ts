import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type CliResult, runCli, runHere } from "../support/cli.js";
import { watchCommand } from "../support/watched.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { fewRows, nightlyJob, type Nights } from "../support/nights.js";
import { expectInOrder } from "../support/pg-reader.js";
import { usePostgres } from "../support/postgres.js";
import { randomOf } from "../support/random.js";
import { type Look, lookInBucket, lookInFolder, lookInTable } from "../support/reader-looks.js";
import { useStores } from "../support/clouds.js";
import type { StoreServer } from "../support/s3.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";

const stores = useStores();
const postgres = usePostgres();

const [before, date] = ["2026-11-20", "2026-11-21"];
/** INFER_BATCH_TORTURE=1: more kills of each command. */
const killsOfEach = torture ? 6 : 1;

/** What readers poll. */
interface Target {
  readonly output: SpecOverrides["output"];
  look(): Promise<Look>;
  /** What readers may find after each publication, in order. */
  readonly due: readonly [first: Look, few: Look, last: Look];
  /** The folder of the output: commands pause at each call that changes it, for readers to look between any two of them. */
  readonly folder?: string;
}

/** Runs a command to its end. */
async function runToEnd(args: readonly string[], folder?: string): Promise<CliResult> {
  return folder === undefined ? await runHere(args) : await watchCommand(args, pausing(folder));
}

const pausing = (folder: string): Record<string, string> => ({ CRASH_ROOT: folder, CRASH_PAUSE: "4" });

interface Kills {
  readonly random: () => number;
  readonly folder?: string | undefined;
}

/** Kills a command at random moments, then lets it end. `again`: the command after a kill, from what was said so far. */
async function killed(
  { random, folder }: Kills,
  args: readonly string[],
  again: (said: string) => readonly string[] = () => args,
): Promise<CliResult> {
  let said = "";
  for (let kill = 0; kill < killsOfEach; kill += 1) {
    const startedMs = performance.now();
    let timer: NodeJS.Timeout | undefined;
    const { signal, stderr } = await runCli(again(said), {
      onStart: (child) => {
        timer = setTimeout(() => child.kill("SIGKILL"), random() * 2 * commandMs);
      },
    });
    clearTimeout(timer);
    said += stderr;
    commandMs = signal === null ? performance.now() - startedMs : commandMs;
  }
  return await runToEnd(again(said), folder);
}

/** How long a command takes here, about. */
let commandMs = 800;

/**
 * A published night is done again with too few rows: held, discarded, held once more, approved; then with all rows. Each
 * command is killed and repeated. Readers poll all the while.
 */
async function readThroughDecisions(folder: string, target: Target, seed: number): Promise<void> {
  const random = randomOf(seed);
  const job = { commit_rows: 150, output: { lineage: true, ...target.output } };
  const nights = await nightlyJob(folder, job);
  for (const night of [before, date]) {
    const { code, stderr } = await nights.night("run", night);
    expect(code, stderr).toBe(0);
  }
  const seen: Look[] = [];
  const state = { ended: false, reads: 0 };
  const polling = poll(target, seen, state);
  try {
    await Promise.race([decide(nights, { random, folder: target.folder }, { target, seen, state }), polling]);
  } finally {
    state.ended = true;
    await polling;
  }
  expectInOrder(
    seen.filter(
      (one, index, all) => one !== "nothing" && one !== all.slice(0, index).findLast((it) => it !== "nothing"),
    ),
    target.due,
  );
  expect(seen.at(-1)).toBe(target.due[2]);
}

async function poll(target: Target, seen: Look[], state: { ended: boolean; reads: number }): Promise<void> {
  while (!state.ended) {
    const found = await target.look();
    if (found !== seen.at(-1)) {
      seen.push(found);
    }
    state.reads += 1;
    await sleep(2);
  }
}

interface Watched {
  readonly target: Target;
  readonly seen: readonly Look[];
  readonly state: { readonly reads: number };
}

async function decide(nights: Nights, kills: Kills, { target, seen, state }: Watched): Promise<void> {
  const argsOf = (command: string, ...more: string[]): string[] => [
    command,
    nights.spec,
    "--param",
    `ds=${date}`,
    ...more,
  ];
  const ended = async (code: number, ending: Promise<CliResult>, due: Look): Promise<void> => {
    const { code: found, stderr } = await ending;
    expect(found, stderr).toBe(code);
    const reads = state.reads;
    await until(() => state.reads > reads + 1);
    expect(seen.at(-1)).toBe(due);
  };
  const newRun = (...more: string[]): Promise<CliResult> =>
    // Once a run is planned, another --new-run would open one more if the killed command had got to its end.
    killed(kills, argsOf("run", "--new-run", ...more), (said) =>
      said.includes("planned run") ? argsOf("run") : argsOf("run", "--new-run", ...more),
    );
  const [first, few, last] = target.due;
  const isAppend = (target.output as { postgres?: { mode?: string } }).postgres?.mode === "append";
  const duplicates = isAppend ? ["--allow-duplicates"] : [];
  await nights.rewrite(fewRows);
  await ended(67, newRun(...duplicates), first);
  await ended(0, killed(kills, argsOf("discard", "--reason", "wrong")), first);
  await ended(67, newRun(...duplicates), first);
  await ended(0, killed(kills, argsOf("approve", "--reason", "right")), few);
  await nights.rewrite({});
  await ended(0, newRun(...duplicates), last);
}

test("a reader of a folder that follows _SUCCESS sees one run's rows through holds, decisions, new runs and kills", {
  timeout: 900_000,
}, async () => {
  const folder = join(scratch.path, "out", `dt=${date}`);
  const look = (): Promise<Look> => lookInFolder(folder);
  await readThroughDecisions(scratch.path, { output: {}, look, due: ["442", "50", "442"], folder }, 1);
});

for (const { name, describe, server } of stores) {
  describe(`in ${name},`, () => readersOf(server));
}

function readersOf(server: () => StoreServer): void {
  test.skipIf(!torture)(
    "a reader of a bucket that follows _SUCCESS sees one run's rows through holds, decisions, new runs and kills",
    {
      timeout: 900_000,
    },
    async () => {
      const bucket = await server().createBucket();
      Object.assign(process.env, bucket.env());
      const path = `${bucket.uri}/lake/dt=\${ds}`;
      const endpoint = bucket.endpointAt();
      const look = (): Promise<Look> => lookInBucket(bucket, `lake/dt=${date}`, scratch.path);
      await readThroughDecisions(
        scratch.path,
        { output: { parquet: { path, endpoint, spool: { path: "spool" } } }, look, due: ["442", "50", "442"] },
        2,
      );
    },
  );
}

postgres.describe("in Postgres,", () => {
  const cases = [
    { mode: "replace", due: ["442", "50", "442"] },
    { mode: "upsert", due: ["442", "392+50", "442"] },
    { mode: "append", due: ["442", "442+50", "442+50+442"] },
  ] as const;

  test.each(torture ? cases : cases.filter(({ mode }) => mode === "upsert"))(
    "a reader that polls a table sees whole runs through holds, decisions, new runs and kills: $mode",
    async ({ mode, due }) => {
      await using database = await postgres.server().createDatabase();
      await using reader = await postgres.server().open(database.name);
      const key = mode === "append" ? {} : { key: ["id"] };
      const output = {
        parquet: undefined,
        postgres: { url: database.url, table: "scores.predictions", mode, ...key, timeouts: { lock: 1 } },
      };
      const look = (): Promise<Look> => lookInTable(reader, before);
      await readThroughDecisions(scratch.path, { output, look, due }, cases.findIndex((one) => one.mode === mode) + 3);
    },
    900_000,
  );
});
