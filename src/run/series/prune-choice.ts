import { isDateText, splitRunId } from "../plan/identity.js";
import type { Plan, RunId } from "../plan/plan.js";
import type { PreviousTable } from "../lifecycle/pruned-run.js";
import { logicalDateOf } from "../lifecycle/published-run.js";
import { isInFrontOfReaders, type RecordedRun } from "../lifecycle/recorded-run.js";

/** Which runs of a series are old: those before its `count` latest published ones, or those for a date before one. */
export type Retention =
  | { readonly kind: "keep"; readonly count: number }
  /** "2026-01-31" */
  | { readonly kind: "from"; readonly date: string };

/** All runs of a job with the same params. They share a folder, and are pruned together. */
export interface RunGroup {
  /** The last run first. */
  readonly runs: readonly RecordedRun[];
  readonly latest: RecordedRun;
}

/** What becomes of the runs of some params. */
export type GroupChoice =
  /** `again`: they were pruned before, perhaps not to the end. */
  | { readonly kind: "prune"; readonly group: RunGroup; readonly again: boolean }
  /** They are not old. */
  | { readonly kind: "keep"; readonly group: RunGroup }
  /** They are old, and stay for a reason. */
  | { readonly kind: "retain"; readonly group: RunGroup; readonly why: string };

/** Groups runs by their params, those of the latest date first. A run that is damaged belongs to the others of its params. */
export function groupRuns(runs: readonly RecordedRun[]): RunGroup[] {
  const byBase = new Map<string, RecordedRun[]>();
  for (const run of runs) {
    const key = `${run.place}\n${splitRunId(run.runId).base}`;
    byBase.set(key, [...(byBase.get(key) ?? []), run]);
  }
  return [...byBase.values()]
    .map((all) => all.toSorted((one, other) => splitRunId(other.runId).number - splitRunId(one.runId).number))
    .flatMap(([latest, ...others]) => (latest === undefined ? [] : [{ latest, runs: [latest, ...others] }]))
    .toSorted((one, other) => (orderOf(one) < orderOf(other) ? 1 : -1));
}

/** The plan of a group: params and date are the same in all of its runs. */
export function planOf({ runs }: RunGroup): Plan | undefined {
  return runs.find(({ plan }) => plan !== undefined)?.plan;
}

/** A text by which groups of one series sort as their dates do. */
function orderOf(group: RunGroup): string {
  const plan = planOf(group);
  const dates = Object.entries(plan?.params ?? {})
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([, value]) => value)
    .filter(isDateText);
  return [(plan && logicalDateOf(plan)) ?? "", ...dates].join(" ");
}

/** The date by which a group is old: that of its params, else the day on which it got its status; null: unknown. */
function dateOf(group: RunGroup): string | null {
  const plan = planOf(group);
  const given = Object.values(plan?.params ?? {}).filter(
    (value) => /^\d{4}-\d{2}-\d{2}/.test(value) && isDateText(value),
  );
  const date = (plan && logicalDateOf(plan)) ?? given.toSorted().at(-1) ?? group.latest.at;
  return date === null ? null : date.slice(0, "2026-01-31".length);
}

const openStatuses: Readonly<Partial<Record<RecordedRun["status"], string>>> = {
  unfinished: "it is not finished",
  failed: "it is not finished",
  approved: "it is being published",
  held: "its checks hold it",
  superseded: "the run that takes its place is not planned yet",
  damaged: "its plan is damaged",
};

const isUnfinished = ({ latest: { status } }: RunGroup): boolean => status === "unfinished" || status === "failed";

const isPublished = ({ runs }: RunGroup): boolean => runs.some(isInFrontOfReaders);

interface ChoiceOptions {
  /** The runs whose profiles open runs are compared with. */
  readonly pins: ReadonlyMap<string, RunId>;
  /** Whether no attempt will complete an unfinished group, which then counts as published. Default: an attempt may. */
  readonly isOver?: (group: RunGroup) => boolean;
}

