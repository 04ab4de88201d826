import { rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { rejectsCommand } from "#src/cli/commands/rejects.js";
import { safeIo } from "#src/cli/io.js";
import { smallJob, spoiltJob, identity } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { rejectLines, reject, spoil } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";
import { runHere } from "../support/cli.js";
import { shownCli } from "../support/shown.js";

const select = `SELECT row AS id, 'n' || row AS name,
  CASE WHEN row < 6 THEN NULL WHEN row = 7 THEN 'nan' WHEN row = 8 THEN 1e300 WHEN row = 9 THEN 'inf' ELSE row END::DOUBLE AS x
  FROM range(12) AS t(row)`;
const output = { columns: ["id", "name"], parquet: { path: "out" } };

describe("rejects", () => {
  test("rejects counts rows by reason and shows the first few of each", async () => {
    const { spec } = await smallJob(scratch.path, { model: identity, select, output, ...reject, commit_rows: 3 });
    await scoreHere(spec);

    expect(await shownCli(["rejects", spec], scratch.path)).toMatchSnapshot();
  });

  test("rejects --json prints a line for each row, as in the files", async () => {
    const { spec, out } = await smallJob(scratch.path, { model: identity, select, output, ...reject, commit_rows: 3 });
    await scoreHere(spec);

    expect(await shownCli(["rejects", spec, "--json"], scratch.path)).toMatchSnapshot();
    const { stdout } = await runHere(["rejects", spec, "--json"]);
    const lines = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown);
    expect(lines).toEqual(await rejectLines(out));
  });

  test("rejects has colours on a terminal, without NO_COLOR, and in nothing that a row quotes", async () => {
    const named = select.replace("'n' || row", String.raw`chr(27) || '[31m1 row: ' || chr(10) || '2 rows: x'`);
    const { spec } = await smallJob(scratch.path, { model: identity, select: named, output, ...reject });
    await scoreHere(spec);
    const shown = async (isTTY: boolean): Promise<string> => {
      let text = "";
      const stdout = { isTTY, fd: 1, write: (chunk: string) => (text += chunk) } as unknown as typeof process.stdout & {
        fd: number;
      };
      await rejectsCommand.run(spec as never, { param: [] } as never, safeIo({ stdout, stderr: { write() {} } }));
      return text;
    };
    vi.stubEnv("NO_COLOR", "");
    const [terminal, pipe] = [await shown(true), await shown(false)];
    vi.stubEnv("NO_COLOR", "1");
    expect(await shown(true)).toBe(pipe);
    vi.unstubAllEnvs();
    expect(pipe).not.toMatch(/\p{Cc}\[/u);
    expect(terminal.replaceAll(/\p{Cc}\[\d+m/gu, "")).toBe(pipe);
    expect(terminal.match(/\p{Cc}\[1m.*/gu)).toHaveLength(4);
  });

  test("rejects shows the rows of committed spans of an unfinished run", async () => {
    const spoilt = [10, 400].map((row) => spoil(row, "bmi", "NULL", "null", null));
    const job = await spoiltJob(scratch.path, "diabetes-mlp", spoilt, { ...reject, max_rejects: 1, commit_rows: 50 });
    await expect(scoreHere(job.spec)).rejects.toThrow(/2 rows could not be scored/);

    const said = await shownCli(["rejects", job.spec], scratch.path);

    expect(said).toContain(
      "1 row rejected in committed spans\n1 row: null in bmi\n  in/part-00000.parquet row 10 (id=10): NULL",
    );
  });

  test("rejects says when there is no rejected row, and ends with 64 as stats and discard do when there is no run", async () => {
    const job = await spoiltJob(scratch.path, "diabetes-mlp", []);

    for (const [command, act] of [
      ["rejects", "reading the rejected rows of"],
      ["stats", "reading the profiles of"],
      ["discard", "discarding"],
    ] as const) {
      const { code, stdout, stderr } = await runHere([command, job.spec]);
      expect([code, stdout, stderr]).toEqual([
        64,
        "",
        expect.stringMatching(
          new RegExp(
            `^error: ${act} run diabetes-mlp-\\w{12}: it is not planned\n  hint: infer-batch run .* scores it; `,
          ),
        ),
      ]);
    }
    await scoreHere(job.spec);
    expect(await shownCli(["rejects", job.spec], scratch.path)).toBe(
      "exit 0\n--- stdout\n0 rows rejected in committed spans\n",
    );
    expect(await shownCli(["rejects", job.spec, "--json"], scratch.path)).toBe("exit 0\n");
  });

  test("rejects exits with 66 when a file of rejects is gone", async () => {
    const { spec, out } = await smallJob(scratch.path, { model: identity, select, output, ...reject });
    await scoreHere(spec);
    await rm(join(out, "_rejects"), { recursive: true });

    const { code, stderr } = await runHere(["rejects", spec]);

    expect([code, stderr.includes(".jsonl: it is gone")]).toEqual([66, true]);
  });
});
