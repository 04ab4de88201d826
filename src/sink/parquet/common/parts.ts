import type { DuckDbAccess, DuckDBConnection } from "../../../duckdb/instance.js";
import { firstLine } from "../../../duckdb/sql.js";
import { messageOf } from "../../../util/errors.js";
import { outputColumns } from "../../../binding/contract.js";
import type { Span } from "../../../plan/plan.js";
import { spanAt, spanCount } from "../../../plan/spans.js";
import { type DamagedFile, refuseDamaged } from "./damage.js";
import { ifThere, listFolder, type TargetState } from "./file-system.js";
import type { Layout } from "./layout.js";
import { type PartFacts, type PartLabel, partSchema } from "./part-label.js";
import type { Opening } from "../../../publish/opening.js";
import type { StoredPlan } from "../../port.js";

/** The committed parts of a run, by span. */
export type CommittedParts = ReadonlyMap<number, CommittedPart>;

/** The fields of a part's label that are kept. */
export type CommittedPart = SpanCounts & Pick<PartLabel, "rejectsSha256" | "maker">;

/** Counts of the rows of a span that are not in its part. */
export type SpanCounts = Pick<PartLabel, "rejected" | "filtered" | "erased">;

/** Counts the rows of a span that are in its part. */
export function partRows({ rowStart, rowEnd }: Pick<Span, "rowStart" | "rowEnd">, counts: SpanCounts): number {
  return rowEnd - rowStart - counts.rejected - counts.filtered - (counts.erased ?? 0);
}

/** Whether all rows of a span are accounted for. */
export function isWholeSpan(span: Pick<Span, "rowStart" | "rowEnd">, part: SpanCounts & { rows: number }): boolean {
  return part.rows === partRows(span, part);
}

/** Footers that one query reads. */
const partsPerQuery = 256;

/**
 * Lists the paths of a run's parts, by span. A part that a finish moves during the call is found: the staged folder is
 * listed first, then the final one.
 */