/**
 * Chooses which groups of a series are pruned; `groups` are sorted with the latest first. Never chosen: the latest
 * published one, one that is open, and one whose profile an open run is compared with.
 */
export function choosePruned(
  groups: readonly RunGroup[],
  retention: Retention,
  { pins, isOver = () => false }: ChoiceOptions,
): GroupChoice[] {
  const choices: GroupChoice[] = [];
  let [ended, published] = [0, 0];
  for (const group of groups) {
    const isOld = retention.kind === "keep" ? ended >= retention.count : isBefore(group, retention.date);
    const isLatest = isPublished(group) && published === 0;
    const isLeft = isUnfinished(group) && isOver(group);
    published += isPublished(group) ? 1 : 0;
    ended += isPublished(group) || isLeft ? 1 : 0;
    if (group.latest.status === "pruned") {
      choices.push({ kind: "prune", group, again: true });
    } else if (!isOld) {
      choices.push({ kind: "keep", group });
    } else {
      const why = isLatest
        ? "it is the latest published run"
        : ((isLeft ? undefined : openStatuses[group.latest.status]) ?? pinOf(group, pins));
      choices.push(why === undefined ? { kind: "prune", group, again: false } : { kind: "retain", group, why });
    }
  }
  return choices;
}

/** Makes a function that says whether the run of `groups` with some params is over. */
export function overParams(groups: readonly RunGroup[]): (params: Plan["params"]) => boolean {
  const over = groups.filter(({ latest }) => openStatuses[latest.status] === undefined);
  const keys = new Set(over.map((group) => paramsKey(planOf(group)?.params ?? {})));
  return (params) => keys.has(paramsKey(params));
}

function paramsKey(params: Plan["params"]): string {
  return JSON.stringify(Object.entries(params).toSorted(([one], [other]) => (one < other ? -1 : 1)));
}

function isBefore(group: RunGroup, first: string): boolean {
  const date = dateOf(group);
  return date !== null && date < first;
}

function pinOf({ runs }: RunGroup, pins: ReadonlyMap<string, RunId>): string | undefined {
  const by = runs.map(({ runId }) => pins.get(runId)).find((run) => run !== undefined);
  return by === undefined ? undefined : `the checks of run ${by} compare with it`;
}

/** The runs whose profiles open runs are compared with, each with one of these open runs. */
export function pinnedRuns(groups: readonly RunGroup[]): Map<string, RunId> {
  const open = groups.map(({ latest }) => latest).filter(({ status }) => openStatuses[status] !== undefined);
  return new Map(open.flatMap(({ plan }) => (plan === undefined ? [] : pinsOf(plan).map((run) => [run, plan.runId]))));
}

/** The runs whose profiles a run is compared with. */
export function pinsOf({ checks }: Pick<Plan, "checks">): string[] {
  const { baseline = [] } = checks ?? {};
  return baseline.map(({ runId }) => runId);
}

/**
 * Chooses the previous tables to drop; `tables` are sorted with the newest first. Of `keep` runs one is in the target
 * itself, and those that were rolled back do not count. A table with rows that no run of the series wrote stays.
 */
export function choosePrevious(
  tables: readonly PreviousTable[],
  retention: Retention,
  groups: readonly RunGroup[],
): PreviousTable[] {
  const ofRun = new Map(groups.flatMap((group) => group.runs.map((run) => [run.runId, { group, run }])));
  const own = tables.flatMap((table) => {
    const found = table.runId === undefined ? undefined : ofRun.get(table.runId);
    return found === undefined ? [] : [{ table, ...found }];
  });
  let kept = 1;
  const old = own.filter(({ group, run }) => {
    if (retention.kind === "from") {
      return isBefore(group, retention.date);
    }
    const isOld = kept >= retention.count;
    kept += run.rolledBack === true ? 0 : 1;
    return isOld;
  });
  return old.map(({ table }) => table);
}
