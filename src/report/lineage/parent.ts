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
  const { AIRFLOW_CTX_DAG_ID: dag, AIRFLOW_CTX_TASK_ID: task, AIRFLOW_CTX_EXECUTION_DATE: date } = env;
  const attempt = env["AIRFLOW_CTX_TRY_NUMBER"] ?? "1";
  const instantMs = Date.parse(date ?? "");
  if (dag === undefined || task === undefined || date === undefined || Number.isNaN(instantMs)) {
    return undefined;
  }
  const namespace = env["AIRFLOW__OPENLINEAGE__NAMESPACE"] || env["OPENLINEAGE_NAMESPACE"] || "default";
  // -1: the task is not mapped. Airflow has no variable for the index of a mapped task.
  const runId = staticUuid(instantMs, date, `${namespace}.${dag}.${task}.${attempt}.-1`);
  return { run: { runId }, job: { namespace, name: `${dag}.${task}` } };
}

/**
 * Returns the id that Airflow's OpenLineage provider gives a task: `generate_static_uuid` of openlineage-python, a UUID
 * of version 7 whose random bits are the start of SHA-1(instant + data).
 * @param text the instant as Airflow wrote it, which has its microseconds
 */
function staticUuid(instantMs: number, text: string, data: string): string {
  const digest = createHash("sha1")
    .update(pythonIso(instantMs, text) + data)
    .digest("hex");
  const random = (BigInt(`0x${digest}`) >> 84n) & ((1n << 80n) - 1n);
  let value = (BigInt(Math.floor(instantMs)) << 80n) | random;
  value = (value & ~(0xf000n << 64n)) | (7n << 76n);
  value = (value & ~(0xc000n << 48n)) | (0x8000n << 48n);
  const hex = value.toString(16).padStart(32, "0");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** An instant as Python's `isoformat()` writes it in UTC: with six digits of a second's fraction, or none. */
function pythonIso(instantMs: number, text: string): string {
  const fraction = (/[.,](\d{1,6})/.exec(text)?.[1] ?? "").padEnd(6, "0");
  const seconds = new Date(instantMs).toISOString().slice(0, 19);
  return `${seconds}${fraction === "000000" ? "" : `.${fraction}`}+00:00`;
}
