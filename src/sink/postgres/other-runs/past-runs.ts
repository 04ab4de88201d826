import type { RunId } from "../../../plan/plan.js";
import type { PublishedRun } from "../../../publish/published-run.js";
import type { RecordedRun } from "../../../publish/recorded-run.js";
import type { Sink, UnfinishedRun } from "../../port.js";
import type { Session } from "../connections.js";
import { readHistory } from "../control/history.js";
import { publishedProfile, publishedRuns } from "../control/profiles.js";
import { showTable } from "../names.js";
import { retrying } from "../retry.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";
import { findNewer } from "./newer-runs.js";
import { whyGone } from "./swapped-out-rows.js";
import { visibleRun } from "./visible-run.js";

/** Reads from the control tables. Returns `none` if they do not exist. */
export type InControlTables = <T>(doing: string, none: T, work: (session: Session) => Promise<T>) => Promise<T>;

/** Reads earlier runs from the control tables. */
export function pastRuns(
  tools: RunTools,
  inControlTables: InControlTables,
): Pick<Required<Sink>, "unfinished" | "published" | "visible" | "newer" | "readProfile" | "history"> {
  const { control, target, retry } = tools;
  return {
    unfinished: (job, base) =>
      inControlTables<readonly UnfinishedRun[]>(`looking for unfinished runs of ${job}`, [], (session) =>
        unfinishedRuns(session, tools, { job, base }),
      ),
    visible: (plan) =>
      inControlTables(`reading ${target}`, undefined, (session) =>
        visibleRun(session, control, { plan, target: showTable(tools.name) }),
      ),
    newer: (plan) => inControlTables(`reading ${target}`, undefined, (session) => findNewer(session, control, plan)),
    published: (series) =>
      inControlTables<readonly PublishedRun[]>(`reading ${target}`, [], (session) =>
        publishedRuns(session, control, { target: showTable(tools.name), series }),
      ),
    readProfile: (pinned) =>
      retrying(`reading ${target}`, retry, () =>
        transact(tools, (session) => publishedProfile(session, control, pinned)),
      ),
    history: (request) =>
      inControlTables<readonly RecordedRun[]>(`reading the runs of ${request.job}`, [], (session) =>
        readHistory(session, control, { ...request, target: showTable(tools.name) }),
      ),
  };
}

async function unfinishedRuns(
  session: Session,
  { control, name, target, modeOf }: RunTools,
  { job, base }: { readonly job: string; readonly base: RunId },
): Promise<readonly UnfinishedRun[]> {
  const runs = await control.unfinished(session, { job, base, table: showTable(name) });
  const found: UnfinishedRun[] = [];
  for (const { plan, held = false } of runs) {
    const gone = held ? undefined : await whyGone(session, { control, mode: modeOf(plan), name, plan });
    found.push({ plan, held, target, gone });
  }
  return found;
}
