import { spawn } from "node:child_process";
import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { beforeAll, describe, expect, test } from "vitest";
import { v8Flags } from "#src/start/v8-flags.js";
import { projectFolder } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { writeRows } from "../support/parquet.js";
import { shardFixture, shardJob } from "../support/shards.js";
import { torture } from "../support/torture.js";

/**
 * A shard is damaged in seeded ways (mutations.mjs) and its job carried out. `pinned`: damaged before the run is
 * planned. `full`: the same with `input.verify: full`. `later`: damaged after that plan was made, its size and time
 * kept where the damage allows.
 */
type Mode = "pinned" | "full" | "later";

interface Outcome {
  readonly seed: number;
  readonly shard: string;
  readonly mode: Mode;
  /** What was done to bytes [from, to). */
  readonly kind: string;
  readonly from: number;
  readonly to: number;
  /** Whether footer and page headers are as they were. */
  readonly inPage: boolean;
  /** Whether the damage left the file as it was. */
  readonly same: boolean;
  readonly code: number;
  /** Of a refusal, its message; of a finished run, what is wrong with its rows. */
  readonly said?: string;
  readonly peakMb: number;
}

interface Batch {
  readonly shard: string;
  readonly mode: Mode;
  readonly seeds: readonly number[];
}

const mutations = torture ? 5000 : 100;
const seedsOfChild = 150;
/** Of those that came through unseen, so many are damaged again after their plan. */
const laterSeeds = 50;
const childrenAtOnce = 2;
/** A mutation takes well under a second of work: what is not done by then hangs, however busy the machine is. */
const hangMs = 120_000;
const startMs = 120_000;
const memoryMb = 600;

/** What a share of the mutations is done to. DuckDB's own writer joins in, without checksums. */
async function plan(duckdb: string): Promise<Batch[]> {
  const shares = [
    { shard: shardFixture("plain"), mode: "pinned", share: 0.3 },
    { shard: duckdb, mode: "pinned", share: 0.2 },
    { shard: shardFixture("checked"), mode: "full", share: 0.25 },
    { shard: shardFixture("checked-v2"), mode: "full", share: 0.25 },
  ] as const;
  const batches: Batch[] = [];
  let seed = 1;
  for (const { shard, mode, share } of shares) {
    const end = seed + Math.round(mutations * share);
    for (; seed < end; seed += seedsOfChild) {
      batches.push({ shard, mode, seeds: numbers(seed, Math.min(end, seed + seedsOfChild)) });
    }
    seed = end;
  }
  return batches;
}

const numbers = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, index) => from + index);

async function carryOut(batches: readonly Batch[]): Promise<Outcome[]> {
  const queue = [...batches];
  const outcomes: Outcome[] = [];
  const worker = async (): Promise<void> => {
    for (let batch = queue.shift(); batch !== undefined; batch = queue.shift()) {
      outcomes.push(...(await runChild(batch)));
    }
  };
  await Promise.all(Array.from({ length: childrenAtOnce }, worker));
  return outcomes;
}

