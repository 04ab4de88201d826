import { execFileSync } from "node:child_process";
import { statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { pinDifference, restoreHint, touchHint } from "#src/run/plan/compare.js";
import { scratch } from "../../support/job.js";

const planned = { uri: "in/a.parquet", sizeBytes: 3310, fingerprint: "mtime:1763805600123456789" };

test.each([
  [planned, undefined],
  [{ ...planned, sizeBytes: 10 }, "it has 10 bytes, planned 3310"],
  [
    { ...planned, fingerprint: "mtime:1763805601000000000" },
    "it has the planned 3310 bytes, but was modified 2025-11-22T10:00:01Z, planned 2025-11-22T10:00:00.123456789Z",
  ],
  [
    { ...planned, fingerprint: "etag:x" },
    "it has the planned 3310 bytes, but is etag:x, planned mtime:1763805600123456789",
  ],
])("pinDifference describes a shard that is now %j", (now, difference) => {
  expect(pinDifference(planned, now)).toBe(difference);
});

test("restoreHint asks for the time of a file on disk", () => {
  expect(restoreHint(planned)).toBe("restore the planned file with its modification time (cp -p), and run again");
  expect(restoreHint({ ...planned, fingerprint: "etag:a" })).toBe("restore what was planned and run again");
});

describe("touchHint", () => {
  const now = { ...planned, fingerprint: "mtime:1763805601000000000" };

  test("touchHint names the planned time, and the digest when there is one", () => {
    expect(touchHint(planned, now, "../in/a.parquet")).toBe(
      "if its content has not changed, set its planned time again: touch -c -d 2025-11-22T10:00:00.123456789Z ../in/a.parquet",
    );
    expect(touchHint({ ...planned, sha256: "0123456789abcdef" }, now, "a")).toContain(
      "if `sha256sum` still prints 0123456789ab…, set",
    );
    expect(touchHint(planned, now, "/in/a b$(x).parquet")).toMatch(/Z '\/in\/a b\$\(x\)\.parquet'$/);
  });

  test("touchHint has no command when the size differs, or in a store", () => {
    expect(touchHint(planned, { ...planned, sizeBytes: 1 }, "a")).toBeUndefined();
    const inStore = { ...planned, fingerprint: "etag:a" };
    expect(touchHint(inStore, { ...planned, fingerprint: "etag:b" }, "a")).toBeUndefined();
  });

  test("touchHint has a command that restores a file's time to the nanosecond", async () => {
    const uri = join(scratch.path, "a.parquet");
    const pin = (): typeof planned => ({
      uri,
      sizeBytes: 0,
      fingerprint: `mtime:${statSync(uri, { bigint: true }).mtimeNs}`,
    });
    writeFileSync(uri, "");
    const before = pin();
    utimesSync(uri, 1, 1_700_000_000);
    const [, command = ""] = /(touch -c -d .*)$/.exec(touchHint(before, pin(), uri) ?? "") ?? [];
    expect(pinDifference(before, pin())).toContain("but was modified 2023-11-14T22:13:20Z");
    execFileSync("sh", ["-c", command]);
    expect(pinDifference(before, pin())).toBeUndefined();
  });
});
