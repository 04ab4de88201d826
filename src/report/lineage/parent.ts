import { createHash } from "node:crypto";

type Environment = Readonly<Record<string, string | undefined>>;

/** The run of a scheduler that started this attempt. */
export interface ParentRun {
  readonly run: { readonly runId: string };
  readonly job: { readonly namespace: string; readonly name: string };
}

/**
 * Returns the parent of an attempt: `OPENLINEAGE_PARENT_ID` (`namespace/job/run id`), else the task that Airflow's
 * variables name; undefined: neither is set.
 */
export function parentRun(env: Environment): ParentRun | undefined {
  const [, namespace, name, runId] = /^(.+)\/([^/]+)\/([^/]+)$/.exec(env["OPENLINEAGE_PARENT_ID"] ?? "") ?? [];
  if (namespace !== undefined && name !== undefined && runId !== undefined && isUuid(runId)) {
    return { run: { runId }, job: { namespace, name } };
  }
  return airflowTask(env);
}

function isUuid(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
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

/** Reads a date and time that has an offset from UTC; undefined for anything else. */
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
