import { profileColumn, profileLimits } from "#src/checks/profiles/column-profile.js";
import { hideRareValues } from "#src/checks/profiles/rare-values.js";
import { profileRows, type SpanProfile, spanProfileTexts } from "#src/checks/span-profile.js";
import type { SpanOutput } from "#src/columnar/types.js";
import { spanAt } from "#src/plan/spans.js";
import type { StoredPlan } from "#src/sink/port.js";
import { textColumn } from "./batches.js";
import type { BegunRun } from "./sink-drive.js";
import { idsOf, outputOf, whole } from "./sinks.js";

/** Of 25 rows in three spans, 24 have one city, which is rare in each span, and one has another. */
function profiledSpan(ids: readonly number[]): SpanProfile {
  const city = profileColumn(
    { type: "utf8" },
    textColumn(ids.map((id) => (id === 3 ? "Ys" : "Rome"))),
    profileLimits(1),
  );
  return profileRows(outputOf(ids), { predicted: [{ name: "score" }] }, new Map([["city", city]]));
}

/** The profile of the whole run. */
export const wholeSealed = profiledSpan(Array.from({ length: 25 }, (_, id) => id));
/** Its features as they are shown. */
export const shownFeatures = hideRareValues(wholeSealed.features ?? new Map());

/** The rows of a span with their profile. */
export function outputWith(ids: readonly number[]): SpanOutput {
  return { ...whole(outputOf(ids)), ...spanProfileTexts(profiledSpan(ids)) };
}

/** Commits spans with their profiles. */
export async function commitSealed(run: BegunRun, { plan }: StoredPlan, spans: readonly number[]): Promise<void> {
  for (const index of spans) {
    const span = spanAt(plan, index);
    await run.commit(span, outputWith(idsOf(span)));
  }
}
