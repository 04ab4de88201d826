import { readdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import { runCli, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { lakeWriter, missing, skipped } from "../support/lake-writers.js";
import { expectScored, writeLakeJob } from "../support/lakes.js";
import { randomOf } from "../support/random.js";
import { torture } from "../support/torture.js";

const columns = ["id", "x", "part"];
/** Of each worker. */
const mostKills = torture ? 4 : 2;

/** A table that another program changes all the time. */
interface Changing extends AsyncDisposable {
  readonly table: string;
  /** Ends the changes; returns the rows that the other program reads at the version that the file `pinned` names. */
  end(): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

async function changing(kind: string, folder: string): Promise<Changing> {
  const writer = lakeWriter("changing.py", [kind, folder]);
  return {
    table: await writer.line(),
    end: async () =>
      (JSON.parse(await writer.ask("")) as string[]).map((row) => JSON.parse(row) as Record<string, unknown>),
    [Symbol.asyncDispose]: () => writer[Symbol.asyncDispose](),
  };
}

async function planOf(out: string): Promise<Plan | undefined> {
  const names = await readdir(join(out, "_infer-batch"), { recursive: true });
  const name = names.find((path) => path.endsWith("plan.json"));
  const text = name === undefined ? undefined : await readFile(join(out, "_infer-batch", name), "utf8");
  return text === undefined ? undefined : (JSON.parse(planText(text)) as Plan);
}

/** The plan without its last line, a digest. */
function planText(text: string): string {
  return text.slice(0, text.lastIndexOf("}") + 1);
}

describe.skipIf(missing !== undefined)(
  `two workers, killed at random moments, score each row of the planned version once while a table goes on changing${skipped}`,
  () => {
    test.each(
      ["delta", "iceberg"].flatMap((kind) => Array.from({ length: torture ? 20 : 1 }, (_, seed) => ({ kind, seed }))),
    )(
      "$kind, seed $seed",
      async ({ kind, seed }) => {
        const random = randomOf(seed);
        await using lake = await changing(kind, scratch.path);
        const more = { commit_rows: 200, engine: { batch_size: 64 } };
        const spec = await writeLakeJob(scratch.path, { table: lake.table, columns, more });
        const out = join(scratch.path, "out");

        const work = async (worker: number): Promise<void> => {
          for (let kills = 0; ; kills += 1) {
            const ran = await runCli(["run", spec, "--worker", `${worker}/2`, "--no-progress"], {
              onStart(child) {
                if (kills < mostKills) {
                  setTimeout(() => child.kill("SIGKILL"), 400 + random() * 1200);
                }
              },
            });
            if (ran.signal === null) {
              expect(ran.code, ran.stderr).toBe(0);
              return;
            }
          }
        };
        // A clean-up keeps the version of the plan as soon as there is one.
        const watching = new AbortController();
        const pin = async (): Promise<void> => {
          while (!watching.signal.aborted) {
            const plan = await planOf(out).catch(() => undefined);
            if (plan !== undefined) {
              await writeFile(join(scratch.path, "pinned"), String(plan.input.table?.version));
              return;
            }
            await sleep(20);
          }
        };
        await Promise.all([pin(), work(0), work(1)]);
        watching.abort();

        const rows = await lake.end();
        expect(rows.length).toBeGreaterThan(3000);
        await expectScored(scratch.path, rows, columns);
      },
      120_000,
    );
  },
);

test.skipIf(missing !== undefined)(
  `a clean-up that removes files of the planned version ends the run with 66, until they are back${skipped}`,
  async () => {
    await using lake = await changing("delta", scratch.path);
    await writeFile(join(scratch.path, "pinned"), "6");
    const rows = await lake.end();
    const spec = await writeLakeJob(scratch.path, { table: lake.table, at: "6", columns, more: { commit_rows: 200 } });
    const first = await runCli(["run", spec, "--no-progress", "--log-level", "debug"], {
      onStderr(seen, child) {
        if (seen.includes("span 2 committed")) {
          child.kill("SIGKILL");
        }
      },
    });
    expect(first.signal, first.stderr).toBe("SIGKILL");
    const plan = await planOf(join(scratch.path, "out"));
    const [last] = plan?.input.shards.slice(-1) ?? [];
    const path = last?.uri ?? "";
    await rename(path, `${path}.gone`);

    const second = await runHere(["run", spec, "--no-progress"]);
    expect(second.code).toBe(66);
    expect(second.stderr).toContain("--new-run");

    await rename(`${path}.gone`, path);
    const third = await runHere(["run", spec, "--no-progress"]);
    expect(third.code, third.stderr).toBe(0);
    await expectScored(scratch.path, rows, columns);

    await rename(path, `${path}.gone`);
    await rename(join(lake.table, "_delta_log"), join(scratch.path, "log"));
    const fourth = await runHere(["run", spec, "--no-progress", "--json"]);
    expect(fourth.code, fourth.stderr).toBe(0);
    expect(fourth.stdout).toContain("already_complete");
  },
  120_000,
);
