import type { Plan } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import type { RowsOfRun } from "../../publish/rows-of-run.js";
import type { CommittedSpan } from "./control/spans.js";

/** The committed spans of a run, as far as this attempt has read or committed them. */
export interface CommittedSpans {
  readonly committed: Uint8Array;
  readonly spans: Map<number, CommittedSpan>;
}

export function committedSpansOf(plan: Plan, spans: readonly CommittedSpan[]): CommittedSpans {
  const known: CommittedSpans = { committed: new Uint8Array(spanCount(plan)), spans: new Map() };
  addSpans(known, spans);
  return known;
}

/** Adds committed spans to what is known of a run. */
export function addSpans({ committed, spans }: CommittedSpans, found: readonly CommittedSpan[]): void {
  for (const one of found) {
    committed[one.span] = 1;
    spans.set(one.span, one);
  }
}

/** What became of the rows of committed spans. */
export function rowsOf({ spans }: CommittedSpans): RowsOfRun {
  const rows = { output: 0, rejected: 0, filtered: 0 };
  for (const span of spans.values()) {
    rows.output += span.rows;
    rows.rejected += span.rejected;
    rows.filtered += span.filtered;
  }
  return rows;
}
