import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { type CliOptions, type CliResult, projectFolder, runHere } from "./cli.js";
import { type SpecOverrides, writeSpec } from "./job.js";
import { writeRows } from "./parquet.js";
import { fixtureNamed } from "./world.js";

/** The range of all tests: five days. */
export const days = ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05"] as const;
export type Day = (typeof days)[number];

/** A job with an input folder a day: all have the same 442 rows. */
export interface DailyJob {
  readonly spec: string;
  readonly folder: string;
  arrive(day: Day): Promise<void>;
  /** Puts rows there, one of which cannot be scored: the run is planned, and fails. */
  damage(day: Day): Promise<void>;
  backfill(...options: string[]): Promise<CliResult>;
  args(...options: string[]): string[];
  /** The folder of a day's predictions. */
  out(day: Day): string;
}

const table = join(projectFolder, "fixtures/data/diabetes");

/** Writes the spec, and the input of all days but the last two, which tests put there as they need it. */
export async function dailyJob(
  folder: string,
  overrides: SpecOverrides = {},
  env: CliOptions["env"] = {},
): Promise<DailyJob> {
  const { output, input, ...rest } = overrides;
  const spec = await writeSpec(folder, fixtureNamed("diabetes-mlp"), {
    name: "daily",
    params: { ds: "${today}" },
    commit_rows: 200,
    input: { path: "in/dt=${ds}/*.parquet", ...input },
    output: { parquet: { path: "out/dt=${ds}" }, ...output },
    ...rest,
  });
  const arrive = async (day: Day): Promise<void> => {
    await rm(join(folder, "in", `dt=${day}`), { recursive: true, force: true });
    await cp(table, join(folder, "in", `dt=${day}`), { recursive: true });
  };
  for (const day of days.slice(0, 3)) {
    await arrive(day);
  }
  const args = (...options: string[]): string[] => [
    "backfill",
    spec,
    "--param",
    `ds=${days[0]}..${days.at(-1)}`,
    ...options,
  ];
  return {
    spec,
    folder,
    arrive,
    async damage(day) {
      await arrive(day);
      const rows = `SELECT * REPLACE (nullif(age, min(age) OVER ()) AS age) FROM '${join(table, "part-00000.parquet")}'`;
      await writeRows(join(folder, "in", `dt=${day}`, "part-00000.parquet"), rows);
    },
    args,
    backfill: (...options) => runHere(args(...options), { env }),
    out: (day) => join(folder, "out", `dt=${day}`),
  };
}

/** The lines of `--json`: a run each, by value; the last is the whole backfill. */
export function backfillLines({ stdout }: CliResult): {
  readonly runs: Readonly<Record<string, Record<string, unknown>>>;
  readonly all: Record<string, unknown>;
} {
  const lines = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  const all = lines.at(-1) ?? {};
  return { runs: Object.fromEntries(lines.slice(0, -1).map((run) => [String(run["value"]), run])), all };
}

export function statusesOf(result: CliResult): Record<string, unknown> {
  const { runs } = backfillLines(result);
  return Object.fromEntries(Object.entries(runs).map(([value, run]) => [value.slice(-2), run["status"]]));
}
