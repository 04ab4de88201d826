import { expect, test } from "vitest";
import { statsText } from "#src/report/stats-text.js";
import { runProfile } from "../support/run-profiles.js";

test.each([
  [20, "the run was planned without checks"],
  [0, "no row was scored"],
])("the statistics of a run of %i rows without features say that %s", (rows, why) => {
  const text = statsText({ profile: runProfile({ rows }), state: "published", challenger: undefined });
  expect(text).toContain(`\nfeatures: not profiled, because ${why}`);
});
