import type { DuckDbAccess, DuckDBConnection } from "../duckdb/instance.js";
import { firstLine } from "../duckdb/sql.js";
import { JobError, messageOf } from "../errors.js";
import { outputColumns } from "../batch/contract.js";
import type { Span } from "../plan/plan.js";
import { spanAt, spanCount } from "../plan/spans.js";
import { listFolder, sizeIfThere } from "./claim.js";
import type { Looking } from "./file-system.js";
import type { Layout } from "./layout.js";
import { type PartFacts, type PartLabel, partSchema } from "./part-label.js";
import type { StoredPlan } from "./port.js";

/** By committed span: what its part says of itself. */
export type CommittedParts = ReadonlyMap<number, CommittedPart>;

/** What is kept of a part's label. */
export type CommittedPart = SpanCounts & Pick<PartLabel, "rejectsSha256" | "maker">;

/** Rows of a span that are not in its part. */
export type SpanCounts = Pick<PartLabel, "rejected" | "filtered">;

/** Rows of a span that are in its part. */
export function rowsLeft({ rowStart, rowEnd }: Pick<Span, "rowStart" | "rowEnd">, counts: SpanCounts): number {
  return rowEnd - rowStart - counts.rejected - counts.filtered;
}

/** Whether all rows of a span are accounted for. */
export function wholeSpan(span: Pick<Span, "rowStart" | "rowEnd">, part: SpanCounts & { rows: number }): boolean {
  return part.rows === rowsLeft(span, part);
}

/** Footers read by one query. */
const partsPerQuery = 256;

/**
 * Paths of a run's parts, by span. One that the finish of the run moves counts wherever it is: it is looked for where
 * it comes from first, then where it stays.
 */
export async function listParts(fs: Looking, layout: Layout): Promise<Map<number, string>> {
  const paths = new Map<number, string>();
  for (const name of layout.parts === layout.folder ? [] : await listFolder(fs, layout.parts)) {
    const span = layout.committedSpanOf(name);
    if (span !== undefined) {
      paths.set(span, `${layout.parts}/${name}`);
    }
  }
  for (const name of await listFolder(fs, layout.folder)) {
    const span = layout.spanOf(name);
    if (span !== undefined) {
      paths.set(span, `${layout.folder}/${name}`);
    }
  }
  return paths;
}

/** Where a part is: among those that readers see, or not yet. One that was moved meanwhile is where it was moved to. */
export async function findPart(
  fs: Looking,
  layout: Layout,
  span: number,
): Promise<{ path: string; sizeBytes: number } | undefined> {
  const [from = "", to = from] = layout.placesOf(span);
  for (const path of [to, from, to]) {
    const sizeBytes = await sizeIfThere(fs, path);
    if (sizeBytes !== undefined) {
      return { path, sizeBytes };
    }
  }
  return undefined;
}

/**
 * Checks parts against the plan: label, rows and columns, not just their names.
 * @param nameOf how a message names the part at a path
 * @throws JobError OUTPUT_DAMAGED
 */
export async function inspectParts(
  duckdb: DuckDbAccess,
  stored: StoredPlan,
  paths: ReadonlyMap<number, string>,
  nameOf: (path: string) => string = (path) => path,
): Promise<Map<number, CommittedPart>> {
  const committed = new Map<number, CommittedPart>();
  if (paths.size === 0) {
    return committed; // of a new run: what it takes to look is loaded beside the scoring
  }
  const all = [...paths];
  const connection = await duckdb.connect();
  try {
    for (let start = 0; start < all.length; start += partsPerQuery) {
      const group = all.slice(start, start + partsPerQuery);
      const facts = await readGroup(
        connection,
        group.map(([, path]) => path),
        nameOf,
      );
      for (const [span, path] of group) {
        const { rejected, rejectsSha256, filtered, maker } = checkPart(stored, span, facts.get(path), nameOf(path));
        committed.set(span, { rejected, rejectsSha256, filtered, maker });
      }
    }
  } finally {
    connection.closeSync();
  }
  return committed;
}

async function readGroup(
  connection: DuckDBConnection,
  paths: readonly string[],
  nameOf: (path: string) => string,
): Promise<Map<string, PartFacts>> {
  const { describeParts } = await import("./part-file.js"); // and DuckDB's library with it
  try {
    const facts = await describeParts(connection, paths);
    return new Map(facts.map((part) => [part.path, part]));
  } catch (error) {
    for (const path of paths.length > 1 ? paths : []) {
      await readGroup(connection, [path], nameOf);
    }
    throw damaged(nameOf(paths[0] ?? ""), withNames(firstLine(messageOf(error)), paths, nameOf), error);
  }
}

function withNames(message: string, paths: readonly string[], nameOf: (path: string) => string): string {
  return paths.reduce((text, path) => text.replaceAll(path, nameOf(path)), message);
}

function checkPart(stored: StoredPlan, span: number, facts: PartFacts | undefined, path: string): PartLabel {
  const { plan, planId } = stored;
  const { rowStart, rowEnd } = spanAt(plan, span);
  const schema = partSchema(outputColumns(plan.contract));
  const label = facts?.label;
  if (facts === undefined || label === undefined) {
    throw damaged(path, "it is not labelled as a part");
  }
  if (span >= spanCount(plan) || label.span !== span || label.runId !== plan.runId || label.planId !== planId) {
    throw damaged(
      path,
      `it is labelled as span ${label.span} of run ${label.runId}, plan ${label.planId.slice(0, 12)}`,
    );
  }
  if (label.rowStart !== rowStart || label.rowEnd !== rowEnd || !wholeSpan(label, { ...label, rows: facts.rows })) {
    throw damaged(
      path,
      `it holds ${facts.rows} rows, rejected ${label.rejected} and filtered out ${label.filtered} where the plan has rows ${rowStart} to ${rowEnd}`,
    );
  }
  if (facts.schema !== schema) {
    throw damaged(path, `its columns are (${facts.schema}), planned (${schema})`);
  }
  return label;
}

function damaged(path: string, found: string, cause?: unknown): JobError {
  return new JobError("OUTPUT_DAMAGED", `checking ${path}: ${found}`, {
    hint: "delete this file and run the same command again: its span is then scored anew",
    cause,
  });
}
