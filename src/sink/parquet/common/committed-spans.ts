import { mergeProfiles, parseProfile, type SpanProfile } from "../../../checks/profile/profile.js";
import type { SpanOutput } from "../../../columnar/types.js";
import type { Plan } from "../../../plan/plan.js";
import { spanAt, spanCount } from "../../../plan/spans.js";
import type { FinishedPart } from "./manifest.js";
import { type CommittedPart, partRows } from "./parts.js";
import type { StoredPlan } from "../../port.js";
import type { CommittedBy } from "../../../publish/committed-by.js";

/** The committed spans of a run, as far as this attempt has read or committed them. */
export interface CommittedSpans {
  readonly committed: Uint8Array;
  readonly parts: Map<number, CommittedPart>;
  /** Parts that this attempt committed or adopted. */
  readonly own: Map<number, FinishedPart>;
  /** The spans that this attempt committed itself, whose profiles are part of `profile`. */
  readonly profiled: Set<number>;
  /** The merged profiles of spans that this attempt committed itself; undefined: there is none. */
  profile: SpanProfile | undefined;
}

export function committedSpansOf({ plan }: StoredPlan, parts: ReadonlyMap<number, CommittedPart>): CommittedSpans {
  const known: CommittedSpans = {
    committed: new Uint8Array(spanCount(plan)),
    parts: new Map(),
    own: new Map(),
    profiled: new Set(),
    profile: undefined,
  };
  addParts(known, parts);
  return known;
}

/** Adds committed parts to `known`. */
export function addParts(known: CommittedSpans, parts: ReadonlyMap<number, CommittedPart>): void {
  for (const [span, { rejected, rejectsSha256, filtered, erased, maker }] of parts) {
    known.committed[span] = 1;
    known.parts.set(span, { rejected, rejectsSha256, filtered, erased, maker });
  }
}

/** Adds a part that this attempt committed or adopted. */
export function addOwnPart(known: CommittedSpans, part: FinishedPart): void {
  known.own.set(part.span, part);
  addParts(known, new Map([[part.span, part]]));
}

/** Adds the profile of a span that this attempt committed itself. */
export function addOwnProfile(
  known: CommittedSpans,
  span: number,
  { profile: text }: Pick<SpanOutput, "profile">,
): void {
  if (!known.profiled.has(span)) {
    known.profiled.add(span);
    const profile = parseProfile(text);
    known.profile = known.profile === undefined ? profile : mergeProfiles(known.profile, profile);
  }
}

/** Counts the rejected rows of committed spans. */
export function rejectedRows({ parts }: CommittedSpans): number {
  return [...parts.values()].reduce((sum, { rejected }) => sum + rejected, 0);
}

/** Counts the rows of committed spans that `input.where` left out. */
export function filteredRows({ parts }: CommittedSpans): number {
  return [...parts.values()].reduce((sum, { filtered }) => sum + filtered, 0);
}

/** Counts the rows in the parts of committed spans. */
export function outputRows(plan: Plan, { parts }: CommittedSpans): number {
  return [...parts].reduce((sum, [span, counts]) => sum + partRows(spanAt(plan, span), counts), 0);
}

/** The attempt that committed each span, by span. */
export function committedByOf({ parts }: CommittedSpans): Map<number, CommittedBy> {
  return new Map([...parts].map(([span, part]) => [span, part.maker]));
}
