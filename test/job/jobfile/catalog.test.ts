import { expect, test } from "vitest";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const named = (table: string, catalog = "", more = ""): string =>
  minimalSpec.replace("path: in/*.parquet", `table: ${table}\n  catalog: { url: https://c/api${catalog} }${more}`);

test("a table of a catalog is its name, and takes the keys of a store", () => {
  const { input } = load(
    named("a.b.t", ", token: secret", "\n  endpoint: http://minio:9000\n  ready: gs://bucket/_SUCCESS"),
  );
  expect(input).toMatchObject({ path: ["a.b.t"], table: "a.b.t", at: "latest", catalog: { credentials: "vended" } });
});

test.each([
  ["t", "", /input\.table: .*name of a table in the catalog/],
  ["a..t", "", /name of a table in the catalog/],
  ["s3://lake/db/t", "", /name of a table in the catalog/],
  ["db.t", "/x?token=1", /without user, password and query/],
  ["db.t", ", token: x, auth: sigv4", /at most one of token, oauth2 and auth/],
  ["db.t", ", oauth2: { client_id: me }", /client_secret/],
])("a table %s of a catalog with %j is refused", (table, catalog, message) => {
  expect(specRefusal(named(table, catalog))).toMatch(message);
});

test("files are of no catalog, and no secret is quoted", () => {
  expect(specRefusal(minimalSpec.replace("path: in/*.parquet", "path: in\n  catalog: { url: https://c }"))).toMatch(
    /a catalog has tables/,
  );
  expect(specRefusal(named("db.t", ", token: [my-secret]"))).not.toContain("my-secret");
  expect(
    specRefusal(named("db.t", ', url: "https://me:my-secret@c"').replace("url: https://c/api, ", "")),
  ).not.toContain("my-secret");
});
