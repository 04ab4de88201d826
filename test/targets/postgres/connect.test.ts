import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type ConnectionSettings, connectionOf } from "#src/targets/postgres/connect.js";
import type { PostgresTls } from "#src/job/jobfile/output-spec.js";
import { refusal } from "../../support/spec.js";

const settings = (url: string, env: Readonly<Record<string, string>> = {}, tls?: PostgresTls): ConnectionSettings =>
  connectionOf({ url, tls }, env);

describe("the connection settings", () => {
  test("each part of a URL becomes a connection setting", async () => {
    const found = settings("postgresql://an%40na:p%3Aw%2F%25@db.example:6543/la%20ke", { PGHOST: "no", PGUSER: "no" });
    expect(found).toMatchObject({ host: "db.example", port: 6543, user: "an@na", database: "la ke" });
    expect(await found.password()).toBe("p:w/%");
    expect(found.server).toBe("db.example:6543/la ke");
    expect(JSON.stringify(found)).not.toContain("p:w");
  });

  test("libpq's variables fill in what the URL leaves out", async () => {
    const env = { PGHOST: "h", PGPORT: "1", PGUSER: "u", PGDATABASE: "d", PGPASSWORD: "p" };
    expect(settings("", env)).toMatchObject({ host: "h", port: 1, user: "u", database: "d" });
    expect(await settings("postgres://", env).password()).toBe("p");
    expect(settings("postgres://other/", env)).toMatchObject({ host: "other", port: 1, database: "d" });
  });

  test("without a URL's host and variables, the connection goes to this machine, as in libpq", () => {
    const user = userInfo().username;
    expect(settings("", {})).toMatchObject({ host: "localhost", port: 5432, user, database: user, ssl: false });
    expect(settings("postgres:///d?host=/run/postgresql")).toMatchObject({ host: "/run/postgresql", ssl: false });
    expect(settings("postgres://[::1]:5/d")).toMatchObject({ host: "::1", port: 5, ssl: false });
  });

  test("the password comes from .pgpass when there is no other", async () => {
    const folder = mkdtempSync(join(tmpdir(), "pgpass-"));
    const file = join(folder, "pgpass");
    writeFileSync(file, "db.example:*:lake:ana:from file\n", { mode: 0o600 });
    const before = process.env["PGPASSFILE"];
    process.env["PGPASSFILE"] = file;
    try {
      expect(await settings("postgres://ana@db.example/lake").password()).toBe("from file");
      expect(await settings("postgres://bob@db.example/lake").password()).toBeUndefined();
    } finally {
      if (before === undefined) {
        delete process.env["PGPASSFILE"];
      } else {
        process.env["PGPASSFILE"] = before;
      }
      rmSync(folder, { recursive: true });
    }
  });

  test.each([
    "postgres://u:s3cr3t@host:port/d",
    "postgres://u:s3cr3t%zz@h/d",
    "postgres://u:s3cr3t@h/d?sslmod=x",
    // Passwords that are not percent-encoded: the part behind a / ? or # is no password to a URL.
    "postgres://u:12/s3cr3t@h/d",
    "postgres://u:p@x/s3cr3t@h/d",
    "postgres://u:12?s3cr3t@h/d",
    "postgres://u:12#s3cr3t@h/d",
    "postgres://u:12?s3cr3t",
  ])("a wrong URL is never quoted: %s", (url) => {
    const said = refusal(() => settings(url));
    expect(said).toMatch(/^64 SPEC_INVALID\nreading output\.postgres\.url: /);
    expect(said).not.toContain("s3cr3t");
  });

  test.each(["postgres://u:s3cr3t@host:port/d", "postgres://u:s3cr3t%zz@h/d", "postgres://u:12/s3cr3t@h/d"])(
    "the error for a wrong URL names the variable that it comes from: %s",
    (url) => {
      const said = refusal(() => connectionOf({ url }, {}, { variables: ["DATABASE_URL"] }));
      expect(said).toMatch(/^64 SPEC_INVALID\nreading output\.postgres\.url, made from \$\{DATABASE_URL\}: .*\nhint: /);
      expect(said).not.toContain("s3cr3t");
    },
  );

  test.each(["0", "65536", "x", "5432.5"])("a port that is not a number is refused: PGPORT=%s", (port) => {
    const said = refusal(() => settings("postgres://db.example/lake", { PGPORT: port }));
    expect(said).toMatch(/^64 SPEC_INVALID\n.*the port is not a number from 1 to 65535/);
  });
});

const verifies = ({ ssl }: ConnectionSettings): boolean | undefined =>
  ssl === false ? undefined : ssl.rejectUnauthorized;

describe("TLS to Postgres", () => {
  test("the certificate of another machine is checked, even if the URL says otherwise", () => {
    expect(verifies(settings("postgres://db.example/d"))).toBe(true);
    expect(verifies(settings("postgres://10.0.0.1/d?sslmode=require"))).toBe(true);
    expect(verifies(settings("postgres://db.example/d", { PGSSLMODE: "prefer" }))).toBe(true);
    expect(verifies(settings("postgres://127.0.0.1.example/d"))).toBe(true);
  });

  test("the certificate must be for the name that was asked for", () => {
    const { ssl } = settings("postgres://db.example/d");
    const certificate = { subject: { CN: "other.example" }, subjectaltname: "DNS:other.example" } as never;
    expect(ssl !== false && ssl.checkServerIdentity?.("ignored", certificate)).toBeInstanceOf(Error);
    const right = { subject: { CN: "db.example" }, subjectaltname: "DNS:db.example" } as never;
    expect(ssl !== false && ssl.checkServerIdentity?.("ignored", right)).toBeUndefined();
  });

  test("TLS is not used only where the spec itself says so", () => {
    expect(refusal(() => settings("postgres://db.example/d?sslmode=disable"))).toContain(
      "hint: write output.postgres.tls: disable in the spec if that is meant",
    );
    expect(settings("postgres://db.example/d?sslmode=disable", {}, "disable").ssl).toBe(false);
    expect(verifies(settings("postgres://db.example/d", {}, "require"))).toBe(false);
    expect(verifies(settings("postgres://localhost/d", {}, "verify-full"))).toBe(true);
  });

  test("an authority's certificate that cannot be read is named", () => {
    expect(refusal(() => settings("postgres://db.example/d?sslrootcert=/nowhere.pem"))).toContain(
      "64 FILE_MISSING\nreading sslrootcert /nowhere.pem",
    );
  });
});
