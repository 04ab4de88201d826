import { type SpanProfile, mergeProfiles, noRows, parseProfile } from "#src/checks/profile/profile.js";
import { valueAt } from "#src/checks/golden-rows.js";
import type { KeyCounts } from "#src/checks/rules/spec.js";
import type { OutputRows, SpanOutput } from "#src/columns/types.js";
import { numberedRunId, splitRunId } from "#src/run/plan/identity.js";
import { parsePlan, planToText } from "#src/run/plan/parse-plan.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import { spanCount } from "#src/run/plan/spans.js";
import { type AttemptFacts, type RowsOfRun, type SpanRecord, countSpans } from "#src/run/lifecycle/span-record.js";
import {
  type Decision,
  type RunState,
  type SupersededRun,
  requireApproved,
  stateOf,
} from "#src/run/lifecycle/lifecycle.js";
import { runProfileOf, runProfileText } from "#src/run/lifecycle/profile-text.js";
import { type PruneOutcome, type PruneRequest, nothingRemoved, requireKept } from "#src/run/lifecycle/pruned-run.js";
import type { PublishedRun } from "#src/run/lifecycle/published-run.js";
import {
  type RecordedRun,
  asPruned,
  countsOf,
  isUnfinished,
  recordedRun,
  recordedSpending,
} from "#src/run/lifecycle/recorded-run.js";
import type { LoggedAnswer } from "#src/stores/ledger.js";
import type { AttemptJson, RunSink, RunWriter, Sink, StoredPlan } from "#src/targets/target.js";
import { JobError } from "#src/base/errors.js";
import { sha256Of } from "#src/base/sha256.js";
import * as documents from "#src/stores/ledger.js";

/** Rows of a span, those that came before their commit first. */
interface CommittedSpan extends SpanRecord, Pick<SpanOutput, "rejects" | "profile"> {
  readonly pieces: readonly OutputRows[];
}

/** A planned run; or a tombstone, whose number no run can take, and whose plan is that of the pruned run. */
interface StoredRun {
  readonly runId: RunId;
  readonly stored: StoredPlan;
  readonly spans: Map<number, CommittedSpan>;
  readonly answers: LoggedAnswer[];
  /** The last step of a run. Of a run that was replaced it stays, without spans. */
  published?: {
    readonly at: string;
    readonly rows: RowsOfRun;
    readonly profile: string;
    readonly decision: Decision | undefined;
    readonly attempt: AttemptJson | undefined;
  };
}

/**
 * A target in memory that keeps all promises of `targets/target.ts`, with what all targets offer; a new target starts from it.
 * No function here waits, so that each is one atomic act: where targets need transactions, or files that appear whole.
 * `open` opens the target for an attempt; `rows` are those that readers find; `journals` are the runs with answers.
 */
