import { assertNever, JobError } from "../../errors.js";
import { outputColumns } from "../../batch/contract.js";
import type { OutputRows } from "../../batch/types.js";
import type { Plan, PlanTarget } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import { type PostgresOutputSpec, splitTable } from "../../spec/postgres-spec.js";
import type { RunSink, Sink, StoredPlan, UnfitValue } from "../port.js";
import { appendMode } from "./append.js";
import type { ConnectionSettings } from "./connect.js";
import { openConnections, type Session } from "./connections.js";
import { hasControlTables, makeControlTables } from "./control-schema.js";
import { type CommittedSpans, type Control, controlOf } from "./control.js";
import { encodeRows } from "./copy-binary.js";
import type { Mode, ModeTools } from "./mode.js";
import { showTable } from "./names.js";
import { readRejects } from "./reject-rows.js";
import { replaceMode, rollBack } from "./replace.js";
import { type RetryTools, retrying, type Work } from "./retry.js";
import { commitSpan } from "./span-transaction.js";
import { findTable, fitColumns, type TargetColumn } from "./table.js";
import { transact, type TransactionTools } from "./transaction.js";
import { unfitValues } from "./unfit.js";
import { upsertMode } from "./upsert.js";

export interface PostgresSinkOptions {
  readonly spec: PostgresOutputSpec;
  readonly settings: ConnectionSettings;
  readonly retry: RetryTools;
  /** Names this attempt among all attempts on all machines. */
  readonly writer: string;
  /** Name and version of this program. */
  readonly program: string;
}

/** Rows and progress in one database: a span's rows and its row in the control table commit together. */
export function openPostgresSink(options: PostgresSinkOptions): Sink {
  const { spec, settings, retry, program } = options;
  const connections = openConnections(settings, spec.timeouts);
  const name = splitTable(spec.table);
  const control = controlOf(spec.control_schema);
  const target = `${showTable(name)} at ${settings.server}`;
  const mode = modeOf({ name, spec, control });
  const { timeouts } = spec;
  const tools: Tools = { ...options, connections, control, mode, name, target, timeouts, warn: retry.warn };
  return {
    target,
    planTarget: planTargetOf(options),
    find: (runId) =>
      retrying(`looking for run ${runId} at ${settings.server}`, retry, () =>
        transact(tools, async (session) =>
          (await hasControlTables(session, control.schema)) ? await control.readPlan(session, runId) : undefined,
        ),
      ),
    create: (plan) =>
      retrying(`preparing ${target}`, retry, async () => {
        await connections.use((session) => makeControlTables(session, control.schema, program));
        return await transact(tools, async (session) => {
          await lockRun(session, plan);
          await control.storePlan(session, plan);
          const stored = await requirePlan(session, control, plan.runId);
          await prepareRun(session, tools, stored, { mayCreate: true });
          return stored;
        });
      }),
    open: (stored) => retrying(`looking at ${target}`, retry, () => openRun(tools, stored)),
    rollback: () => retrying(`rolling back ${target}`, retry, (last) => rollBackTarget(tools, last)),
    [Symbol.asyncDispose]: () => connections[Symbol.asyncDispose](),
  };
}

/** @throws JobError USAGE where nothing was replaced */
async function rollBackTarget(tools: Tools, last: unknown): Promise<string> {
  const { spec, control } = tools;
  if (spec.mode !== "replace") {
    throw new JobError("USAGE", `rolling back ${tools.target}: output.postgres.mode is ${spec.mode}`, {
      hint: "only what mode replace swapped in can be swapped back",
    });
  }
  const work = async (session: Session): Promise<string> => {
    if (!(await hasControlTables(session, control.schema))) {
      throw new JobError("USAGE", `rolling back ${tools.target}: no run has replaced it`);
    }
    return await rollBack(session, tools);
  };
  return await transact(tools, work, { last, silentSeconds: finishSeconds });
}

interface Tools extends PostgresSinkOptions, TransactionTools {
  readonly target: string;
  readonly control: Control;
  readonly mode: Mode;
  readonly name: ModeTools["name"];
}

function modeOf(tools: ModeTools): Mode {
  switch (tools.spec.mode) {
    case "append":
      return appendMode(tools);
    case "upsert":
      return upsertMode(tools);
    case "replace":
      return replaceMode(tools);
    default:
      return assertNever(tools.spec.mode);
  }
}

function planTargetOf({ spec, settings }: PostgresSinkOptions): PlanTarget {
  const { mode, key, on_duplicate: onDuplicate } = spec;
  return {
    kind: "postgres",
    server: settings.server,
    table: showTable(splitTable(spec.table)),
    mode,
    key,
    onDuplicate,
  };
}

/**
 * Makes and removes a run's tables one attempt at a time: two that swap tables would lock each other out, and one
 * that is late would make anew what the finish has taken away. The lock is the transaction's, as a pooler needs it.
 */
async function lockRun(session: Session, { runId }: Plan): Promise<void> {
  await session.query({
    text: "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
    values: [`infer-batch run ${runId}`],
  });
}

/** The columns that rows go to, their tables made where that is still due. */
async function prepareRun(
  session: Session,
  { control, mode }: Tools,
  { plan }: StoredPlan,
  options: { readonly mayCreate: boolean },
): Promise<readonly TargetColumn[]> {
  if (!(await control.isFinished(session, plan.runId))) {
    return await mode.prepare(session, plan, options);
  }
  // By another attempt, a moment ago: what is left to do is to find that out span by span.
  const name = mode.rowsAt(plan, { finished: true });
  const found = await findTable(session, name);
  return found === undefined ? [] : fitColumns(name, found, outputColumns(plan.contract));
}

