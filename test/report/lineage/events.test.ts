import { describe, expect, test } from "vitest";
import { decidedEvent, endEvent, type LineageRun, startEvent } from "#src/report/lineage.js";
import type { Finding } from "#src/checks/check.js";
import type { AttemptRecord } from "#src/report/attempt-record.js";
import type { Outcome } from "#src/report/report.js";
import { JobError } from "#src/base/errors.js";
import { facetOf, parseEvent } from "../../support/openlineage.js";
import { failed, recordOf } from "../../support/records.js";
import { reviewedRun } from "../../support/reviews.js";

const endedMs = Date.UTC(2026, 10, 21, 12, 0, 5);
const parent = { run: { runId: "01a2008d-7400-7235-854a-93c53e0321c2" }, job: { namespace: "prod", name: "dag.task" } };
const lineage: LineageRun = {
  id: "6f1b3bb0-6c2c-4c8f-9a44-0d0f5c1a2b3c",
  namespace: "prod",
  parent,
  inputs: [{ namespace: "s3://lake", name: "features" }],
  output: { namespace: "file", name: "/data/out" },
};

const held = reviewedRun(3);
const published = reviewedRun(0);
const end = ({ record, outcome }: Pick<typeof held, "record" | "outcome">): ReturnType<typeof parseEvent> =>
  parseEvent(endEvent(lineage, { record, outcome, endedMs }));

