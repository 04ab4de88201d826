import { syncBuiltinESMExports } from "node:module";
import os from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { spoolRoot } from "#src/base/spool.js";
import { connectionOf } from "#src/targets/postgres/connect.js";
import { refusal } from "../support/spec.js";

const { userInfo } = os;

/** As in a container that runs as a user whom its /etc/passwd does not name. */
beforeAll(() => {
  os.userInfo = () => {
    throw Object.assign(new Error("uv_os_get_passwd returned ENOENT"), { code: "ENOENT" });
  };
  syncBuiltinESMExports();
});

afterAll(() => {
  os.userInfo = userInfo;
  syncBuiltinESMExports();
});

describe("a user without a name", () => {
  test("a user without a name has a spool of its own", () => {
    expect(spoolRoot("/jobs", undefined)).toBe(join(os.tmpdir(), `infer-batch-spool-${process.getuid?.()}`));
  });

  test("the hint for a user without a name is to name one for Postgres", () => {
    expect(refusal(() => connectionOf({ url: "postgres://host/database" }, {}))).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading output.postgres.url: it names no user, and the user of this process has no name
      hint: name it in the URL, or set PGUSER"
    `);
    expect(connectionOf({ url: "postgres://host/database" }, { PGUSER: "ana" }).user).toBe("ana");
  });
});
