import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { noRows, parseSpanProfile, spanProfileText, withPrivatePart } from "#src/checks/span-profile.js";
import { newProfileKey, NotSealedWithKey, openSealed, parseProfileKey, sealedProfile } from "#src/sink/sealing.js";

const of = { runId: "job-000000000000", span: 7 };
const keyOf = (text: string): Buffer => parseProfileKey(text) ?? expect.fail("no key");
const key = keyOf(newProfileKey());
const profile = spanProfileText({ ...noRows, rows: 3 });
const privateProfile = '{"features":[["city",{"kind":"rows","type":"utf8","rows":3,"nulls":0}]]}';
const sealedIn = (text: string | undefined): string => (JSON.parse(text ?? "") as { sealed: string }).sealed;

describe("a sealed profile", () => {
  test("a sealed profile is opened with its key, for its span alone, and shows nothing without it", () => {
    const text = sealedProfile(key, of, { profile, privateProfile }) ?? "";
    expect(text).not.toContain("city");
    expect(Buffer.from(sealedIn(text), "base64").toString("latin1")).not.toContain("city");
    expect(openSealed(key, of, sealedIn(text))).toBe(privateProfile);
    const stored = parseSpanProfile(text);
    const opened = withPrivatePart(stored.profile, openSealed(key, of, stored.sealed ?? ""));
    expect([...(opened.features?.keys() ?? [])]).toEqual(["city"]);
    expect(opened.isSealed).toBeUndefined();
    expect(stored.profile).toEqual({ ...noRows, rows: 3, isSealed: true });
    const others = [
      () => openSealed(keyOf(newProfileKey()), of, sealedIn(text)),
      () => openSealed(key, { ...of, span: 8 }, sealedIn(text)),
      () => openSealed(key, { ...of, runId: "job-000000000000-r2" }, sealedIn(text)),
      () =>
        openSealed(
          key,
          of,
          sealedIn(text).replace(/^./, (first) => (first === "A" ? "B" : "A")),
        ),
      () => openSealed(key, of, ""),
    ];
    for (const open of others) {
      expect(open).toThrow(NotSealedWithKey);
    }
  });

  test("a profile is sealed differently each time, so equal spans cannot be told", () => {
    const texts = [1, 2].map(() => sealedProfile(key, of, { profile, privateProfile }));
    expect(texts[0]).not.toBe(texts[1]);
  });

  test("a profile without features is stored as it is", () => {
    expect(sealedProfile(key, of, { profile })).toBe(profile);
  });

  test("an output column with the name sealed is not taken for a sealed profile", () => {
    const named = '{"rows":3,"columns":[["sealed",{"kind":"rows","type":"utf8","rows":3,"nulls":0}]],"carried":[]}';
    expect(parseSpanProfile(named).sealed).toBeUndefined();
    const { sealed } = parseSpanProfile(sealedProfile(key, of, { profile: named, privateProfile }) ?? "");
    expect(openSealed(key, of, sealed ?? "")).toBe(privateProfile);
  });

  test("a text that is no key is not taken for one", () => {
    expect(["", "abc", randomBytes(31).toString("base64"), "{}"].map(parseProfileKey)).toEqual(
      Array.from({ length: 4 }, () => undefined),
    );
    expect(parseProfileKey(`${newProfileKey()}\n`)).toHaveLength(32);
  });
});