describe("lineage events", () => {
  test("each lineage event and facet conforms to the JSON Schema that it names", () => {
    const events = [
      parseEvent(startEvent(lineage, recordOf())),
      end(published),
      end(held),
      end({ record: recordOf(), outcome: failed("away") }),
      parseEvent(startEvent({ ...lineage, parent: undefined, inputs: [], output: undefined }, recordOf())),
    ];
    expect(events.map(({ eventType }) => eventType)).toEqual(["START", "COMPLETE", "FAIL", "FAIL", "START"]);
  });

  test("a lineage event that does not conform to its JSON Schema is detected", () => {
    const event = startEvent(lineage, recordOf());
    expect(() => parseEvent({ ...event, eventTime: "yesterday" })).toThrow("eventTime");
    expect(() => parseEvent({ ...event, run: { runId: "1", facets: {} } })).toThrow("runId");
    const broken = JSON.parse(JSON.stringify(event).replace('"processingType":"BATCH",', "")) as unknown;
    expect(() => parseEvent(broken)).toThrow("processingType");
    const unknown = JSON.parse(JSON.stringify(event).replaceAll("JobTypeJobFacet", "OtherFacet")) as unknown;
    expect(() => parseEvent(unknown)).toThrow("no schema for");
  });

  test("the event of a published run has columns, rows, checks, the model and the parent", () => {
    const { run, job, inputs, outputs } = end(published);
    expect(run.facets).toMatchObject({
      parent,
      inferBatch_model: { uri: "m.onnx", sha256: "d".repeat(64) },
      inferBatch_run: { run_id: "daily-0123456789ab", status: "complete", exit_code: 0 },
    });
    expect(run.facets).not.toHaveProperty("errorMessage");
    expect(job).toMatchObject({ namespace: "prod", name: "daily" });
    expect(inputs).toMatchObject([
      { name: "features", facets: { schema: { fields: [{ name: "f0", type: "float32" }] } } },
    ]);
    expect(outputs).toMatchObject([
      {
        namespace: "file",
        name: "/data/out",
        facets: { schema: { fields: [{ name: "score", type: "float32" }] } },
        outputFacets: { outputStatistics: { rowCount: 400 } },
      },
    ]);
  });

  test("the event of a held run has the failed checks first, says why, and claims no rows", () => {
    const { run, inputs, outputs } = end(held);
    expect(run.facets).toMatchObject({ errorMessage: { message: "held: score: shape 4.55 (limit 1)" } });
    expect(run.facets["errorMessage"]).not.toHaveProperty("stackTrace");
    const [output] = outputs;
    expect(output?.outputFacets).toEqual({});
    const { assertions } = facetOf(output?.facets, "dataQualityAssertions") as { assertions?: object[] };
    const ofFeatures = facetOf(inputs[0]?.inputFacets, "dataQualityAssertions")["assertions"] as object[];
    expect([...(assertions ?? []), ...ofFeatures]).toHaveLength(held.review.verdict?.verdict.results.length ?? 0);
    expect(assertions?.[0]).toMatchObject({ success: false });
    expect(assertions).toContainEqual(
      expect.objectContaining({ assertion: "shape", column: "score", success: false, severity: "error" }),
    );
    expect(assertions).toContainEqual(expect.objectContaining({ assertion: "rows", success: true }));
  });

  test("the lineage event of an attempt that a signal stopped is ABORT", () => {
    const stopped: Outcome = { kind: "failed", code: "SIGTERM", message: "stopped", hint: undefined, exitCode: 143 };
    expect(end({ record: recordOf(), outcome: stopped }).eventType).toBe("ABORT");
  });

  test("a lineage event has no credentials and no signature of a model's URL", () => {
    const record = recordOf({ modelUri: "https://me:secret1@host/m.onnx?sig=secret2" });
    const event = JSON.stringify(end({ record, outcome: failed("connecting to postgres://me:secret3@db/x") }));
    expect(event).not.toMatch(/secret\d/);
    expect(event).toContain("https://***@host/m.onnx");
  });

  test("a lineage event has no values of rows", () => {
    const refused = (code: string, message: string, exitCode: 65 | 75 | 1): string =>
      JSON.stringify(
        end({ record: recordOf(), outcome: { kind: "failed", code, message, hint: undefined, exitCode } }).run.facets,
      );
    const badRow = refused("BAD_ROW", "scoring in/a.parquet: row 7, column `x` is 'Ana', which is not finite", 65);
    expect(badRow).toContain('"message":"scoring in/a.parquet (BAD_ROW)"');
    expect(refused("DUPLICATE_KEY", "writing rows by key: (Ana) comes twice", 65)).not.toContain("Ana");
    expect(refused("BUG", "unreachable variant: Ana", 1)).not.toContain("Ana");
    expect(refused("BUG", "Ana", 1)).toContain("the attempt ended (BUG)");
    expect(refused("DATABASE", "connecting to db:5432: no answer", 75)).toContain("connecting to db:5432: no answer");
    const said = JSON.stringify(
      end({ record: judged([keys, range]), outcome: held.outcome }).outputs[0]?.facets["dataQualityAssertions"],
    );
    expect(said).toContain('"assertion":"unique"');
    expect(said).not.toMatch(/Ana|1234/);
  });

  test("the event of a held run has the first line of its message only: the others may name keys of rows", () => {
    const { outcome } = held;
    if (outcome.kind === "failed" || outcome.report.decided === undefined) {
      expect.fail();
    }
    const error = new JobError("HELD", "checking run daily-1: it is held\n  unique: name: Ana comes twice");
    const report = { ...outcome.report, decided: { ...outcome.report.decided, error } };
    const { run } = end({ record: recordOf(), outcome: { ...outcome, report } });
    expect(run.facets).toMatchObject({ errorMessage: { message: "checking run daily-1: it is held" } });
  });

  test("an assertion about a feature is on the input, and those about outputs and the run are on the output", () => {
    const psi: Finding = { ...range, check: "shape", measured: 1.3, limit: 0.25 };
    const results: Finding[] = [
      { ...psi, column: "f0", isFeature: true },
      { ...psi, column: "amount_log", isFeature: true },
      { ...psi, column: "country=Ana: score", level: "warn" },
      { ...psi, column: "country is NULL: score", level: "warn" },
      { ...psi, check: "rows", column: null },
      range,
    ];
    const { inputs, outputs } = end({ record: judged(results), outcome: held.outcome });
    expect(named(inputs[0]?.inputFacets)).toEqual([
      ["f0", undefined],
      [undefined, "shape of amount_log"],
    ]);
    expect(named(outputs[0]?.facets)).toEqual([
      [undefined, undefined],
      ["score", undefined],
      ["score", "shape in a slice of country"],
      ["score", "shape in a slice of country"],
    ]);
    expect(JSON.stringify([inputs, outputs])).not.toContain("Ana");
  });

  test("a lineage event has at most 300 assertions about all its inputs together, the worst first", () => {
    const passed: Finding = { ...range, check: "shape", level: "pass", column: "f0", isFeature: true };
    const results = [...Array.from({ length: 400 }, () => passed), { ...passed, level: "hold" as const }];
    const inputs = ["a", "b"].map((name) => ({ namespace: "s3://lake", name }));
    const event = endEvent({ ...lineage, inputs }, { record: judged(results), outcome: held.outcome, endedMs });
    const found = parseEvent(event).inputs.map(
      ({ inputFacets }) => facetOf(inputFacets, "dataQualityAssertions")["assertions"] as { success: boolean }[],
    );
    expect(found.map((assertions) => [assertions.length, assertions[0]?.success])).toEqual([
      [150, false],
      [150, false],
    ]);
  });

  test("the error of a held run names the first checks that failed, without values of rows", () => {
    const psi: Finding = { ...range, check: "shape", measured: 1.3, limit: 0.25, isFeature: true };
    const many = ["a", "b", "c", "d", "e"].map((column) => Object.assign({}, psi, { column }));
    expect(messageOf([range, ...many, { ...psi, column: "f", level: "warn" }])).toMatch(
      /^held: score: range; a: shape 1\.3 \(limit 0\.25\); b: shape .*; d: shape 1\.3 \(limit 0\.25\); 1 more$/,
    );
    expect(messageOf([{ ...psi, check: "rows", column: null }])).toMatch(/^held: rows 1\.3 \(limit 0\.25\)$/);
  });

  test("the events of decisions say who decided, and count the rows that were published", () => {
    const { record } = held;
    const decided = { record, by: "ana", reason: "one shop only" };
    const approved = parseEvent(decidedEvent(lineage, { ...decided, state: "published" }, endedMs));
    expect(approved.eventType).toBe("COMPLETE");
    expect(approved.outputs[0]?.outputFacets).toMatchObject({
      outputStatistics: { rowCount: record.review?.profile.rows },
    });
    expect(approved.run.facets["inferBatch_run"]).toMatchObject({ status: "published", decided_by: "ana" });
    const secret = { ...decided, reason: "as postgres://me:secret@db/x has it", state: "published" } as const;
    expect(JSON.stringify(decidedEvent(lineage, secret, endedMs))).not.toContain("secret");
    const discarded = parseEvent(decidedEvent(lineage, { ...decided, state: "discarded", reason: null }, endedMs));
    expect(discarded.eventType).toBe("ABORT");
    expect(discarded.outputs[0]?.outputFacets).toEqual({});
  });

  test("a lineage event has the rows of a run that several attempts scored only if they were counted", () => {
    const { outcome } = published;
    if (outcome.kind === "failed") {
      expect.fail();
    }
    const rowsAfter = (spansResumed: number): unknown => {
      const report = { ...outcome.report, spansResumed };
      return end({ record: recordOf(), outcome: { kind: "done", report } }).outputs[0]?.outputFacets[
        "outputStatistics"
      ];
    };
    expect(rowsAfter(0)).toMatchObject({ rowCount: recordOf().counts.rowsScored });
    expect(rowsAfter(1)).toBeUndefined();
  });
});

const result = { level: "hold", formula: "f", limit: 0, against: null } as const;
const keys: Finding = { ...result, check: "unique", column: "id", measured: 2, numbers: { examples: "Ana; Bob" } };
const range: Finding = { ...result, check: "range", column: "score", measured: 1234, numbers: { max: 1234 } };

/** The column and the name of each assertion. */
function named(facets: Parameters<typeof facetOf>[0]): unknown {
  const { assertions } = facetOf(facets, "dataQualityAssertions");
  return (assertions as { column?: string; name?: string }[]).map(({ column, name }) => [column, name]);
}

/** The error in the event of a held run. */
function messageOf(results: readonly Finding[]): unknown {
  const { run } = end({ record: judged(results), outcome: held.outcome });
  return facetOf(run.facets, "errorMessage")["message"];
}

/** A record of a run with these results of checks. */
function judged(results: readonly Finding[]): AttemptRecord {
  const { record } = reviewedRun(3);
  const { review } = record;
  if (review?.verdict === undefined) {
    throw new Error("no verdict");
  }
  record.setReview({ ...review, verdict: { ...review.verdict, verdict: { ...review.verdict.verdict, results } } });
  return record;
}
