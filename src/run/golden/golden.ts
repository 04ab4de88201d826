import type { Contract } from "../../binding/contract.js";
import { findDifferences, isExpectedNotFinite, type Difference } from "../../checks/golden-rows.js";
import type { NamedColumn, OutputRows, RejectedRow, SpanOutput } from "../../columnar/types.js";
import type { Engine } from "../../engine/port.js";
import type { ShardFooter } from "../../formats/port.js";
import type { Plan, Span } from "../../plan/plan.js";
import { rowsOfSpans, spanCount } from "../../plan/spans.js";
import { count } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import type { GoldenSpec } from "../../spec/checks-spec.js";
import { JobError } from "../../util/errors.js";
import { expectedName, goldenContract } from "./golden-contract.js";
import { type GoldenFile, openGolden, requirePinned } from "./golden-file.js";
import { scoreWithoutPublishing } from "../score-without-publishing.js";

/** The number of rows that are scored and compared at once. */
const rowsAtOnce = 65_536;

interface Scored {
  readonly plan: Plan;
  readonly engine: Engine;
}

/**
 * Scores the rows of `checks.golden` in the same way as rows of the input, with this attempt's engine, and compares the
 * predictions with those of the file. Does nothing without `checks.golden`.
 * @throws JobError GOLDEN_MISMATCH, SCHEMA_MISMATCH; INPUT_CHANGED if the file is not the one that the plan pins
 */
export async function checkGolden(context: JobContext, { plan, engine }: Scored): Promise<void> {
  const { golden: given } = context.spec.checks ?? {};
  if (given === undefined || plan.checks?.golden === undefined) {
    return;
  }
  await using golden = await openGolden(context, given.path);
  requirePinned(plan, { uri: given.path, sha256: golden.sha256 });
  await requireModel(golden, plan);
  const { rows, schema } = await footerOf(golden);
  const contract = goldenContract(plan.contract, { name: golden.file.name, columns: schema.columns });
  const found = await scoreGolden(context, {
    plan: goldenPlan(plan, { golden, rows, contract }),
    engine,
    given,
    golden,
  });
  if (found.rows > 0) {
    const { uri, sha256 } = plan.model;
    throw new JobError(
      "GOLDEN_MISMATCH",
      `checking the golden rows of ${golden.file.name}: ${found.rows} of ${count(rows, "row")} differ; ${found.first}; scored by model ${uri} (sha256 ${sha256}) on ${engine.provider}`,
      {
        hint: "the model, its preprocessing or the provider is wrong; no row of the input was scored by this attempt. If the file is wrong, write it again; a planned run then needs --new-run",
      },
    );
  }
  context.log.info(`the predictions of ${count(rows, "row")} of ${golden.file.name} are as expected`);
}

/** Rejects a file whose metadata names another model. */
async function requireModel({ file, reader }: GoldenFile, { model }: Plan): Promise<void> {
  const made = await reader.modelSha256(file);
  if (made !== undefined && made !== model.sha256) {
    throw new JobError(
      "GOLDEN_MISMATCH",
      `checking the golden rows of ${file.name}: they were made with a model of sha256 ${made}, but ${model.uri} has sha256 ${model.sha256}`,
      { hint: "deploy the model that they were made with, or make golden rows with this model" },
    );
  }
}

async function footerOf({ file, reader }: GoldenFile): Promise<ShardFooter> {
  for await (const footer of reader.decoder.footers([file])) {
    if (footer.rows > 0) {
      return footer;
    }
  }
  throw new JobError("SCHEMA_MISMATCH", `checking the golden rows of ${file.name}: the file has no rows`, {
    hint: "docs/absolute-checks.md says how to make the file",
  });
}

/** Returns a plan whose only shard is the file of golden rows. */
function goldenPlan(
  plan: Plan,
  { golden, rows, contract }: { readonly golden: GoldenFile; readonly rows: number; readonly contract: Contract },
): Plan {
  const input = { ...plan.input, rows, uniform: true as const, shards: [{ ...golden.listed, rows }] };
  return { ...plan, contract, input, commitRows: Math.min(rows, rowsAtOnce) };
}

interface GoldenRun extends Scored {
  readonly given: GoldenSpec;
  readonly golden: GoldenFile;
}

interface Found {
  /** The number of rows that differ. */
  rows: number;
  /** The description of the first such row, for messages; "" if no row differs. */
  first: string;
}

/** Scores golden rows as a run scores its rows, and commits nothing. */
async function scoreGolden(context: JobContext, { plan, engine, given, golden }: GoldenRun): Promise<Found> {
  const { decoder } = golden.reader;
  const found: Found = { rows: 0, first: "" };
  const ranges = [rowsOfSpans(plan, { from: 0, to: spanCount(plan) })];
  await scoreWithoutPublishing(context, { plan, engine, decoder, ranges }, (span, output) => {
    addDifferences(found, { contract: plan.contract, given, span, output });
  });
  return found;
}

interface ComparedSpan {
  readonly contract: Contract;
  readonly given: GoldenSpec;
  readonly span: Span;
  readonly output: SpanOutput;
}

function addDifferences(found: Found, { contract, given: tolerance, span, output }: ComparedSpan): void {
  const { rows, rejects, filtered } = output;
  const pairs = contract.outputs.map(({ column }) => ({
    expected: columnOf(rows, expectedName(column)),
    predicted: columnOf(rows, column),
  }));
  const { rows: differing, first } = findDifferences(pairs, { rowCount: rows.rowCount, tolerance });
  const refused = rejects.filter((reject) => !isExpected(reject));
  const left = filtered === 0 ? [] : [`input.where leaves out ${count(filtered, "row")}`];
  const [reject] = refused;
  const descriptions = [
    ...(first === undefined ? [] : [differenceText(rowOf(first.row, { span, output }), first)]),
    ...(reject === undefined ? [] : [rejectText(reject)]),
    ...left,
  ];
  found.rows += differing + refused.length + filtered;
  found.first ||= descriptions[0] ?? "";
}

/** Whether a row was rejected for a prediction that the file expects. */
function isExpected({ reason, column, value, columns }: RejectedRow): boolean {
  const expected = columns[expectedName(column ?? "")] ?? null;
  return reason === "prediction_not_finite" && isExpectedNotFinite(expected, value);
}

/**
 * Converts the index of an output row to its row in the file. Rows that `input.where` leaves out are an error of their
 * own.
 */
function rowOf(index: number, { span, output }: Pick<ComparedSpan, "span" | "output">): number {
  let row = span.rowStart + index;
  for (const { row: rejected } of output.rejects.toSorted((one, other) => one.row - other.row)) {
    row += rejected <= row ? 1 : 0;
  }
  return row;
}

function differenceText(row: number, { column, expected, found }: Difference): string {
  return `row ${row}: \`${column}\` is ${found}, expected ${expected}`;
}

function rejectText({ row, column, reason, value }: RejectedRow): string {
  const at = column === null ? "" : ` (\`${column}\` is ${value ?? "NULL"})`;
  return `row ${row} cannot be scored: ${reason.replaceAll("_", " ")}${at}`;
}

function columnOf({ columns }: OutputRows, wanted: string): NamedColumn {
  const found = columns.find(({ name }) => name === wanted);
  if (found === undefined) {
    throw new RangeError(`the golden rows lack column ${wanted}`);
  }
  return found;
}
