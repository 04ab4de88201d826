import { describe, expect, test } from "vitest";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

/** The least that a spec with a table for its target must say; `more`: lines of output.postgres. */
const spec = (more = "", table = "scores.daily"): string =>
  minimalSpec.replace(/output:[^]*/, `output:\n  columns: [id]\n  postgres:\n    table: ${table}\n${more}`);

const secret = "postgres://scorer:s3cr3t@db.example/lake";

describe("output.postgres", () => {
  test("output.postgres gets every default", () => {
    expect(load(spec()).output).toEqual({
      columns: ["id"],
      lineage: false,
      postgres: {
        url: "",
        table: "scores.daily",
        mode: "append",
        key: [],
        create: true,
        control_schema: "infer_batch",
        keep_previous: 1,
        on_duplicate: "fail",
        swap: "rename",
        timeouts: { connect: 10, lock: 10, statement: 120 },
      },
    });
  });

  test("output.postgres takes its URL from the environment", () => {
    const text = spec("    url: ${DATABASE_URL}\n");
    expect(load(text, { env: { DATABASE_URL: secret } }).output.postgres?.url).toBe(secret);
  });

  test("output.postgres refuses a URL that is empty because its variable is empty, and accepts a missing URL", () => {
    const env = { DATABASE_URL: "" };
    expect(specRefusal(spec("    url: ${DATABASE_URL}\n"), { env })).toContain(
      "output.postgres.url: found an empty text, made from ${DATABASE_URL}; set the variable, or leave out this key",
    );
    for (const url of ["", "    url: ''\n", "    url: ${DATABASE_URL:-}\n"]) {
      expect(load(spec(url), { env }).output.postgres?.url).toBe("");
    }
  });

  test.each(["postgresql+psycopg2://u:s3cr3t@h/d", "u:s3cr3t@h/d", "host=h password=s3cr3t", "jdbc:postgresql://h/d"])(
    "the error for a wrong URL of Postgres names its variable and the right form: %s",
    (url) => {
      const text = specRefusal(spec("    url: ${DATABASE_URL}\n"), { env: { DATABASE_URL: url } });
      expect(text).toContain(
        "output.postgres.url: found something else, made from ${DATABASE_URL}, expected postgres://user@host:port/database, with %xx for characters that mean something in URLs",
      );
      expect(text).not.toMatch(/best from the environment|s3cr3t|psycopg/);
    },
  );

  test("the error for a wrong URL in the spec advises to take it from the environment", () => {
    const text = specRefusal(spec("    url: mysql://u:s3cr3t@h/d\n"));
    expect(text).toContain("best from the environment: ${DATABASE_URL}");
    expect(text).not.toContain("s3cr3t");
  });

  test("output.postgres excludes output.parquet, and one of both is required", () => {
    expect(specRefusal(`${spec()}  parquet: { path: out }\n`)).toContain(
      "job.yaml:8:3: output: expected exactly one of parquet, delta, iceberg and postgres",
    );
    expect(specRefusal(minimalSpec.replace(/output:[^]*/, "output: { columns: [id] }\n"))).toContain(
      "output: expected exactly one of parquet, delta, iceberg and postgres",
    );
  });

  test.each(['a"; DROP TABLE b; --', "a.b.c", "a b", ".a", "a.", "1a", "ä", `"${"a".repeat(64)}"`, "pg_catalog.x.y"])(
    "output.postgres refuses the table name %s",
    (table) => {
      expect(specRefusal(spec("", JSON.stringify(table)))).toContain("output.postgres.table: found");
    },
  );

  test.each(["control_schema: a-b", "control_schema: 'a\"b'", "key: ['a b']", "key: [id, id]"])(
    "output.postgres refuses %s",
    (line) => {
      expect(specRefusal(spec(`    mode: upsert\n    ${line}\n`))).toMatch(/^64 SPEC_INVALID/);
    },
  );

  test("output.postgres needs a key for upsert, and takes none for append", () => {
    expect(specRefusal(spec("    mode: upsert\n"))).toContain(
      "output.postgres.key: missing; expected the columns that name a row, since mode is upsert",
    );
    expect(specRefusal(spec("    key: [id]\n"))).toContain("did you mean mode: upsert?");
  });

  test("the error for a key that is no output column names the output columns", () => {
    const text = spec("    mode: upsert\n    key: [idd]\n").replace("model:", "model:\n  outputs: { s: p }");
    expect(specRefusal(text)).toContain("`idd` is not an output column; they are id, s; did you mean `id`?");
  });

  test("output.lineage is refused if the output already has one of its three column names", () => {
    const text = spec().replace("columns: [id]", "lineage: true\n  columns: [id, Run_Id]");
    expect(specRefusal(text)).toContain("output column `Run_Id` is named twice");
  });
});

describe("a URL with a password", () => {
  test.each([
    ["of another kind", "    url: ${DATABASE_URL}\n", { DATABASE_URL: secret.replace("postgres:", "mysql:") }],
    ["that is broken off", "    url: ${DATABASE_URL}x${\n", { DATABASE_URL: secret }],
    ["after a reference that is none", "    url: 'postgres://u:${x y:s3cr3t@db/x'\n", {}],
    ["in the wrong place", "    mode: ${DATABASE_URL}\n", { DATABASE_URL: secret }],
    ["in a list", "    url: [ '${DATABASE_URL}' ]\n", { DATABASE_URL: secret }],
  ])("%s is never quoted", (_what, more, env) => {
    const said = specRefusal(spec(more), { env });
    expect(said).toMatch(/^64 SPEC_INVALID/);
    expect(said).not.toContain("s3cr3t");
  });

  test("a URL with a password in the spec itself is not quoted, not even at a wrong key", () => {
    const wrong = specRefusal(spec(`    url: ${secret.replace("postgres:", "mysql:")}\n`));
    expect(wrong).toContain("output.postgres.url: found something else, expected postgres://");
    const said = specRefusal(spec("", secret));
    expect(said).toContain('output.postgres.table: found "postgres://***@db.example/lake"');
    expect(wrong + said).not.toContain("s3cr3t");
  });
});
