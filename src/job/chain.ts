import { dirname, resolve } from "node:path";
import { type ChainPosition, type Log, silentLog } from "../flow/opened-job.js";
import { JobError, orError } from "../base/errors.js";
import { memoryBudget } from "../base/memory-budget.js";
import { sha256Of } from "../base/sha256.js";
import {
  lastLink,
  lastOrNone,
  linkAfter,
  linkOf,
  type LinkedRun,
  type NextRun,
  storeLink,
  type StoredLink,
  storePassed,
} from "../run/chain.js";
import { replacedBy } from "../run/lifecycle/published-run.js";
import { compareTargets } from "../run/plan/compare.js";
import { runIdOf } from "../run/plan/identity.js";
import type { Plan, RunId } from "../run/plan/plan.js";
import type { Ledger } from "../stores/ledger.js";
import type { RunSink, Sink } from "../targets/target.js";
import { attemptServices } from "./attempt.js";
import { runParam } from "./jobfile/job-spec.js";
import { type LoadedSpec, specOfRun } from "./jobfile/load.js";
import { openSink, type Permissions } from "./kinds.js";
import { minBudgetBytes } from "./machine.js";

/* Which run of a chain a command is about. Only the target knows, and where it is to be opened depends on the answer. */

/** How a command takes part in a run. */
export interface ChainAttempt extends Permissions {
  readonly newRun: boolean;
  /** Whether files that killed attempts of the last run left behind are removed. */
  readonly tidies: boolean;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** A spec of one run, and what that run reads. */
export interface RunOfChain {
  readonly loaded: LoadedSpec;
  /** undefined: the job has no `input.since`. */
  readonly chain: ChainPosition | undefined;
}

export const looking: ChainAttempt = {
  newRun: false,
  tidies: false,
  log: silentLog,
  signal: new AbortController().signal,
};

/** The spec of the last run of a chain, or of the run that `--param run` names; another spec as it is. */
export async function ofLastRun(loaded: LoadedSpec, specPath: string): Promise<LoadedSpec> {
  if (loaded.chain === undefined || loaded.chain.run !== undefined) {
    return loaded;
  }
  await using sink = await openTarget(loaded, specPath, looking);
  return specOfRun(loaded, (await lastLink(sink.ledger, idOf(loaded)))?.run ?? 1);
}

/**
 * The last run while it is open, else the next. @throws JobError USAGE for one not there, or that cannot begin again
 */
export async function ofNextRun(loaded: LoadedSpec, specPath: string, attempt: ChainAttempt): Promise<RunOfChain> {
  if (loaded.chain === undefined) {
    return { loaded, chain: undefined };
  }
  await using sink = await openTarget(wholeOf(loaded), specPath, attempt);
  const asked = loaded.chain.run;
  if (asked !== undefined) {
    const { run = 0 } = (await lastLink(sink.ledger, idOf(loaded))) ?? {};
    return await askedRun(loaded, specPath, attempt, { asked, sink, last: run });
  }
  const last = await lastOrNone(sink.ledger, idOf(loaded), () => requireUnused(loaded, sink));
  if (last === undefined) {
    return runOf(loaded, specPath, attempt, { run: 1, end: null, from: null, to: null });
  }
  const next = await runAfter(loaded, specPath, attempt, last, sink.ledger);
  if (next === undefined) {
    return runOf(loaded, specPath, attempt, { ...last, end: last.from });
  }
  if (attempt.newRun) {
    refuseTwice(loaded, sink, attempt, next);
    return runOf(loaded, specPath, attempt, { ...next, from: null });
  }
  return runOf(loaded, specPath, attempt, next);
}

/** The run that comes after another one, whose chain has this ledger; undefined: that one goes on. A damaged one does, too: `runJob` reports or replaces it. */
async function runAfter(
  loaded: LoadedSpec,
  specPath: string,
  attempt: ChainAttempt,
  last: StoredLink,
  ledger: Ledger,
): Promise<NextRun | undefined> {
  const own = specOfRun(wholeOf(loaded), last.run);
  await using sink = await openTarget(own, specPath, attempt);
  const whenOver = async (run: RunSink): Promise<void> => {
    if (run.state.kind !== "discarded" || last.from !== null) {
      requireHere(run.plan, sink, attempt); // else no row was published yet
    }
    if (attempt.tidies) {
      await run.finish(); // of an attempt that was killed after it was over
      const { storeDay } = await import("../run/day.js");
      await storeDay(ledger, idOf(loaded), last, { run, decisions: sink.ledger });
    }
  };
  const next = await orError(
    () => linkAfter(sink, baseOf(own), { last, whenOver }),
    ({ damage }) => damage !== undefined,
  );
  if (next === undefined && last.from !== null) {
    await requireRunBefore(loaded, specPath, attempt, last.run - 1); // no plan may say where the rows of this one come
  }
  return next instanceof JobError ? undefined : next;
}

async function requireRunBefore(
  loaded: LoadedSpec,
  specPath: string,
  attempt: ChainAttempt,
  run: number,
): Promise<void> {
  const own = specOfRun(wholeOf(loaded), run);
  await using sink = await openTarget(own, specPath, attempt);
  const stored = await sink.find(baseOf(own));
  if (stored !== undefined) {
    requireHere(stored.plan, sink, attempt);
  }
}

/** @throws JobError PLAN_CHANGED where the rows of a run are in another table than the next ones come */
function requireHere({ runId, job, target }: Plan, sink: Sink, { newRun }: ChainAttempt): void {
  const { place } = compareTargets(target, sink.planTarget);
  if (place !== undefined && !newRun) {
    throw new JobError("PLAN_CHANGED", `looking for the run after ${runId}: its rows are in ${place}`, {
      hint: `if another job is called ${job}, too, give this job another name, or each lacks the other's rows; a table that was renamed needs its name again; to score all rows into ${sink.target}, also those that it has: run --new-run (and, unless mode is upsert, --allow-duplicates)`,
    });
  }
}

/** The run that `--param run` names: it is continued, and never another one begun in its place once it is over. */
async function askedRun(
  loaded: LoadedSpec,
  specPath: string,
  attempt: ChainAttempt,
  { asked, sink, last }: { readonly asked: number; readonly sink: Sink; readonly last: number },
): Promise<RunOfChain> {
  const link = asked > last ? undefined : await linkOf(sink.ledger, idOf(loaded), asked);
  const doing = `looking for run ${asked} of ${loaded.spec.name}`;
  const hint = `leave --param ${runParam} out: the run that is due is found by itself`;
  if (link === undefined) {
    throw new JobError("USAGE", `${doing}: there are ${last}`, { hint });
  }
  if (attempt.newRun && (await runAfter(loaded, specPath, attempt, link, sink.ledger)) !== undefined) {
    throw new JobError("USAGE", `${doing}: it is over, and its rows would be scored a second time`, {
      hint: `${hint}; --new-run then scores the whole table, and wants --allow-duplicates unless mode is upsert`,
    });
  }
  return runOf(loaded, specPath, attempt, { ...link, end: link.from });
}

function runOf(loaded: LoadedSpec, specPath: string, attempt: ChainAttempt, link: NextRun): RunOfChain {
  const { run, end, from, to } = link;
  const whole: ChainPosition["whole"] = (sink) => {
    refuseTwice(loaded, sink, attempt, link);
    return {
      from: null,
      to: null,
      claim: (upTo) => Promise.resolve({ from: null, to: upTo }),
      pass: () => Promise.resolve(),
      planDay: () => Promise.resolve(undefined),
      readDay,
      whole,
    };
  };
  const atChain = async <T>(work: (ledger: Ledger, chain: RunId) => Promise<T>): Promise<T> => {
    await using sink = await openTarget(wholeOf(loaded), specPath, attempt);
    return await work(sink.ledger, idOf(loaded));
  };
  const readDay: ChainPosition["readDay"] = async (planned, own) => {
    const days = await import("../run/day.js");
    return await atChain((ledger, chain) => days.readDay(ledger, chain, planned, own));
  };
  return {
    loaded: loaded.chain?.run === run ? loaded : specOfRun(loaded, run),
    chain: {
      from,
      to,
      claim: (upTo, by) => atChain((ledger, chain) => storeLink(ledger, chain, { run, from, to: upTo }, by)),
      async pass(upTo) {
        if (from !== null && from !== upTo) {
          const before = specOfRun(wholeOf(loaded), run - 1);
          await using sink = await openTarget(before, specPath, attempt);
          await storePassed(sink.ledger, baseOf(before), { from: end, to: upTo });
        }
      },
      async planDay(at) {
        const days = await import("../run/day.js");
        const planned = { run, at, timeZone: loaded.spec.timezone };
        return from === null ? undefined : await atChain((ledger, chain) => days.planDay(ledger, chain, planned));
      },
      readDay,
      whole,
    },
  };
}

/** Refuses a run of all rows where those of earlier runs stay. @throws JobError USAGE */
function refuseTwice(
  { spec }: LoadedSpec,
  sink: Pick<Sink, "planTarget" | "target">,
  { allowDuplicates = false }: ChainAttempt,
  { from }: LinkedRun,
): void {
  if (from !== null && !allowDuplicates && replacedBy(sink.planTarget) !== "equal keys") {
    throw new JobError(
      "USAGE",
      `planning a run of all rows of ${spec.input.table ?? ""}: the rows of earlier runs stay in ${sink.target}, so most would be there twice`,
      {
        hint: "name another output, and another job: its first run scores all rows; mode upsert replaces them by their key; or accept each row twice, and add --allow-duplicates",
      },
    );
  }
}

/** Refuses an output that a run of the whole input has written to. @throws JobError USAGE, OUTPUT_FOREIGN */
async function requireUnused(loaded: LoadedSpec, sink: Sink): Promise<void> {
  const stored = await sink.find(idOf(loaded));
  if (stored !== undefined) {
    throw new JobError(
      "USAGE",
      `planning the first run of ${loaded.spec.name} with input.since: run ${stored.plan.runId} has scored the input before, and its rows may be in ${sink.target}`,
      { hint: "give the job another name and another output: its first run scores all rows" },
    );
  }
}

/** Refuses a command for runs that replace each other. @param hint what to do in its place @throws JobError USAGE */
export function refuseChain({ spec, chain }: LoadedSpec, act: string, hint: string): void {
  if (chain !== undefined) {
    throw new JobError("USAGE", `${act} runs of ${spec.name}: with input.since its runs stay beside each other`, {
      hint,
    });
  }
}

function wholeOf(loaded: LoadedSpec): LoadedSpec {
  return loaded.chain?.whole ?? loaded;
}

function baseOf({ spec: { name, params } }: LoadedSpec): RunId {
  return runIdOf(name, params, sha256Of);
}

function idOf({ spec: { name, params } }: LoadedSpec): RunId {
  const { [runParam]: _, ...own } = params;
  return runIdOf(name, own, sha256Of);
}

async function openTarget(loaded: LoadedSpec, specPath: string, attempt: ChainAttempt): Promise<Sink> {
  const { spec, outputPattern, variablesOf, where } = loaded;
  const services = attemptServices(spec, attempt.log, attempt.signal);
  const memory = memoryBudget(minBudgetBytes);
  const folder = dirname(resolve(specPath));
  return await openSink(spec, { folder, ...services, cores: 1, memory, attempt, outputPattern, variablesOf, where });
}
