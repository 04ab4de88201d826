import { expect, test } from "vitest";
import { statsText } from "#src/report/stats-text.js";
import { runProfile } from "../support/run-profiles.js";

test("the statistics of a run without features say why there are none", () => {
  const statsOf = (rows: number): string =>
    statsText({ profile: { ...runProfile({ rows }), features: new Map() }, state: "published", challenger: undefined });
  expect(statsOf(20)).toContain("\nfeatures: not profiled, because the run was planned without checks");
  expect(statsOf(0)).toContain("\nfeatures: not profiled, because no row was scored");
});
