import { expect, test } from "vitest";
import type { PinnedRun } from "#src/plan/plan.js";
import { runProfileText } from "#src/publish/profile-text.js";
import { firstWithRows } from "#src/run/judging/baseline.js";
import type { Sink } from "#src/sink/port.js";
import { runProfile } from "../support/run-profiles.js";

/** The number of rows of each run; null: its profile cannot be read. */
type Rows = readonly (number | null)[];

/** Returns the index of the chosen run, and those whose profiles were read. */
async function chosenOf(rows: Rows): Promise<{ readonly chosen: string | undefined; readonly read: string[] }> {
  const read: string[] = [];
  const readProfile = ({ runId, date }: PinnedRun): Promise<string> => {
    read.push(runId);
    const found = rows[Number(runId)] ?? null;
    return Promise.resolve(found === null ? "{}" : runProfileText({ ...runProfile({ rows: found }), runId, date }));
  };
  const runs = rows.map((_, index) => ({ runId: String(index), date: "2026-11-20", sha256: "", place: "" }));
  const first = await firstWithRows({ sink: { readProfile } as unknown as Sink }, runs);
  return { chosen: first?.runId, read };
}

test("the first run with 50 rows is chosen, and no profile after it is read", async () => {
  expect(await chosenOf([0, 49, 50, null])).toEqual({ chosen: "2", read: ["0", "1", "2"] });
});

test("the first run is chosen if none has 50 rows, and none of no runs", async () => {
  expect((await chosenOf([7, 49, 20])).chosen).toBe("0");
  expect((await chosenOf([])).chosen).toBeUndefined();
});

test("a profile that cannot be read ends planning, as that of any run to compare with does", async () => {
  await expect(chosenOf([7, null, 50])).rejects.toMatchObject({
    exitCode: 75,
    message: "reading the profile of run 1: it is not one of this program",
    hint: "the checks compare this run with it; use the version of infer-batch that wrote it",
  });
});