export async function listParts(fs: TargetState, layout: Layout): Promise<Map<number, string>> {
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

/** Finds a span's part, at its final path or where it is staged, also while a finish moves it. */
export async function findPart(
  fs: TargetState,
  layout: Layout,
  span: number,
): Promise<{ path: string; sizeBytes: number } | undefined> {
  const [from = "", to = from] = layout.pathsOf(span);
  for (const path of [to, from, to]) {
    const sizeBytes = await ifThere(fs.sizeOf(path));
    if (sizeBytes !== undefined) {
      return { path, sizeBytes };
    }
  }
  return undefined;
}

/** Parts that match the plan, by span, and parts that do not. */
export interface InspectedParts {
  readonly committed: Map<number, CommittedPart>;
  readonly damaged: DamagedFile[];
}

/**
 * Returns the committed parts if none is damaged. For a run to be discarded, returns the undamaged parts.
 * @throws JobError OUTPUT_DAMAGED that names all damaged parts
 */
export function requireUndamaged(
  { plan }: StoredPlan,
  { committed, damaged }: InspectedParts,
  { toDiscard }: Opening = { toDiscard: false },
): Map<number, CommittedPart> {
  if (toDiscard) {
    return committed;
  }
  const unless = plan.staged
    ? "restore what was committed; or, if the run is held, discard it; or, if it is neither held nor approved, "
    : "";
  refuseDamaged(plan.runId, damaged, {
    one: `${unless}delete this file and run the same command again: its span is then scored anew`,
    more: `${unless}delete these files and run the same command again: their spans are then scored anew`,
  });
  return committed;
}

/** Checks the label, rows and columns of parts against the plan. @param nameOf names the part at a path in messages */
export async function inspectParts(
  duckdb: DuckDbAccess,
  stored: StoredPlan,
  paths: ReadonlyMap<number, string>,
  nameOf: (path: string) => string = (path) => path,
): Promise<InspectedParts> {
  const parts: InspectedParts = { committed: new Map(), damaged: [] };
  if (paths.size === 0) {
    return parts; // a new run: DuckDB's library is loaded later, while rows are scored
  }
  const all = [...paths];
  const connection = await duckdb.connect();
  try {
    for (let start = 0; start < all.length; start += partsPerQuery) {
      const group = all.slice(start, start + partsPerQuery);
      const facts = await readGroup(
        connection,
        group.map(([, path]) => path),
      );
      for (const [span, path] of group) {
        const found = checkPart(stored, span, facts.get(path));
        if (typeof found === "object") {
          const { rejected, rejectsSha256, filtered, erased, maker } = found;
          parts.committed.set(span, { rejected, rejectsSha256, filtered, erased, maker });
        } else {
          const cause = facts.get(path);
          parts.damaged.push({ path: nameOf(path), found: found.replaceAll(path, nameOf(path)), cause });
        }
      }
    }
  } finally {
    connection.closeSync();
  }
  return parts;
}

/** Reads the profiles of parts, given and returned by span; a part without one is left out. */
export async function readProfiles(
  duckdb: DuckDbAccess,
  paths: ReadonlyMap<number, string>,
): Promise<Map<number, string>> {
  const profiles = new Map<number, string>();
  if (paths.size === 0) {
    return profiles;
  }
  const { describeProfiles } = await import("./part-file.js"); // with it, DuckDB's library is loaded
  const all = [...paths];
  const connection = await duckdb.connect();
  try {
    for (let start = 0; start < all.length; start += partsPerQuery) {
      const group = all.slice(start, start + partsPerQuery);
      const found = await describeProfiles(
        connection,
        group.map(([, path]) => path),
      );
      for (const [span, path] of group) {
        const text = found.get(path);
        if (text !== undefined) {
          profiles.set(span, text);
        }
      }
    }
  } finally {
    connection.closeSync();
  }
  return profiles;
}

/** Reads the facts of parts, by path; an Error for a part that cannot be read. */
async function readGroup(
  connection: DuckDBConnection,
  paths: readonly string[],
): Promise<Map<string, PartFacts | Error>> {
  const { describeParts } = await import("./part-file.js"); // with it, DuckDB's library is loaded
  try {
    const facts = await describeParts(connection, paths);
    return new Map(facts.map((part) => [part.path, part]));
  } catch (error) {
    const [path = "", ...others] = paths;
    if (others.length === 0) {
      return new Map([[path, error instanceof Error ? error : new Error(messageOf(error), { cause: error })]]);
    }
    const found = new Map<string, PartFacts | Error>();
    for (const one of paths) {
      for (const [key, value] of await readGroup(connection, [one])) {
        found.set(key, value);
      }
    }
    return found;
  }
}

/** The label of a part that matches the plan; else what is wrong with it. */
function checkPart(stored: StoredPlan, span: number, facts: PartFacts | Error | undefined): PartLabel | string {
  if (facts instanceof Error) {
    return firstLine(messageOf(facts));
  }
  const { plan, planId } = stored;
  const { rowStart, rowEnd } = spanAt(plan, span);
  const schema = partSchema(outputColumns(plan.contract));
  const label = facts?.label;
  if (facts === undefined || label === undefined) {
    return "it is not labelled as a part";
  }
  if (span >= spanCount(plan) || label.span !== span || label.runId !== plan.runId || label.planId !== planId) {
    return `it is labelled as span ${label.span} of run ${label.runId}, plan ${label.planId.slice(0, 12)}`;
  }
  if (label.rowStart !== rowStart || label.rowEnd !== rowEnd || !isWholeSpan(label, { ...label, rows: facts.rows })) {
    return `it holds ${facts.rows} rows, rejected ${label.rejected} and filtered out ${label.filtered} where the plan has rows ${rowStart} to ${rowEnd}`;
  }
  return facts.schema === schema ? label : `its columns are (${facts.schema}), planned (${schema})`;
}
