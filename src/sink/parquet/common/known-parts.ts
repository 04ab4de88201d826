import { spanCount } from "../../../plan/spans.js";
import type { FinishedPart } from "./manifest.js";
import type { CommittedPart } from "./parts.js";
import type { Maker, StoredPlan } from "../../port.js";

/** What this attempt knows of a run's spans. */
export interface Known {
  readonly committed: Uint8Array;
  readonly parts: Map<number, CommittedPart>;
  /** Parts that this attempt committed or adopted. */
  readonly own: Map<number, FinishedPart>;
}

export function knownOf({ plan }: StoredPlan, parts: ReadonlyMap<number, CommittedPart>): Known {
  const known: Known = { committed: new Uint8Array(spanCount(plan)), parts: new Map(), own: new Map() };
  addParts(known, parts);
  return known;
}

/** Adds parts to what is known. */
export function addParts(known: Known, parts: ReadonlyMap<number, CommittedPart>): void {
  for (const [span, { rejected, rejectsSha256, filtered, maker }] of parts) {
    known.committed[span] = 1;
    known.parts.set(span, { rejected, rejectsSha256, filtered, maker });
  }
}

/** Adds a part that this attempt committed or adopted. */
export function addOwnPart(known: Known, part: FinishedPart): void {
  known.own.set(part.span, part);
  addParts(known, new Map([[part.span, part]]));
}

/** Counts the rejected rows of committed spans. */
export function rejectedRows({ parts }: Known): number {
  return [...parts.values()].reduce((sum, { rejected }) => sum + rejected, 0);
}

/** The attempt that committed each span, by span. */
export function makersOf({ parts }: Known): Map<number, Maker> {
  return new Map([...parts].map(([span, part]) => [span, part.maker]));
}
