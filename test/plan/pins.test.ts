import { execFileSync } from "node:child_process";
import { statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { pinDifference, restoreHint } from "#src/plan/pins.js";
import { scratchFolder } from "../support/job.js";

const planned = { uri: "in/a.parquet", sizeBytes: 3310, fingerprint: "mtime:1763805600123456789" };

describe("pinDifference", () => {
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
});

describe("restoreHint", () => {
  test("restoreHint names the planned time, and the digest when there is one", () => {
    const now = { ...planned, fingerprint: "mtime:1763805601000000000" };
    expect(restoreHint({ ...planned, uri: "/in/a.parquet" }, now)).toBe(
      "restore the planned file with its modification time (cp -p), and run again; if its content has not changed, set its planned time again: touch -c -d 2025-11-22T10:00:00.123456789Z /in/a.parquet",
    );
    expect(restoreHint({ ...planned, sha256: "0123456789abcdef" }, now)).toContain(
      "if `sha256sum` still prints 0123456789ab…, set",
    );
    for (const uri of ["/in/a b$(x).parquet", "in/a.parquet"]) {
      expect(restoreHint({ ...planned, uri }, now)).toMatch(/touch -c -d \S+ FILE$/);
    }
  });

  test("restoreHint names no time when the size differs, or in a store", () => {
    expect(restoreHint(planned, { ...planned, sizeBytes: 1 })).not.toContain("touch");
    const inStore = { ...planned, fingerprint: "etag:a" };
    expect(restoreHint(inStore, { ...planned, fingerprint: "etag:b" })).toBe("restore what was planned and run again");
  });

  test("restoreHint has a command that restores a file's time to the nanosecond", async () => {
    await using folder = await scratchFolder();
    const uri = join(folder.path, "a.parquet");
    const pin = (): typeof planned => ({
      uri,
      sizeBytes: 0,
      fingerprint: `mtime:${statSync(uri, { bigint: true }).mtimeNs}`,
    });
    writeFileSync(uri, "");
    const before = pin();
    utimesSync(uri, 1, 1_700_000_000);
    const [, command = ""] = /(touch -c -d .*)$/.exec(restoreHint(before, pin())) ?? [];
    expect(pinDifference(before, pin())).toContain("but was modified 2023-11-14T22:13:20Z");
    execFileSync("sh", ["-c", command]);
    expect(pinDifference(before, pin())).toBeUndefined();
  });
});
