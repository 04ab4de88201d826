import { spanCount } from "../../../plan/spans.js";
import type { FinishedPart } from "./manifest.js";
import type { CommittedPart } from "./parts.js";
import type { Maker, StoredPlan } from "../../port.js";

/** What is known of a run's spans. */
export interface Known {
  readonly committed: Uint8Array;
  readonly parts: Map<number, CommittedPart>;
  /** Those that this attempt committed or adopted. */
  readonly own: Map<number, FinishedPart>;
}

export function knownOf({ plan }: StoredPlan, parts: ReadonlyMap<number, CommittedPart>): Known {
  const known: Known = { committed: new Uint8Array(spanCount(plan)), parts: new Map(), own: new Map() };
  note(known, parts);
  return known;
}

/** Adds to what is known. */
export function note(known: Known, parts: ReadonlyMap<number, CommittedPart>): void {
  for (const [span, { rejected, rejectsSha256, filtered, maker }] of parts) {
    known.committed[span] = 1;
    known.parts.set(span, { rejected, rejectsSha256, filtered, maker });
  }
}

/** Adds what this attempt committed or adopted. */
export function noteOwn(known: Known, part: FinishedPart): void {
  known.own.set(part.span, part);
  note(known, new Map([[part.span, part]]));
}

/** Rows that the committed spans rejected. */
export function rejectedRows({ parts }: Known): number {
  return [...parts.values()].reduce((sum, { rejected }) => sum + rejected, 0);
}

/** Who committed which span. */
export function makersOf({ parts }: Known): Map<number, Maker> {
  return new Map([...parts].map(([span, part]) => [span, part.maker]));
}
