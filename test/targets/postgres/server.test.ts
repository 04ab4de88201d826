import { expect, test } from "vitest";
import { usePostgres } from "../../support/postgres.js";

const postgres = usePostgres({ own: true });

postgres.describe("the Postgres server of the tests", () => {
  test("the Postgres server of the tests is durable by default, and keeps what was committed when it is killed", async () => {
    await using database = await postgres.server().createDatabase();
    await database.query("CREATE TABLE t (id int8); INSERT INTO t SELECT generate_series(1, 1000)");
    const [settings] = await database.query(
      "SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit, version() AS version",
    );
    expect(settings).toMatchObject({ fsync: "on", commit: "on" });
    expect(settings?.["version"]).toContain(`PostgreSQL ${postgres.server().version}`);

    await postgres.server().kill();
    await postgres.server().start();
    await database.query("SELECT 1").catch(() => undefined); // the connection that died

    expect(await database.query("SELECT count(*)::int AS rows FROM t")).toEqual([{ rows: 1000 }]);
  });
});
