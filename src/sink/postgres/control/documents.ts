import { parseJson } from "../../../plan/parse-plan.js";
import type { RunId } from "../../../plan/plan.js";
import type { DocumentKind } from "../../ledger.js";
import type { Session } from "../connections.js";
import { type Control, damagedRun } from "./control.js";

/** Documents of which the last version counts. Of the others it is the first: nobody can change a decision by inserting. */
const changing: ReadonlySet<DocumentKind<unknown>["name"]> = new Set(["errors", "spending"]);

/** SQL for the documents of a run that count, as an object of their texts. @param run SQL for its id */
export function documentsSql({ table }: Pick<Control, "table">, run: string): string {
  const last = [...changing].map((name) => `'${name}'`).join(", ");
  return `(SELECT json_object_agg(name, text) FROM (
      SELECT DISTINCT ON (name) name, document::text AS text FROM ${table("documents")} WHERE run_id = ${run}
      ORDER BY name, CASE WHEN name IN (${last}) THEN -version ELSE version END) AS d)`;
}

/** Parses the text of a document; undefined: there is none. @throws JobError OUTPUT_DAMAGED */
export function parseDocument<T>(
  { schema }: Pick<Control, "schema">,
  runId: RunId,
  { name, parse }: DocumentKind<T>,
  text: string | undefined,
): T | undefined {
  const document = text === undefined ? undefined : parse(parseJson(text));
  if (text !== undefined && document === undefined) {
    throw damagedRun(`reading ${schema}.documents: the ${name} of run ${runId} was not written by infer-batch`, {
      hint: "the control tables were changed; restore them from a backup",
      runId,
    });
  }
  return document;
}

/** Reads a document of a run; undefined: there is none. @throws JobError OUTPUT_DAMAGED */
export async function readDocument<T>(
  session: Session,
  control: Control,
  runId: RunId,
  kind: DocumentKind<T>,
): Promise<T | undefined> {
  const { rows } = await session.query<{ document: string }>({
    text: `SELECT document::text AS document FROM ${control.table("documents")} WHERE run_id = $1 AND name = $2
      ORDER BY version ${changing.has(kind.name) ? "DESC" : ""} LIMIT 1`,
    values: [runId, kind.name],
  });
  return parseDocument(control, runId, kind, rows[0]?.document);
}

/** `writer` names this attempt. */
interface WritingTools {
  readonly control: Control;
  readonly writer: string;
}

/**
 * Creates a document of a run unless there is one, and returns the stored one. An insertion of the same key waits for an
 * earlier one to commit, so that the first one counts.
 */
export async function createDocument<T>(
  session: Session,
  { control, writer }: WritingTools,
  runId: RunId,
  kind: DocumentKind<T>,
  value: T,
): Promise<T> {
  await session.query({
    text: `INSERT INTO ${control.table("documents")} (run_id, name, version, document, writer) VALUES ($1, $2, 1, $3, $4)
      ON CONFLICT DO NOTHING`,
    values: [runId, kind.name, documentText(value), writer],
  });
  const stored = await readDocument(session, control, runId, kind);
  if (stored === undefined) {
    throw damagedRun(
      `writing ${control.schema}.documents: the ${kind.name} of run ${runId} is gone since it was written`,
      {
        hint: "a trigger, a rule or a policy keeps it out; remove that",
        runId,
      },
    );
  }
  return stored;
}

/** Adds the next version of a document of a planned run. The caller has locked it. */
export async function addVersion<T>(
  session: Session,
  { control: { table }, writer }: WritingTools,
  runId: RunId,
  kind: DocumentKind<T>,
  value: T,
): Promise<void> {
  await session.query({
    text: `INSERT INTO ${table("documents")} (run_id, name, version, document, writer)
      SELECT $1, $2, (SELECT coalesce(max(version), 0) + 1 FROM ${table("documents")} WHERE run_id = $1 AND name = $2), $3, $4
      WHERE EXISTS (SELECT FROM ${table("runs")} WHERE run_id = $1)`,
    values: [runId, kind.name, documentText(value), writer],
  });
}

/**
 * A value as JSON of which Postgres can read every part: it has no text with the character of code 0, and none with
 * half of a surrogate pair.
 */
export function documentText(value: unknown): string {
  return JSON.stringify(value).replaceAll(
    /(?<!\\)((?:\\\\)*)\\u(0000|d[0-9a-f]{3})/g,
    (_, before: string, code) => `${before}${code === "0000" ? "\u2400" : "\ufffd"}`,
  );
}
