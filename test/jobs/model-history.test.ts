import { expect, test } from "vitest";
import { type DatedJob, type DatedModel, modelsOfDates } from "#src/jobs/model-history.js";
import { sha256 } from "#src/app/job-context.js";
import { numberedRunId, runIdOf } from "#src/plan/identity.js";
import type { PlannedModel, RunId } from "#src/plan/plan.js";
import type { RecordedRun, RunStatus } from "#src/publish/recorded-run.js";

interface Recorded {
  readonly ds: string;
  readonly region?: string;
  readonly status?: RunStatus;
  readonly number?: number;
  readonly rolledBack?: boolean;
}

const idOf = (ds: string, region: string): RunId => runIdOf("job", { ds, region }, sha256);
const modelNamed = (digest: string): PlannedModel => ({ uri: "models:/churn@champion", sha256: digest });

/** A run whose model is named by its date, region and number. */
function recorded({ ds, region = "EU", status = "published", number = 1, rolledBack }: Recorded): RecordedRun {
  const runId = numberedRunId(idOf(ds, region), number);
  return {
    runId,
    status,
    rolledBack,
    plan: { params: { ds, region }, model: modelNamed(`${ds} ${region} ${number}`) },
  } as unknown as RecordedRun;
}

const job = (ds: string, region = "EU"): DatedJob => ({
  value: ds,
  runId: idOf(ds, region),
  params: { ds, region },
});

function found(runs: readonly Recorded[], ...jobs: readonly DatedJob[]): (string | undefined)[] {
  const models = modelsOfDates(runs.map(recorded), jobs, "ds");
  return models.map((one) => one && text(one.scores) + (one.resumes === undefined ? "" : `, ${text(one.resumes)}`));
}

const text = ({ kind, of, model }: DatedModel): string => `${kind} ${of}: ${model.sha256}`;

test("a date has the model of its last published run, pruned runs included", () => {
  const runs: Recorded[] = [
    { ds: "2026-01-01" },
    { ds: "2026-01-01", number: 2 },
    { ds: "2026-01-01", number: 3, status: "discarded" },
    { ds: "2026-01-02", status: "pruned" },
  ];
  expect(found(runs, job("2026-01-01"), job("2026-01-02"))).toEqual([
    "published 2026-01-01: 2026-01-01 EU 2",
    "published 2026-01-02: 2026-01-02 EU 1",
  ]);
});

test("a run that was rolled back lends its model to no date", () => {
  const runs: Recorded[] = [{ ds: "2026-01-01" }, { ds: "2026-01-02", rolledBack: true }];
  expect(found(runs, job("2026-01-02"), job("2026-01-03"))).toEqual([
    "before 2026-01-01: 2026-01-01 EU 1",
    "before 2026-01-01: 2026-01-01 EU 1",
  ]);
});

test("a date without a published run has the model of the last one before it in its series, never of a later one", () => {
  const runs: Recorded[] = [
    { ds: "2026-01-02" },
    { ds: "2026-01-03", region: "US" },
    { ds: "2026-01-04", status: "discarded" },
    { ds: "2026-01-06" },
  ];
  expect(found(runs, job("2026-01-01"), job("2026-01-04"), job("2026-01-05", "US"))).toEqual([
    undefined,
    "before 2026-01-02: 2026-01-02 EU 1",
    "before 2026-01-03: 2026-01-03 US 1",
  ]);
});

/** A published run, and a run after it with this status. */
const opened = (status: RunStatus): Recorded[] => [{ ds: "2026-02" }, { ds: "2026-02", number: 2, status }];

test("a run that is not finished continues with its own model, but its date is scored again with the published one", () => {
  const published = "published 2026-02: 2026-02 EU 1";
  expect(found(opened("failed"), job("2026-02"))).toEqual([`${published}, open 2026-02: 2026-02 EU 2`]);
  expect(found(opened("held"), job("2026-02"))).toEqual([published]);
  expect(found(opened("approved"), job("2026-02"))).toEqual(["published 2026-02: 2026-02 EU 2"]);
  expect(found([{ ds: "2026-02", status: "failed" }], job("2026-02"))).toEqual(["open 2026-02: 2026-02 EU 1"]);
});