export function memoryTarget() {
  const runs = new Map<RunId, StoredRun>();
  const ledger = memoryLedger();
  let attempts = 0;

  // Who is first: runs of the same params are planned in the order of their numbers, and a later one stops the others.

  const sameParams = (runId: RunId): StoredRun[] =>
    [...runs.values()].filter((run) => splitRunId(run.runId).base === splitRunId(runId).base);

  const laterThan = (runId: RunId): StoredRun[] =>
    sameParams(runId).filter((run) => splitRunId(run.runId).number > splitRunId(runId).number);

  const earlierThan = (runId: RunId): StoredRun[] =>
    sameParams(runId).filter((run) => splitRunId(run.runId).number < splitRunId(runId).number);

  const latestRuns = (): StoredRun[] => [...runs.values()].filter(({ runId }) => laterThan(runId).length === 0);

  const decisionOn = ({ runId, stored }: StoredRun): Decision | undefined =>
    stored.plan.staged ? ledger.look(runId, documents.decisionDocument) : undefined;

  const refuseStopped = (run: StoredRun): void => {
    const [later] = laterThan(run.runId);
    if (later !== undefined || run.stored.pruned !== undefined) {
      throw new JobError("PLAN_CHANGED", `checking run ${run.runId}: run ${later?.runId ?? "of prune"} came after it`);
    }
    const decision = decisionOn(run);
    if (decision !== undefined) {
      requireApproved(decision, run.runId);
    }
  };

  const createPlan = (plan: Plan, insteadOf?: SupersededRun): StoredPlan => {
    const text = planToText(plan);
    const stored: StoredPlan = { plan: parsePlan(text) ?? plan, planId: sha256Of(text) };
    const run = runs.get(plan.runId) ?? { runId: plan.runId, stored, spans: new Map(), answers: [] };
    refuseStopped(run);
    const held = insteadOf && runs.get(insteadOf.runId);
    if (held && ledger.createNow(held.runId, documents.decisionDocument, insteadOf.decision).kind === "approved") {
      return held.stored;
    }
    runs.set(plan.runId, run);
    return run.stored;
  };

  // A run: what an attempt knows of it, and what it writes.

  const stateNow = (run: StoredRun): RunState =>
    stateOf({
      published: run.published !== undefined,
      staged: run.stored.plan.staged,
      isErasure: run.stored.plan.erasure !== undefined,
      verdict: ledger.look(run.runId, documents.verdictDocument),
      decision: decisionOn(run),
    });

  const openRun = (run: StoredRun, writer: string): RunSink => {
    const known = new Map(run.spans);
    const see = (spans: Iterable<readonly [number, CommittedSpan]>): void => {
      for (const [index, span] of spans) {
        known.set(index, span);
      }
    };
    return {
      ...run.stored,
      state: stateNow(run),
      spans: known,
      refresh: async () => see(run.spans),
      async *rejects() {
        yield* [...known].toSorted(([a], [b]) => a - b).flatMap(([, { rejects }]) => rejects);
      },
      async read() {
        throw new JobError("USAGE", `reading the rows of run ${run.runId}: they are in memory`);
      },
      answers: () => ({
        pauseMs: 0,
        async *read() {
          yield* run.answers;
        },
        async keep(answers) {
          refuseStopped(run);
          run.answers.push(...answers);
        },
      }),
      profile: async () => mergedProfile(run.spans),
      countKeys: async (columns) => countKeys(piecesOf(run), columns),
      async begin(attempt) {
        refuseStopped(run);
        return openWriter(run, { ...attempt, writer }, see);
      },
      async finish(json) {
        const isDiscarded = decisionOn(run)?.kind === "discarded";
        if (isDiscarded) {
          clearUp(run);
        } else {
          finish(run, json);
        }
        return isDiscarded ? "discarded" : "published";
      },
    };
  };

  const openWriter = (
    run: StoredRun,
    attempt: AttemptFacts & { readonly writer: string },
    see: (spans: readonly (readonly [number, CommittedSpan])[]) => void,
  ): RunWriter => {
    const spilled = new Map<number, OutputRows[]>();
    return {
      unfit: async () => [],
      async spill({ index }, rows) {
        spilled.set(index, [...(spilled.get(index) ?? []), rows]);
      },
      async commit({ index, rowStart, rowEnd }, { rows: last, onEncoded, batchSize, erased = 0, ...output }) {
        const pieces = [...(spilled.get(index) ?? []), last];
        const rows = pieces.reduce((sum, { rowCount }) => sum + rowCount, 0);
        const rejected = output.rejects.length;
        const span = { ...output, pieces, rows, rejected, maker: { ...attempt, batchSize } };
        if (rows + rejected + output.filtered + erased !== rowEnd - rowStart) {
          throw new Error(`span ${index} has other rows than are committed`);
        }
        spilled.delete(index);
        onEncoded?.();
        const first = run.spans.get(index);
        if (first === undefined) {
          refuseStopped(run);
          run.spans.set(index, span);
        }
        see([[index, first ?? span]]);
        return first === undefined ? "committed" : "adopted";
      },
    };
  };

  const finish = (run: StoredRun, attempt: AttemptJson | undefined): void => {
    const { runId, spans, stored } = run;
    refuseStopped(run);
    if (run.published === undefined) {
      if (spans.size < spanCount(stored.plan)) {
        throw new JobError("OUTPUT_DAMAGED", `finishing run ${runId}: spans are missing`);
      }
      const decision = decisionOn(run);
      if (stored.plan.staged) {
        requireApproved(decision, runId);
      }
      const rows = countSpans(spans);
      const profile = runProfileText(runProfileOf(stored.plan, { profile: mergedProfile(spans), ...rows, decision }));
      run.published = { at: new Date().toISOString(), rows, profile, decision, attempt };
    }
    clearUp(run);
  };

  /** Removes what nobody needs any more: the rows of a discarded run, or those that a published one has replaced. */
  const clearUp = (run: StoredRun): void => {
    clear(run.published === undefined ? [run] : earlierThan(run.runId));
    run.answers.length = 0;
  };

  // What is found of runs afterwards.

  /** The run whose rows readers find; a tombstone hides those before it. */
  const publishedOf = (runId: RunId): StoredRun | undefined => {
    const last = sameParams(runId).findLast(({ published, stored }) => published ?? stored.pruned);
    return last?.stored.pruned === undefined ? last : undefined;
  };

  const asPublished = ({ runId, stored, published }: StoredRun): PublishedRun[] => {
    if (published === undefined) {
      return [];
    }
    const { job, params, model } = stored.plan;
    const { profile, rows, decision } = published;
    return [
      {
        runId,
        job,
        params,
        isEmpty: rows.output === 0,
        modelSha256: model.sha256,
        profile: { sha256: sha256Of(profile), place: "" },
        isNormal: decision?.asBaseline ?? true,
        decidedBy: async () => decision?.by,
        seconds: async () => null,
      },
    ];
  };

  const recordOf = (run: StoredRun): RecordedRun => {
    const { runId, spans, published, stored } = run;
    const [verdict, decision] = [ledger.look(runId, documents.verdictDocument), decisionOn(run)];
    const later = laterThan(runId);
    const counts = published && { rows: published.rows.output, rejected: published.rows.rejected };
    const record = recordedRun({
      ...(counts ?? countsOf(verdict)),
      runId,
      place: "memory",
      plan: stored.plan,
      spansCommitted: published ? null : spans.size,
      publishedAt: published && (decision?.at ?? published.at),
      isOver: later.length > 0,
      seconds: verdict?.seconds ?? null,
      verdict,
      decision,
      failure: published ? undefined : ledger.look(runId, documents.errorsDocument)?.errors.at(-1),
      spending: recordedSpending(published?.attempt) ?? ledger.look(runId, documents.spendingDocument),
    });
    const pruned = later.find((after) => after.stored.pruned)?.stored.pruned;
    return pruned === undefined ? record : asPruned(record, pruned);
  };

  const prune = ({ latest, pruning, dryRun }: PruneRequest): PruneOutcome => {
    const over = sameParams(latest);
    const last = over.at(-1);
    if (last !== undefined && last.runId !== latest && last.stored.pruned?.tombstone !== pruning.tombstone) {
      return { kind: "retained", why: `run ${last.runId} was planned meanwhile` };
    }
    const rejects = over.reduce((sum, { spans }) => sum + countSpans(spans).rejected, 0);
    if (!dryRun) {
      const { tombstone: runId, plan } = pruning;
      runs.set(runId, { runId, stored: { plan, planId: "", pruned: pruning }, spans: new Map(), answers: [] });
      clear(over);
    }
    return { kind: "removed", ...nothingRemoved, rejects };
  };

  const openSink = (writer: string): Sink => ({
    target: "memory",
    planTarget: { kind: "memory", shelf: ["a", 1] },
    ledger,
    table: undefined,
    openKeyedRows: async () => undefined,
    rehearse: async () => [],
    makePlace: async () => undefined,
    find: async (base, number) =>
      (number === undefined ? sameParams(base).at(-1) : runs.get(numberedRunId(base, number)))?.stored,
    create: async (plan, insteadOf) => createPlan(plan, insteadOf),
    async open(stored) {
      const run = runs.get(requireKept(stored).plan.runId);
      if (run === undefined) {
        throw new JobError("OUTPUT_DAMAGED", `opening run ${stored.plan.runId}: its plan is gone`);
      }
      return openRun(run, writer);
    },
    published: async () =>
      latestRuns()
        .flatMap(({ runId }) => publishedOf(runId) ?? [])
        .flatMap(asPublished),
    async readProfile({ runId, sha256 }) {
      const { profile } = runs.get(runId as RunId)?.published ?? {};
      if (profile === undefined || sha256Of(profile) !== sha256) {
        throw new JobError("DISK", `reading the profile of run ${runId}: it is not the pinned one`);
      }
      return profile;
    },
    async readPublished() {
      throw new JobError("USAGE", "reading the rows of a run: they are in memory, not in files");
    },
    history: async ({ job, runId: only, last, unfinishedBut }) =>
      [...(unfinishedBut === undefined ? runs.values() : latestRuns())]
        .filter(
          ({ runId, stored }) => stored.plan.job === job && stored.pruned === undefined && runId === (only ?? runId),
        )
        .map(recordOf)
        .filter((run) => !unfinishedBut || (isUnfinished(run) && splitRunId(run.runId).base !== unfinishedBut))
        .slice(-last)
        .toReversed(),
    prune: async (request) => prune(request),
    async [Symbol.asyncDispose]() {},
  });

  return {
    open(): Sink {
      attempts += 1;
      return openSink(`memory.${attempts}`);
    },
    rows: () => [...runs.values()].filter(({ published }) => published).flatMap(piecesOf),
    journals: () => [...runs.values()].filter(({ answers }) => answers.length > 0).map(({ runId }) => runId),
  };
}

