import { join } from "node:path";
import { type DuckDb, type DuckDBConnection, firstLine } from "../duckdb/instance.js";
import { JobError, messageOf } from "../errors.js";
import { outputColumns } from "../batch/contract.js";
import type { Span } from "../plan/plan.js";
import { spanAt, spanCount } from "../plan/spans.js";
import type { Layout } from "./layout.js";
import { describeParts, type PartFacts, type PartLabel, partSchema } from "./part-file.js";
import type { StoredPlan } from "./port.js";

export interface CommittedParts {
  /** One byte a span, 1 = committed. */
  readonly committed: Uint8Array;
  /** By committed span. */
  readonly counts: Map<number, SpanCounts>;
}

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
 * Checks the parts among `names` against the plan: label, rows and columns, not just their names.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function inspectParts(
  duckdb: DuckDb,
  layout: Layout,
  stored: StoredPlan,
  names: readonly string[],
): Promise<CommittedParts> {
  const committed = new Uint8Array(spanCount(stored.plan));
  const counts = new Map<number, SpanCounts>();
  const spans = names.flatMap((name) => {
    const span = layout.spanOf(name);
    return span === undefined ? [] : [span];
  });
  const connection = await duckdb.connect();
  try {
    for (let start = 0; start < spans.length; start += partsPerQuery) {
      const group = spans.slice(start, start + partsPerQuery);
      const facts = await readGroup(
        connection,
        group.map((span) => join(layout.folder, layout.part(span))),
      );
      for (const span of group) {
        const path = join(layout.folder, layout.part(span));
        const label = checkPart(stored, span, facts.get(path), path);
        committed[span] = 1;
        counts.set(span, { rejected: label.rejected, filtered: label.filtered });
      }
    }
  } finally {
    connection.closeSync();
  }
  return { committed, counts };
}

async function readGroup(connection: DuckDBConnection, paths: readonly string[]): Promise<Map<string, PartFacts>> {
  try {
    const facts = await describeParts(connection, paths);
    return new Map(facts.map((part) => [part.path, part]));
  } catch (error) {
    for (const path of paths.length > 1 ? paths : []) {
      await readGroup(connection, [path]);
    }
    throw damaged(paths[0] ?? "", firstLine(messageOf(error)), error);
  }
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
