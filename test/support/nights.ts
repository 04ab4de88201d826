import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { cp, mkdtemp, readFile, rename } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect } from "vitest";
import { type CliResult, expectEnd, runHere } from "./cli.js";
import type { SpecOverrides } from "./job.js";
import { writeSpec } from "./job.js";
import { outputRows } from "./output.js";
import type { Database } from "./pg-database.js";
import { fixtureNamed } from "./world.js";

/** A job with a run a night, in folders of their own below `out`. */
export interface Nights {
  readonly spec: string;
  /** Runs a command for a night: `run`, `approve`, `discard` or `status`. */
  night(command: string, date: string, ...args: string[]): Promise<CliResult>;
  folder(date: string): string;
  rewrite(overrides: SpecOverrides): Promise<void>;
  /** What makes the same job in another folder; undefined where it writes outside of its folder. */
  readonly again: { readonly overrides: SpecOverrides; readonly name: string } | undefined;
}

/** An expression that leaves 50 of the 442 rows: fewer than a quarter, which the checks always hold. */
export const fewRows = { input: { where: "id < 50" } };

/** Writes the spec of a job that scores the same table every night, with checks unless `overrides` say otherwise. */
export async function nightlyJob(
  folder: string,
  overrides: SpecOverrides = {},
  name = "diabetes-mlp",
): Promise<Nights> {
  const fixture = fixtureNamed(name);
  const rewrite = async (changed: SpecOverrides): Promise<void> => {
    const { output, ...rest } = { ...overrides, ...changed };
    await writeSpec(folder, fixture, {
      params: { ds: "${today}" },
      commit_rows: 100,
      checks: {},
      ...rest,
      output: { parquet: { path: "out/dt=${ds}" }, ...output },
    });
  };
  await rewrite({});
  const spec = join(folder, "job.yaml");
  const isOwn = overrides.output === undefined && overrides["report"] === undefined;
  return {
    spec,
    night: (command, date, ...args) => runHere([command, spec, "--param", `ds=${date}`, ...args]),
    folder: (date) => join(folder, "out", `dt=${date}`),
    rewrite,
    again: isOwn ? { overrides, name } : undefined,
  };
}

/** The same into `scores.predictions`; `id` is its key, except in mode append. */
export async function nightsInTable(
  folder: string,
  { url }: Pick<Database, "url">,
  mode: string,
  { output, ...overrides }: SpecOverrides = {},
): Promise<Nights> {
  const key = mode === "append" ? [] : ["id"];
  const postgres = { url, table: "scores.predictions", mode, key, timeouts: { lock: 1 } };
  return await nightlyJob(folder, { ...overrides, output: { parquet: undefined, postgres, ...output } });
}

/** Publishes a night and holds the next; returns its run id. Of jobs alike on a disk it is done once, and copied. */
export async function heldNight(nights: Nights): Promise<string> {
  const { again } = nights;
  const folder = dirname(nights.spec);
  if (again === undefined || JSON.stringify(again).includes(folder) || existsSync(join(folder, "out"))) {
    return await holdNight(nights);
  }
  const digest = createHash("sha256").update(JSON.stringify(again)).digest("hex").slice(0, 12);
  const template = join(tmpdir(), `held-night-${digest}`);
  if (!existsSync(template)) {
    const making = await mkdtemp(`${template}-`);
    await holdNight(await nightlyJob(making, again.overrides, again.name));
    await rename(making, template).catch(() => undefined); // another process has made it meanwhile
  }
  await cp(join(template, "out"), join(folder, "out"), { recursive: true, preserveTimestamps: true });
  await nights.rewrite(fewRows);
  const status = await expectEnd(nights.night("status", "2026-11-21", "--json"), 0);
  return String(lastJson(status)["run_id"]);
}

async function holdNight(nights: Nights): Promise<string> {
  await expectEnd(nights.night("run", "2026-11-20", "--json"), 0);
  await nights.rewrite(fewRows);
  const held = await expectEnd(nights.night("run", "2026-11-21", "--json"), 67);
  expect(lastJson(held)).toMatchObject({ status: "held" });
  return String(lastJson(held)["run_id"]);
}

export function lastJson({ stdout }: CliResult): Record<string, unknown> {
  return JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "") as Record<string, unknown>;
}

/** The run that `_SUCCESS` of a folder names; undefined: there is none. */
export async function publishedRun(folder: string): Promise<string | undefined> {
  const text = await readFile(join(folder, "_SUCCESS"), "utf8").catch(() => undefined);
  return text === undefined ? undefined : (JSON.parse(text) as { run_id: string }).run_id;
}

/** One night of a job, which may lie in a copy of the folder that it was made in. */
export interface Night {
  readonly out: string;
  args(command: string, ...more: string[]): string[];
  run(command: string, ...more: string[]): Promise<CliResult>;
}

export function nightAt(folder: string, date: string): Night {
  const args = (command: string, ...more: string[]): string[] => [
    command,
    join(folder, "job.yaml"),
    "--param",
    `ds=${date}`,
    ...more,
  ];
  return { out: join(folder, "out", `dt=${date}`), args, run: (...command) => runHere(args(...command)) };
}

/** What a reader finds who follows `_SUCCESS`: all 442 rows of a normal run, the 50 of one with `fewRows`, or nothing. */
export type NightSeen = "old" | "new" | "nothing" | { readonly ids: number };

/** Reads as readers are told to: `_SUCCESS`, all parts, `_SUCCESS` again. */
export async function seenBy(out: string): Promise<NightSeen> {
  const before = await publishedRun(out);
  const rows = before === undefined ? [] : await outputRows(out).catch(() => []);
  if (before === undefined || (await publishedRun(out)) !== before) {
    return "nothing";
  }
  const ids = new Set(rows.map(({ id }) => Number(id))).size;
  return rows.length === ids && ids === 442 ? "old" : rows.length === ids && ids === 50 ? "new" : { ids };
}
