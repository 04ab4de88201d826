import { checkOf } from "../checks/checks.js";
import { createHash } from "node:crypto";
import type { Finding, Level } from "../checks/check.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import { hideCredentials } from "../job/jobfile/secrets.js";
import { bucketName, isObjectUri, parseObjectUri } from "../job/jobfile/uri.js";
import { shown } from "../base/shown-numbers.js";
import type { AttemptRecord, RunInfo } from "./attempt-record.js";
import { exitCodeOfOutcome, type Outcome, statusOfOutcome } from "./report.js";

/** The fields that all events of an attempt share. */
export interface LineageRun {
  /** The UUID of the attempt. Each attempt is a run of its own in OpenLineage. */
  readonly id: string;
  readonly namespace: string;
  readonly parent: ParentRun | undefined;
  readonly inputs: readonly DatasetName[];
  readonly output: DatasetName | undefined;
}

type Json = Readonly<Record<string, unknown>>;

const spec = "https://openlineage.io/spec";
const eventSchema = `${spec}/2-0-2/OpenLineage.json#/$defs/RunEvent`;

/** This program's own facets use the schema that is common to all facets of a run. */
const facetSchemas = {
  parent: "facets/1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet",
  processing_engine: "facets/1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet",
  errorMessage: "facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
  jobType: "facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
  schema: "facets/1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
  dataQualityAssertions: "facets/1-1-0/DataQualityAssertionsDatasetFacet.json#/$defs/DataQualityAssertionsDatasetFacet",
  outputStatistics: "facets/1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet",
  inferBatch_run: "2-0-2/OpenLineage.json#/$defs/RunFacet",
  inferBatch_model: "2-0-2/OpenLineage.json#/$defs/RunFacet",
} as const;

/** Makes the event at the start of an attempt. */
export function startEvent(lineage: LineageRun, record: AttemptRecord): Json {
  return eventOf(lineage, record, "START", record.startedMs);
}

/** Makes the event at the end of an attempt: COMPLETE, ABORT if a signal stopped it, or FAIL, also for a held run. */
export function endEvent(
  lineage: LineageRun,
  { record, outcome, endedMs }: { readonly record: AttemptRecord; readonly outcome: Outcome; readonly endedMs: number },
): Json {
  const exitCode = exitCodeOfOutcome(outcome);
  const eventType = exitCode === 0 ? "COMPLETE" : exitCode === 130 || exitCode === 143 ? "ABORT" : "FAIL";
  return eventOf(lineage, record, eventType, endedMs, {
    facts: { status: statusOfOutcome(outcome), exit_code: exitCode },
    message: messageOf(record, outcome),
    rows: rowsOf(record, outcome),
  });
}

/** A decision on a held run after it was carried out. */
export interface CarriedOut {
  readonly record: AttemptRecord;
  readonly state: "published" | "discarded";
  readonly by: string;
  readonly reason: string | null;
}

/** Makes the event after a decision: COMPLETE for a published run, ABORT for a discarded one. */
export function decidedEvent(lineage: LineageRun, { record, state, by, reason }: CarriedOut, atMs: number): Json {
  const facts = { status: state, decided_by: by, ...(reason === null ? {} : { reason: hideCredentials(reason) }) };
  const rows = state === "published" ? record.review?.profile.rows : undefined;
  const eventType = state === "published" ? "COMPLETE" : "ABORT";
  return eventOf(lineage, record, eventType, atMs, { facts, message: undefined, rows });
}

/** What only the last event of an attempt has. */
interface End {
  readonly facts: Json;
  readonly message: string | undefined;
  /** The number of rows that the run has published; undefined: none, or the number is not known. */
  readonly rows: number | undefined;
}