/** Documents are texts, so that whoever reads one gets a value of its own. Counts how often it is read. */
export function memoryLedger() {
  const texts = new Map<string, string>();
  const counted = { reads: 0 };
  const look = <T>(runId: RunId, { name, parse }: documents.DocumentKind<T>): T | undefined => {
    const text = texts.get(`${runId} ${name}`);
    return text === undefined ? undefined : parse(JSON.parse(text));
  };
  const set = (runId: RunId, name: string, value: unknown): void => {
    texts.set(`${runId} ${name}`, JSON.stringify(value));
  };
  const createNow = <T>(runId: RunId, kind: documents.DocumentKind<T>, value: T): T => {
    if (look(runId, kind) === undefined) {
      set(runId, kind.name, value);
    }
    return look(runId, kind) ?? value;
  };
  const ledger: documents.Ledger = {
    read(runId, kind) {
      counted.reads += 1;
      return Promise.resolve(look(runId, kind));
    },
    create: async (run, kind, value) => createNow(typeof run === "string" ? run : run.plan.runId, kind, value),
    async change(runId, kind, next) {
      const value = next(look(runId, kind));
      if (value !== undefined) {
        set(runId, kind.name, value);
      }
    },
    remove: async (runId, { name }) => void texts.delete(`${runId} ${name}`),
  };
  return { ...ledger, look, createNow, texts, counted };
}

const piecesOf = ({ spans }: StoredRun): OutputRows[] => [...spans.values()].flatMap(({ pieces }) => pieces);

function clear(runs: readonly StoredRun[]): void {
  for (const { spans, answers } of runs) {
    spans.clear();
    answers.length = 0;
  }
}

function mergedProfile(spans: ReadonlyMap<number, CommittedSpan>): SpanProfile {
  return [...spans.values()].reduce((merged, { profile }) => mergeProfiles(merged, parseProfile(profile)), noRows);
}

function countKeys(pieces: readonly OutputRows[], names: readonly string[]): KeyCounts {
  const keys = pieces.flatMap(({ columns, rowCount }) => {
    const named = columns.filter(({ name }) => names.includes(name));
    return Array.from({ length: rowCount }, (_, row) => named.map(({ type, column }) => valueAt(type, column, row)));
  });
  const whole = keys.filter((key) => !key.includes(null)).map((key) => key.join(", "));
  const repeated = whole.filter((key, index) => whole.indexOf(key) < index);
  const examples = [...new Set(repeated)].toSorted().slice(0, 3);
  return { repeated: repeated.length, nulls: keys.length - whole.length, examples };
}
