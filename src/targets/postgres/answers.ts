import type { Plan } from "../../run/plan/plan.js";
import { answerGroups, type AnswerJournal, type LoggedAnswer } from "../../stores/ledger.js";
import { isMissingTable, retrying, type Session, transact } from "./connections.js";
import { isFinished, lockRun, lockRuns, refuseStoppedRun } from "./control.js";
import { answersTable, oidOf, quoteTable, showTable, type TableName } from "./table.js";
import { retried, type TableTools } from "./modes/mode.js";

const rowsPerQuery = 500;

/**
 * Opens the journal of a run's answers: a table of the run's own, which is dropped when the run is over. A table shared
 * by all runs would need DELETE, and would keep the space of the deleted rows.
 */
export function openAnswerTable(tools: TableTools, plan: Plan): AnswerJournal {
  const name = answersTable(tools.control.schema, plan.runId);
  return {
    pauseMs: 200,
    read: () => readAnswers(tools, name),
    async keep(answers) {
      if (answers.length === 0) {
        await retried(tools, `preparing table ${showTable(name)}`, (session) => prepare(session, tools, plan, name));
      }
      for (const group of answerGroups(answers)) {
        await retrying(`keeping answers in ${showTable(name)}`, tools.retry, async (last) => {
          const insert = (): Promise<void> =>
            transact(tools, (session) => insertAnswers(session, name, tools.writer, group), { last });
          await insert().catch(async (error: unknown) => {
            ignoreMissing(error);
            // Not made yet; or dropped, by the end of the run or by a person. After the end nobody needs it again.
            await transact(tools, (session) => prepare(session, tools, plan, name));
            await insert().catch(ignoreMissing);
          });
        });
      }
    },
  };
}

/** Makes the table unless the run is over: a late attempt must not make it again. */
async function prepare(session: Session, { control }: TableTools, plan: Plan, name: TableName): Promise<void> {
  await lockRuns(session, plan.runId, { shared: true });
  await refuseStoppedRun(session, control, plan);
  await lockRun(session, plan.runId);
  if (!(await isFinished(session, control, plan.runId)) && (await oidOf(session, name)) === undefined) {
    await makeAnswersTable(session, name);
  }
}

function ignoreMissing(error: unknown): void {
  if (!isMissingTable(error)) {
    throw error;
  }
}

/** Reads a bounded number at a time; none where the table is gone. */
async function* readAnswers(tools: TableTools, name: TableName): AsyncGenerator<LoggedAnswer> {
  for (let after = { request: "", writer: "" }; ; ) {
    const { rows } = await retrying(`reading ${showTable(name)}`, tools.retry, () =>
      transact(tools, (session) =>
        session.query<LoggedAnswer & { writer: string }>({
          text: `SELECT encode(request, 'hex') AS request, writer, answer FROM ${quoteTable(name)}
            WHERE (request, writer) > (decode($1, 'hex'), $2) ORDER BY request, writer LIMIT ${rowsPerQuery}`,
          values: [after.request, after.writer],
        }),
      ).catch((error: unknown) => {
        ignoreMissing(error);
        return { rows: [] };
      }),
    );
    yield* rows.map(({ request, answer }) => ({ request, answer }));
    const last = rows.at(-1);
    if (last === undefined || rows.length < rowsPerQuery) {
      return;
    }
    after = last;
  }
}

/** Makes the table of a run's answers unless it is there. The caller has locked the run: one attempt at a time does this. */
export async function makeAnswersTable(session: Session, name: TableName): Promise<void> {
  const table = quoteTable(name);
  await session.query(`CREATE TABLE ${table} (request bytea, writer text, answer text NOT NULL, kept_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (request, writer));
    COMMENT ON TABLE ${table} IS 'Answers that an unfinished run has paid for; goes when it is published or discarded';
    COMMENT ON COLUMN ${table}.request IS 'SHA-256 of the request';
    COMMENT ON COLUMN ${table}.writer IS 'the attempt that paid for the answer';
    COMMENT ON COLUMN ${table}.answer IS 'the answer, JSON';
    COMMENT ON COLUMN ${table}.kept_at IS 'when'`);
}

/** Those that were inserted before are left as they are: an insert can be repeated. */
async function insertAnswers(
  session: Session,
  name: TableName,
  writer: string,
  answers: readonly LoggedAnswer[],
): Promise<void> {
  // Two attempts that paid for the same request keep both answers, since both cost money.
  await session.query({
    text: `INSERT INTO ${quoteTable(name)} (request, writer, answer)
      SELECT decode(a.request, 'hex'), $1, a.answer FROM unnest($2::text[], $3::text[]) AS a (request, answer)
      ON CONFLICT DO NOTHING`,
    values: [writer, answers.map(({ request }) => request), answers.map(({ answer }) => answer)],
  });
}
