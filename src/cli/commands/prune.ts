import { refuseChain } from "../../job/chain.js";
import { InvalidArgumentError } from "commander";
import { type CommandLine, paramFlag, countOf, jsonFlag, type CommandAnswer } from "../flags.js";
import { openLoaded } from "../../job/open.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import type { Retention } from "../../run/series/prune-choice.js";
import { paramTexts } from "../../run/plan/identity.js";
import { type Removed, nothingRemoved } from "../../run/lifecycle/pruned-run.js";
import { fitTable } from "../../report/table.js";
import { type PruneReport, type PrunedRun, type SeriesReport, pruneRuns } from "../../run/prune.js";
import { JobError, messageOf } from "../../base/errors.js";
import { showBytes, count } from "../../base/shown-numbers.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export const pruneCommand: CommandLine = {
  flags: {
    ...paramFlag,
    "--keep <count>": ["Number of latest published runs to keep", countOf(1_000_000)],
    "--older-than <age>": ["Prune runs whose date is further back, in days or weeks, such as 90d", daysOf],
    "--dry-run": "Show what would be removed, and remove nothing",
    ...jsonFlag,
  },
  conflicts: { keep: "olderThan" },
  examples: ["infer-batch prune job.yaml --keep 30 --dry-run", "infer-batch prune job.yaml --older-than 90d"],
  run: prune,
};

interface PruneOptions extends JobOptions {
  readonly keep?: number;
  /** Runs older than this many days are pruned. */
  readonly olderThan?: number;
  readonly dryRun?: boolean;
}

async function prune(spec: string, options: PruneOptions, io: SafeIo): Promise<CommandAnswer> {
  const retention = retentionOf(options, Date.now());
  const loaded = await readSpec(spec, options, { standIns: "dates" });
  refuseChain(
    loaded,
    "pruning",
    "each has rows of its own: remove old folders by their names, run=…, once no reader needs them",
  );
  await using opened = await openLoaded(loaded, spec, { log: createWarningLog(io.stderr) });
  const report = await pruneRuns(opened, { retention, dryRun: options.dryRun === true });
  const { name } = loaded.spec;
  return {
    json: () => ({ job: name, ...reportJson(report) }),
    text: (width) => reportText(report, width),
    error: report.failure,
  };
}

const dayMs = 86_400_000;

function retentionOf({ keep, olderThan }: PruneOptions, nowMs: number): Retention {
  if (keep !== undefined) {
    return { kind: "keep", count: keep };
  }
  if (olderThan === undefined) {
    throw new JobError("USAGE", "pruning: neither --keep nor --older-than says which runs are old", {
      hint: "--keep 30 keeps the 30 latest published runs; --older-than 90d those of the last 90 days; --dry-run shows first",
    });
  }
  return { kind: "from", date: new Date(nowMs - olderThan * dayMs).toISOString().slice(0, "2026-01-31".length) };
}

function ofBoth({ old, tables, second }: PruneReport): Pick<SeriesReport, "old" | "tables"> {
  return { old: [...old, ...(second?.old ?? [])], tables: [...tables, ...(second?.tables ?? [])] };
}

function totalsOf({ old, tables }: Pick<SeriesReport, "old" | "tables">): Removed {
  const previous = tables.map(({ name, bytes }) => ({ ...nothingRemoved, tables: [name], bytes }));
  return [...old.map(({ removed }) => removed), ...previous].reduce<Removed>(
    (sum, each) => ({
      files: sum.files + each.files,
      tables: [...sum.tables, ...each.tables],
      rejects: sum.rejects + each.rejects,
      profiles: sum.profiles + each.profiles,
      bytes: sum.bytes + each.bytes,
    }),
    nothingRemoved,
  );
}

function reportJson(report: PruneReport): object {
  const { dryRun, kept, second, failure } = report;
  const both = ofBoth(report);
  return {
    dry_run: dryRun,
    pruned: both.old.filter(({ retained }) => retained === undefined).length,
    retained: both.old.filter(({ retained }) => retained !== undefined).length,
    kept,
    challenger_kept: second?.kept ?? null,
    challenger_error: failure === undefined ? null : messageOf(failure),
    ...totalsOf(both),
    runs: both.old.map(runJson),
  };
}

function runJson({ runId, params, place, removed, retained }: PrunedRun): object {
  return { run_id: runId, params, output: place, retained: retained ?? null, ...removed };
}

function reportText(report: PruneReport, width: number | undefined): string[] {
  const { dryRun, kept, second, failure } = report;
  const both = ofBoth(report);
  const { old } = both;
  const headings = ["run", "params", dryRun ? "would be removed" : "removed"];
  const fit = { width, leaveOut: [headings.indexOf("params")], hasNotes: true };
  const lines = old.length === 0 ? [] : fitTable([headings, ...old.map(cellsOf)], fit);
  const removed = totalsOf(both);
  const pruned = old.filter(({ retained }) => retained === undefined).length;
  const stay = old.length - pruned;
  const total = [
    `${dryRun ? "would prune" : "pruned"} ${count(pruned, "run")}: ${removedText(removed)}`,
    ...(stay === 0 ? [] : [`${count(stay, "old run")} retained`]),
    `${count(kept, "run")} not old`,
    ...(second === undefined ? [] : [`of the challenger ${count(second.kept, "run")} not old`]),
    ...(failure === undefined ? [] : ["the challenger's predictions are not pruned"]),
  ];
  const dropped = removed.tables.map((name) => `  ${dryRun ? "would drop" : "dropped"} table ${name}`);
  return [...lines, ...dropped, total.join("; ")];
}

function cellsOf({ runId, params, removed, retained }: PrunedRun): string[] {
  const shown = paramTexts(params);
  return [runId, shown.join(" "), retained === undefined ? removedText(removed) : `nothing; ${retained}`];
}

function removedText({ files, tables, rejects, profiles, bytes }: Removed): string {
  const parts = [
    ...(files === 0 ? [] : [count(files, "file")]),
    ...(tables.length === 0 ? [] : [count(tables.length, "table")]),
    ...(rejects === 0 ? [] : [count(rejects, "rejected row")]),
    ...(profiles === 0 ? [] : [count(profiles, "profile")]),
  ];
  return parts.length === 0 ? "nothing" : `${parts.join(", ")} (${showBytes(bytes)})`;
}

/** In days. */
function daysOf(value: string): number {
  const [, number, unit] = /^(\d{1,5})([dw])$/.exec(value) ?? [];
  if (number === undefined) {
    throw new InvalidArgumentError("expected a number of days or weeks, such as 90d or 12w");
  }
  return Number(number) * (unit === "w" ? 7 : 1);
}