function eventOf(
  { id, namespace, parent, inputs, output }: LineageRun,
  record: AttemptRecord,
  eventType: "START" | "COMPLETE" | "ABORT" | "FAIL",
  atMs: number,
  end?: End,
): Json {
  const { info, run } = record;
  const { index: worker, count: workers } = info.worker;
  const version = info.versions["infer-batch"];
  const producer = `pkg:npm/infer-batch@${version ?? "0"}`; // https://github.com/package-url/purl-spec
  const facet = (name: keyof typeof facetSchemas, fields: Json | undefined): Json =>
    fields === undefined
      ? {}
      : { [name]: { _producer: producer, _schemaURL: `${spec}/${facetSchemas[name]}`, ...fields } };
  const quality = (of: "inputs" | "output", datasets: number): Json => {
    const results = end && record.review?.verdict?.verdict.results;
    const all = results === undefined ? [] : assertionsOf(results, run, of);
    const assertions = all.slice(0, Math.ceil(mostAssertions / datasets));
    return facet("dataQualityAssertions", assertions.length === 0 ? undefined : { assertions });
  };
  return {
    eventType,
    eventTime: new Date(atMs).toISOString(),
    producer,
    schemaURL: eventSchema,
    run: {
      runId: id,
      facets: {
        ...facet("processing_engine", { name: "infer-batch", version: version ?? "" }),
        ...facet("parent", parent && { ...parent }),
        ...facet("inferBatch_model", run && modelOf(run)),
        ...facet("inferBatch_run", run && end && { run_id: run.runId, ...end.facts, worker, workers }),
        ...facet(
          "errorMessage",
          end?.message === undefined
            ? undefined
            : { message: hideCredentials(end.message), programmingLanguage: "JavaScript" },
        ),
      },
    },
    job: {
      namespace,
      name: info.job,
      facets: facet("jobType", { processingType: "BATCH", integration: "INFER_BATCH", jobType: "JOB" }),
    },
    inputs: inputs.map((dataset) => ({
      ...dataset,
      facets: facet("schema", run && { fields: run.inputColumns }),
      inputFacets: quality("inputs", inputs.length),
    })),
    outputs:
      output === undefined
        ? []
        : [
            {
              ...output,
              facets: { ...facet("schema", run && { fields: run.outputColumns }), ...quality("output", 1) },
              outputFacets: facet("outputStatistics", end?.rows === undefined ? undefined : { rowCount: end.rows }),
            },
          ],
  };
}

function messageOf({ review }: AttemptRecord, outcome: Outcome): string | undefined {
  if (outcome.kind === "done") {
    const { status, decided } = outcome.report;
    const [line] = decided?.error.message.split("\n") ?? []; // the lines below may show keys of rows
    const findings = status === "held" ? findingsOf(review?.verdict?.verdict.results ?? []) : "";
    return line === undefined || findings === "" ? line : `${line}: ${findings}`;
  }
  const { code, message, exitCode } = outcome;
  // Errors about bad data may quote a database, and bugs anything: values of rows are left out.
  const [act, finding] = message.split(": ");
  return exitCode === 65 || exitCode === 1 ? `${finding === undefined ? "the attempt ended" : act} (${code})` : message;
}