async function requirePlan(
  session: Session,
  control: Control,
  runId: StoredPlan["plan"]["runId"],
): Promise<StoredPlan> {
  const stored = await control.readPlan(session, runId);
  if (stored === undefined) {
    throw new Error(`the plan of run ${runId} was stored and is gone`);
  }
  return stored;
}

async function openRun(tools: Tools, stored: StoredPlan): Promise<RunSink> {
  const { control, mode } = tools;
  const { plan } = stored;
  const { spans, finished } = await transact(tools, async (session) => {
    const seen = await control.readSpans(session, stored);
    const state = { spans: seen, finished: await control.isFinished(session, plan.runId) };
    const name = mode.rowsAt(plan, state);
    // A spec that names another target by now is told so when it is compared with the plan.
    const same = plan.target.kind === "postgres" && plan.target.table === showTable(tools.name);
    // Rows that are counted as committed went into it: making it anew would lose them silently.
    if (same && seen.committed.includes(1) && (await findTable(session, name)) === undefined) {
      throw new JobError(
        "OUTPUT_DAMAGED",
        `looking at table ${showTable(name)}: run ${plan.runId} has rows in it, and it is gone`,
        { hint: `restore it, or remove the run from the tables in ${control.schema} and run the same command again` },
      );
    }
    return state;
  });
  return runSink(tools, stored, { spans, finished });
}

function runSink(
  tools: Tools,
  stored: StoredPlan,
  { spans, finished }: { spans: CommittedSpans; finished: boolean },
): RunSink {
  const { connections, control, retry, target } = tools;
  const { plan } = stored;
  let columns: readonly TargetColumn[] = [];
  const withRetry = <T>(doing: string, work: Work<T>): Promise<T> => retrying(doing, retry, work);
  return {
    finished,
    committed: spans.committed,
    rejectedRows: spans.rejectedRows,
    rejects: () => readRejects(connections, control, plan.runId),
    begin: () =>
      withRetry(`preparing ${target}`, () =>
        transact(tools, async (session) => {
          await lockRun(session, plan);
          columns = await prepareRun(session, tools, stored, { mayCreate: !spans.committed.includes(1) });
          await insertAttempt(session, tools, stored);
        }),
      ),
    unfit: (rows) => unfitRows(rows, columns),
    async commit(of, rows, rejects) {
      // Before the transaction begins: it then lasts as long as the server takes, and no longer.
      const types = columns.map(({ type }) => type);
      const chunks = encodeRows(rows.columns, types, rows.rowCount);
      const write = (session: Session): Promise<number> =>
        tools.mode.write(session, { plan, span: of.index, chunks, columns });
      const commit = { stored, span: of, rowCount: rows.rowCount, rejects, write };
      return await withRetry(`writing span ${of.index} to ${target}`, (last) => commitSpan(tools, commit, last));
    },
    finish: () =>
      withRetry(`finishing ${target}`, (last) =>
        transact(tools, (session) => finishRun(session, tools, stored), { last, silentSeconds: finishSeconds }),
      ),
    failed: (error) => tellFailure(tools, stored, error),
  };
}

/** Looking at all rows of a run, and moving them where names are not enough, takes its time. */
const finishSeconds = 24 * 3600;

/** At most one value a row, in row order. */
function unfitRows(rows: OutputRows, columns: readonly TargetColumn[]): UnfitValue[] {
  const unfit = new Map<number, UnfitValue>();
  for (const [index, { name, type, column }] of rows.columns.entries()) {
    const target = columns[index];
    for (const value of target === undefined ? [] : unfitValues(type, column, target.type, rows.rowCount)) {
      if (!unfit.has(value.row)) {
        unfit.set(value.row, { ...value, column: name });
      }
    }
  }
  return [...unfit.values()].toSorted((one, other) => one.row - other.row);
}

async function insertAttempt(
  session: Session,
  { control, writer, program }: Tools,
  { plan }: StoredPlan,
): Promise<void> {
  await session.query({
    text: `INSERT INTO ${control.table("attempts")} (run_id, writer, program) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
    values: [plan.runId, writer, program],
  });
}

async function finishRun(session: Session, { control, mode, writer }: Tools, stored: StoredPlan): Promise<void> {
  const { plan } = stored;
  await lockRun(session, plan);
  if (await control.isFinished(session, plan.runId)) {
    return;
  }
  const { committed } = await control.readSpans(session, stored);
  const missing = committed.indexOf(0);
  if (missing >= 0) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `finishing run ${plan.runId}: span ${missing} of ${spanCount(plan)} is not committed any more`,
      {
        hint: "somebody changed the control tables under the run; run the same command again",
      },
    );
  }
  await mode.finish(session, plan);
  await session.query({
    text: `INSERT INTO ${control.table("finishes")} (run_id, writer) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
    values: [plan.runId, writer],
  });
}

/** For those who look at the control tables; an attempt that cannot reach them has other ways to tell. */
async function tellFailure(tools: Tools, { plan }: StoredPlan, { code, message }: JobError): Promise<void> {
  if (code === "DATABASE") {
    return;
  }
  const { control, writer } = tools;
  await transact(tools, (session) =>
    session.query({
      text: `INSERT INTO ${control.table("errors")} (run_id, writer, code, message) VALUES ($1, $2, $3, $4)`,
      values: [plan.runId, writer, code, message.replaceAll("\u0000", "\u2400")],
    }),
  ).catch(() => undefined);
}