async function runChild(batch: Batch): Promise<Outcome[]> {
  await using scratch = await scratchFolder();
  for (const verify of ["pinned", "full"]) {
    const folder = join(scratch.path, verify);
    await mkdir(folder);
    const { spec } = await shardJob(folder, {}, { input: { verify }, engine: { threads: 1 }, commit_rows: 500 });
    await rename(spec, join(scratch.path, `${verify}.yaml`));
    await rename(join(folder, "model.onnx"), join(scratch.path, "model.onnx"));
  }
  const argument = JSON.stringify({ folder: scratch.path, ...batch });
  const child = spawn(process.execPath, [...v8Flags, join(projectFolder, "test/fuzz/child.mjs"), argument], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const kill = (): void => {
    child.kill("SIGKILL");
  };
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const ended = new Promise<string>((resolve) => {
    child.once("close", (code, signal) => {
      resolve(signal ?? `exit ${code}`);
    });
  });
  const outcomes: Outcome[] = [];
  let under = "its first run, of the good shard,";
  let alarm = setTimeout(kill, startMs);
  for await (const line of createInterface({ input: child.stdout })) {
    clearTimeout(alarm);
    alarm = setTimeout(kill, hangMs);
    const told = JSON.parse(line) as Outcome | { readonly starts: number };
    if ("starts" in told) {
      under = `seed ${told.starts} (${batch.mode} ${batch.shard})`;
    } else {
      outcomes.push(told);
    }
  }
  const end = await ended;
  clearTimeout(alarm);
  if (end !== "exit 0") {
    throw new Error(`${under} ended its process with ${end} (SIGKILL: nothing was heard of it in time)\n${stderr}`);
  }
  return outcomes;
}

const fine = ({ code, said, inPage, mode }: Outcome): boolean =>
  code === 65 || code === 64 || (code === 0 && (said === undefined || (inPage && mode === "pinned")));
const wrongRows = ({ code, said }: Outcome): boolean => code === 0 && said !== undefined;
/** What a test shows of outcomes that should not be. */
const shown = (outcomes: readonly Outcome[]): string[] =>
  outcomes.map(({ seed, shard, mode, kind, from, to, code, said }) =>
    [`seed ${seed} (${mode} ${shard}): ${kind} [${from}, ${to}) ->`, code, said].join(" "),
  );

describe("a shard with damaged bytes", () => {
  let outcomes: readonly Outcome[] = [];
  let later: readonly Outcome[] = [];

  beforeAll(
    async () => {
      await using scratch = await scratchFolder();
      const duckdb = join(scratch.path, "duckdb.parquet");
      await writeRows(
        duckdb,
        `SELECT id, x, k, s, l FROM '${shardFixture("plain")}' UNION ALL
         SELECT id + 1200, x / 3, k, s, l FROM '${shardFixture("plain")}'`,
        "ROW_GROUP_SIZE 2048",
      );
      outcomes = await carryOut(await plan(duckdb));
      // The same damage again to those that came through unseen, now after a plan with digests.
      const unseen = outcomes.filter(wrongRows).filter(({ shard }) => shard !== duckdb);
      const seeds = unseen.map(({ seed }) => seed).slice(0, laterSeeds);
      later = await carryOut([{ shard: shardFixture("plain"), mode: "later", seeds }]);
    },
    torture ? 3_600_000 : 600_000,
  );

  test("a shard with damaged bytes is refused or gives the right rows, except for values that changed inside a page without checksum", () => {
    expect(outcomes.length).toBe(mutations);
    expect(shown(outcomes.filter((outcome) => !fine(outcome)))).toEqual([]);
  });

  test("a shard with damaged bytes is never scored wrongly where pages have checksums and input.verify is full", () => {
    const verified = outcomes.filter(({ mode }) => mode === "full");
    expect(verified.length).toBe(mutations / 2);
    expect(shown(verified.filter(wrongRows))).toEqual([]);
    // It also goes through: bytes that hold nothing are not worth a refusal.
    expect(verified.filter(({ code, same }) => code === 0 && !same).length).toBeGreaterThan(0);
  });

  test("a shard with damaged bytes may silently give other values without verify: full", () => {
    const unseen = outcomes.filter(wrongRows);
    expect(unseen.length).toBeGreaterThan(mutations / 100);
    expect(unseen.length).toBeLessThan(mutations / 5);
    expect(later.length).toBeGreaterThan(0);
    expect(shown(later.filter(({ code }) => code !== 66))).toEqual([]);
  });

  test(`takes no more than ${memoryMb} MB`, () => {
    expect(Math.max(...outcomes.map(({ peakMb }) => peakMb))).toBeLessThan(memoryMb);
  });

  test("a shard with damaged bytes is mostly refused with 65; 64 only where the footer lost a column that the job names", () => {
    const refused = outcomes.filter(({ code }) => code !== 0);
    expect(refused.filter(({ code }) => code === 65).length).toBeGreaterThan(mutations / 2);
    expect(shown(refused.filter(({ code, said }) => code === 64 && said?.startsWith("CONTRACT: ") !== true))).toEqual(
      [],
    );
  });
});
