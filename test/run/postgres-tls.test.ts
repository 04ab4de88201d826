import { test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { writePgSpec } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres({ tls: true });
const fixture = fixtureNamed("diabetes-mlp");

postgres.describe("a server that speaks TLS", () => {
  test.each([
    ["is believed when the authority is known and the name is right", "localhost", true, "verify-full", 0, ""],
    ["is not believed when the authority is not known", "localhost", false, "verify-full", 64, "certificate"],
    ["is not believed under another name", "127.0.0.1", true, "verify-full", 64, "certificate"],
    ["is believed unseen where the spec says require", "127.0.0.1", false, "require", 0, ""],
  ] as const)("%s", async (_what, host, known, tls, exit, said) => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const url = database.url.replace("127.0.0.1", host);
    const spec = await writePgSpec(scratch.path, fixture, { url }, { output: { postgres: { tls } } });
    const env: Record<string, string> = known ? { PGSSLROOTCERT: postgres.server().certificate } : {};
    await expectEnd(runHere(["run", spec, "--no-progress"], { env }), exit, said);
  });
});