/** Without the query of its URL, which may be a signature that gives access. */
function modelOf({ modelUri, modelVersion, modelSha256 }: RunInfo): Json {
  const uri = hideCredentials(/^https?:/i.test(modelUri) ? modelUri.replace(/[?#].*$/s, "") : modelUri);
  return { uri, ...(modelVersion === undefined ? {} : { version: modelVersion }), sha256: modelSha256 };
}

/** The limit of assertions about the inputs of a run together, and about its output. The worst results come first. */
const mostAssertions = 300;

/** undefined: the run has published none, or other attempts scored rows without counting them. */
function rowsOf({ review, counts }: AttemptRecord, outcome: Outcome): number | undefined {
  if (outcome.kind === "failed" || outcome.report.status !== "complete") {
    return undefined;
  }
  return review?.profile.rows ?? (outcome.report.spansResumed === 0 ? counts.rowsScored : undefined);
}

/** The worst first, without values of rows. About features, which inputs have; or about outputs, slices and the run. */
function assertionsOf(results: readonly Finding[], run: RunInfo | undefined, of: "inputs" | "output"): Json[] {
  const columns = new Set((of === "inputs" ? run?.inputColumns : run?.outputColumns)?.map(({ name }) => name));
  const own = results.filter(({ isFeature = false }) => isFeature === (of === "inputs"));
  const worst = (["hold", "warn", "pass"] as const).flatMap((each) => own.filter(({ level }) => level === each));
  return worst.map((result) => {
    const { check, level, limit } = result;
    const { column, name } = namesIn(result, columns);
    return {
      assertion: check,
      success: level === "pass",
      column,
      name,
      severity: level === "pass" ? undefined : severities[level],
      expected: typeof limit === "number" ? String(limit) : undefined,
      actual: measuredIn(result)?.toString(),
    };
  });
}

const severities: Readonly<Record<Exclude<Level, "pass">, string>> = { warn: "warn", hold: "error" };

/**
 * The specification allows only a column of the dataset: an assertion about something else, such as a computed feature,
 * has a name instead. A slice is named without its value, which is that of rows.
 */
function namesIn(
  { check, column }: Pick<Finding, "check" | "column">,
  columns: ReadonlySet<string>,
): { readonly column?: string; readonly name?: string } {
  if (column === null || columns.has(column)) {
    return column === null ? {} : { column };
  }
  const [, sliced] = /^(.+?)(?:=| is NULL: )/.exec(column) ?? [];
  const [output] = [...columns]
    .filter((each) => column.endsWith(`: ${each}`))
    .toSorted((left, right) => right.length - left.length);
  return sliced !== undefined && output !== undefined
    ? { column: output, name: `${check} in a slice of ${sliced}` }
    : { name: `${check} of ${column}` };
}

/** The number that a check has measured; undefined: a text, or the value of a row. */
function measuredIn(finding: Finding): number | undefined {
  const isOfRow = checkOf(finding).measuresRow === true;
  return typeof finding.measured === "number" && !isOfRow ? finding.measured : undefined;
}

const mostFindings = 5;

/** Without values of rows: "f1: shape 1.3 (limit 0.25); rows 0.1 (limit 0.6)". */
function findingsOf(results: readonly Finding[]): string {
  const failed = results.filter(({ level }) => level === "hold");
  const texts = failed.slice(0, mostFindings).map((result) => {
    const measured = measuredIn(result);
    const numbers = measured === undefined ? "" : ` ${shown(measured)} (limit ${shown(result.limit)})`;
    return `${result.column === null ? "" : `${result.column}: `}${result.check}${numbers}`;
  });
  const left = failed.length - texts.length;
  return [...texts, ...(left === 0 ? [] : [`${left} more`])].join("; ");
}

/** A dataset as OpenLineage names it: https://openlineage.io/docs/spec/naming */
export interface DatasetName {
  readonly namespace: string;
  readonly name: string;
}

/** The limit of input datasets in an event. A spec may list thousands of files. */
const mostInputs = 50;

/**
 * Returns the folders and files of the input as datasets, without duplicates, or the table that a catalog has, or the topic.
 * @param absolute makes a path on this machine absolute
 */
export function inputDatasets({ input }: JobSpec, absolute: (path: string) => string): DatasetName[] {
  const { catalog, kafka, table = "" } = input;
  const named =
    kafka !== undefined
      ? [{ namespace: `kafka://${kafka.brokers[0]}`, name: kafka.topic }]
      : catalog === undefined
        ? input.path.map((path) => filesDataset(path, absolute))
        : [{ namespace: catalog.url, name: table }];
  return [...new Map(named.map((dataset) => [JSON.stringify(dataset), dataset])).values()].slice(0, mostInputs);
}

/**
 * Returns the dataset of a file, or of files in a folder. Like OpenLineage's own clients, it removes trailing segments
 * that change from run to run: wildcards, `dt=2026-11-22` and dates. So the runs of all dates have the same dataset.
 */
export function filesDataset(path: string, absolute: (path: string) => string): DatasetName {
  const uri = isObjectUri(path) ? parseObjectUri(path) : undefined;
  const segments = (uri?.key ?? absolute(path)).split("/");
  const wildcard = segments.findIndex((segment) => /[*?[\]{}]/.test(segment));
  const fixed = wildcard < 0 ? segments : segments.slice(0, wildcard);
  if (fixed.length > 2 && /\.\w+$/.test(fixed.at(-1) ?? "") && isOfOneRun(fixed.at(-2) ?? "")) {
    fixed.pop(); // a file in the folder of one run
  }
  while (fixed.length > 1 && isOfOneRun(fixed.at(-1) ?? "")) {
    fixed.pop();
  }
  const name = fixed.join("/") || "/";
  return { namespace: uri === undefined ? "file" : bucketName(uri), name };
}

function isOfOneRun(segment: string): boolean {
  return segment === "" || /^[^=]+=[^=]*$|^\d{4}-?\d{2}-?\d{2}(\.\w+)?$/.test(segment);
}

/**
 * Returns the dataset of a Postgres table; undefined if the URL does not name the server. It contains only host, port
 * and database of the URL.
 */
export function tableDataset(
  url: string,
  table: string,
  env: Readonly<Record<string, string | undefined>>,
): DatasetName | undefined {
  if (url !== "" && !URL.canParse(url)) {
    return undefined;
  }
  const parsed = url === "" ? undefined : new URL(url);
  // An @ after the host belongs to a password that is not escaped. The target rejects such a URL.
  if (parsed !== undefined && `${parsed.pathname}${parsed.search}${parsed.hash}`.includes("@")) {
    return undefined;
  }
  const host = parsed?.hostname || env["PGHOST"] || "localhost";
  const port = parsed?.port || env["PGPORT"] || "5432";
  const database = parsed?.pathname.slice(1) || env["PGDATABASE"] || parsed?.username || env["PGUSER"];
  const qualified = table.includes(".") ? table : `public.${table}`;
  return {
    namespace: `postgres://${host}:${port}`,
    name: database === undefined ? qualified : `${database}.${qualified}`,
  };
}

type Environment = Readonly<Record<string, string | undefined>>;

interface ParentRun {
  readonly run: { readonly runId: string };
  readonly job: { readonly namespace: string; readonly name: string };
}

/**
 * Returns the parent of an attempt: `OPENLINEAGE_PARENT_ID` (`namespace/job/run id`), else the task that Airflow's
 * variables name; undefined: neither is set.
 */
export function parentRun(env: Environment): ParentRun | undefined {
  const [, namespace, name, runId] =
    /^(.+)\/([^/]+)\/([\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12})$/i.exec(env["OPENLINEAGE_PARENT_ID"] ?? "") ?? [];
  if (namespace !== undefined && name !== undefined && runId !== undefined) {
    return { run: { runId }, job: { namespace, name } };
  }
  return airflowTask(env);
}

function airflowTask(env: Environment): ParentRun | undefined {
  const { AIRFLOW_CTX_DAG_ID: dag, AIRFLOW_CTX_TASK_ID: task } = env;
  const attempt = env["AIRFLOW_CTX_TRY_NUMBER"] ?? "1";
  const instant = instantOf(dateOfTask(env));
  if (dag === undefined || task === undefined || instant === undefined) {
    return undefined;
  }
  const namespace = env["AIRFLOW__OPENLINEAGE__NAMESPACE"] || env["OPENLINEAGE_NAMESPACE"] || "default";
  // -1: the task is not mapped. Airflow has no variable for the index of a mapped task; its DAG can set one.
  const mapIndex = env["AIRFLOW_CTX_MAP_INDEX"] || "-1";
  const runId = staticUuid(instant, `${namespace}.${dag}.${task}.${attempt}.${mapIndex}`);
  return { run: { runId }, job: { namespace, name: `${dag}.${task}` } };
}

/**
 * Returns the date that the provider makes a task's id from, as Airflow writes it: the logical date (Airflow 2 calls it
 * the execution date), or of a run without one, `run_after`. Airflow has no variable for the latter, but the ids that it
 * gives to such runs contain it: `asset_triggered__2026-11-22T00:00:00.123456+00:00_x7Gh2kQp`.
 */
function dateOfTask({
  AIRFLOW_CTX_LOGICAL_DATE: logicalDate,
  AIRFLOW_CTX_EXECUTION_DATE: executionDate,
  AIRFLOW_CTX_DAG_RUN_ID: dagRunId,
}: Environment): string | undefined {
  return logicalDate || executionDate || /__([^_]+)(_\w+)?$/.exec(dagRunId ?? "")?.[1];
}

/** An instant with the microseconds of Python's `datetime`. */
interface Instant {
  /** Microseconds since 1970. */
  readonly us: number;
  /** The instant as `isoformat()` writes it in UTC: with six digits of a second's fraction, or none. */
  readonly text: string;
}

/** Of a date and time that has an offset from UTC; undefined: anything else. */
function instantOf(text = ""): Instant | undefined {
  const [, wholeSeconds, digits = "", offset] =
    /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(Z|[+-]\d\d:\d\d)$/.exec(text) ?? [];
  const ms = Date.parse(`${wholeSeconds}${offset}`);
  if (Number.isNaN(ms)) {
    return undefined;
  }
  const fraction = digits.padEnd(6, "0");
  const seconds = new Date(ms).toISOString().slice(0, 19);
  return {
    us: ms * 1000 + Number(fraction),
    text: `${seconds}${fraction === "000000" ? "" : `.${fraction}`}+00:00`,
  };
}

/**
 * Returns the id that Airflow's OpenLineage provider gives a task: `generate_static_uuid` of openlineage-python, a UUID
 * of version 7 whose random bits are the start of SHA-1(instant + data).
 */
function staticUuid({ us, text }: Instant, data: string): string {
  const digest = createHash("sha1")
    .update(text + data)
    .digest("hex");
  const random = (BigInt(`0x${digest}`) >> 84n) & ((1n << 80n) - 1n);
  let value = (BigInt(Math.floor(us / 1000)) << 80n) | random;
  value = (value & ~(0xf000n << 64n)) | (7n << 76n);
  value = (value & ~(0xc000n << 48n)) | (0x8000n << 48n);
  const hex = value.toString(16).padStart(32, "0");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
