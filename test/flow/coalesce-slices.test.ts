import { describe, expect, test } from "vitest";
import type { PlannedShard } from "#src/run/plan/plan.js";
import { type CoalesceLimits, coalesceSlices, type SliceOfRun } from "#src/flow/read.js";

const limits: CoalesceLimits = { uniform: true, shards: 4, rows: 100 };

/** `past`: rows of the run before it that are not asked for. */
type Shard = Partial<PlannedShard> & { readonly from?: number; readonly to?: number; readonly past?: number };

function groupsOf(shards: readonly Shard[], changed: Partial<CoalesceLimits> = {}): string[] {
  let row = 0;
  const slices = shards.map(({ from, to, past = 0, ...given }, index): SliceOfRun => {
    const shard = { uri: `d/s${index}`, rows: 10, sizeBytes: 10, fingerprint: "", ...given };
    const slice = { shard, rowStart: from ?? 0, rowEnd: to ?? shard.rows };
    row += past + slice.rowEnd - slice.rowStart;
    return { slice, rowStart: row - (slice.rowEnd - slice.rowStart) };
  });
  return [...coalesceSlices(slices, { ...limits, ...changed })].map((group) =>
    group.map(({ slice }) => slice.shard.uri.split("/").at(-1)).join(" "),
  );
}

describe("small shards are read in one go", () => {
  test("small shards are read together in order, a bounded number at once", () => {
    expect(groupsOf(Array.from({ length: 9 }, () => ({})))).toEqual(["s0 s1 s2 s3", "s4 s5 s6 s7", "s8"]);
  });

  test.each([
    { when: "their rows are too many", shards: [{ rows: 60 }, { rows: 40 }, { rows: 1 }], groups: ["s0 s1", "s2"] },
    { when: "one is large", shards: [{}, { rows: 101 }, {}, {}], groups: ["s0", "s1", "s2 s3"] },
    { when: "one has many bytes", shards: [{}, { sizeBytes: 2 ** 25 }, {}], groups: ["s0", "s1", "s2"] },
    {
      when: "a folder is another one",
      shards: [{ uri: "d=1/s0" }, { uri: "d=1/s1" }, { uri: "d=2/s2" }],
      groups: ["s0 s1", "s2"],
    },
    { when: "there are others between them", shards: [{}, {}, { past: 10 }, {}], groups: ["s0 s1", "s2 s3"] },
    { when: "only a part is wanted of one", shards: [{ from: 3 }, {}, {}, { to: 5 }], groups: ["s0", "s1 s2", "s3"] },
  ])("small shards are not all read together when $when", ({ shards, groups }) => {
    expect(groupsOf(shards)).toEqual(groups);
  });

  test("small shards are not read together when their columns differ", () => {
    expect(groupsOf([{}, {}], { uniform: false })).toEqual(["s0", "s1"]);
  });
});
