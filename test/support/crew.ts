import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { CliResult, RunningCli } from "./cli.js";
import { randomOf } from "./random.js";
import { torture } from "./torture.js";

const workers = 4;
/** Of all workers together; then they are left alone. */
const kills = torture ? 20 : 2;

interface Running {
  child: RunningCli | undefined;
  attempts: number;
  readonly statuses: string[];
}

export interface Crew {
  /** Runs the command with these arguments more, `--json` among them. */
  readonly run: (args: readonly string[], onStart: (child: RunningCli) => void) => Promise<CliResult>;
  /** Spans that are committed: no process is killed before there are more than at the last kill. */
  readonly countSpans: () => Promise<number>;
  /** After each kill. */
  readonly inspect: () => Promise<void>;
}

/** Milliseconds that work goes on before a kill. */
const [leastMs, mostMs] = torture ? [2500, 3500] : [50, 450];

/**
 * Has four processes work on one run, and again and again kills one of them at random, which is started again.
 * All must end well. Returns what those that were not killed said of the run.
 */
export async function outliveKills({ run, countSpans, inspect }: Crew): Promise<string[]> {
  const random = randomOf(Date.now());
  const running = Array.from({ length: workers }, (): Running => ({ child: undefined, attempts: 0, statuses: [] }));
  const ends = { count: 0 };
  const working = running.map((state, index) =>
    keepWorking(run, index, state).finally(() => {
      ends.count += 1;
    }),
  );

  let killed = 0;
  for (let spans = 0; killed < kills; spans = await countSpans()) {
    while (ends.count < workers && (await countSpans()) === spans) {
      await sleep(20);
    }
    if (ends.count === workers) {
      break;
    }
    await sleep(leastMs + random() * (mostMs - leastMs));
    const victims = running.filter(({ child }) => child !== undefined);
    killed += victims[Math.floor(random() * victims.length)]?.child?.kill("SIGKILL") === true ? 1 : 0;
    await inspect();
  }
  await Promise.all(working);

  const attempts = running.reduce((sum, state) => sum + state.attempts, 0);
  console.info(`${killed} kills, ${attempts} attempts`);
  expect(killed, "kills while there was work").toBeGreaterThan(kills / 4);
  return running.flatMap(({ statuses }) => statuses);
}

/** Starts one worker again and again until its share is done. */
async function keepWorking(run: Crew["run"], index: number, state: Running): Promise<void> {
  for (;;) {
    state.attempts += 1;
    const { code, signal, stdout, stderr } = await run(["--worker", `${index}/${workers}`, "--json"], (child) => {
      state.child = child;
    });
    state.child = undefined;
    if (signal !== "SIGKILL") {
      expect(code, stderr).toBe(0);
      state.statuses.push((JSON.parse(stdout.trimEnd()) as { status: string }).status);
      return;
    }
  }
}
