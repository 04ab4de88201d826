import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as arrow from "apache-arrow";
import { describe, expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { refusalOf } from "../support/faulty.js";
import { serveHub } from "../support/hub.js";
import { scratch, type SpecOverrides } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { pipeHere } from "../support/pipe.js";
import { streamOf } from "../support/pipe-job.js";
import { rejectLines, reject } from "../support/rejects.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { embeddingFaults, encoderFile, faultsOf, textJob, textsFile, tokenInputs } from "../support/text-job.js";

describe("a job that tokenizes texts", () => {
  test.each([
    ["a session of one thread", {}],
    ["two sessions and batches of 7 rows", { engine: { threads: 2, batch_size: 7 } }],
    ["a sequence length that is always the same", { model: { inputs: tokenInputs({ shrink: false }) } }],
    ["rows that the main thread reads", { input: { columns: { body: "body || ''" }, where: "id % 3 <> 1" } }],
  ] as [string, SpecOverrides][])(
    "a job that tokenizes texts gives the same embeddings as Python: %s",
    async (_, overrides) => {
      const { spec, out } = await textJob(scratch.path, overrides);

      expect((await runHere(["plan", spec])).stdout).toMatch(
        /input_ids int64 \[N,64\] <- tokens of body, tokenizer sha256 [0-9a-f]{12}(, to the longest text of a call)?; attention_mask int64 is the mask; token_type_ids int64 has the types/,
      );
      await scoreHere(spec);

      const isFiltered = overrides.input !== undefined;
      expect(await embeddingFaults(out, (id) => !isFiltered || id % 3 !== 1)).toEqual([]);
    },
  );

  test("an unfinished run is resumed with the planned tokenizer, and refused with 66 while it is another one", async () => {
    const { spec, out, tokenizer } = await textJob(scratch.path);
    await leaveUnfinished(spec, out, (span) => span < 2);
    const planned = await readFile(tokenizer, "utf8");
    await writeFile(tokenizer, planned.replace('"lowercase":true', '"lowercase":false'));

    await expectEnd(
      runSpec(spec),
      66,
      /comparing tokenizer tokenizer\.json with the plan of this unfinished run: its sha256 is [0-9a-f]{64}, planned [0-9a-f]{64}\n {2}hint: restore what was planned/,
    );

    await writeFile(tokenizer, planned);
    expect(await scoreHere(spec)).toMatchObject({ status: "complete", spansResumed: 2 });
    expect(await embeddingFaults(out)).toEqual([]);
  });

  test("a finished run is refused with 66 if its tokenizer is another one, and is complete if it is gone", async () => {
    const { spec, tokenizer } = await textJob(scratch.path);
    await scoreHere(spec);
    const planned = await readFile(tokenizer, "utf8");
    await writeFile(tokenizer, planned.replace('"lowercase":true', '"lowercase":false'));
    expect(await refusalOf(scoreHere(spec))).toContain(
      "comparing tokenizer tokenizer.json with the plan of this finished run",
    );

    await rm(tokenizer);
    expect(await scoreHere(spec)).toMatchObject({ status: "already_complete" });
  });

  test("a run is resumed with the tokenizer that the Hub had when it was planned, and a finished run does not ask the Hub", async () => {
    const bytes = await readFile((await textJob(scratch.path)).tokenizer);
    const hub = await serveHub({ "tokenizer.json": bytes });
    const cache = join(scratch.path, "cache");
    const env = { HF_ENDPOINT: hub.url, HF_TOKEN: hub.token, XDG_CACHE_HOME: cache };
    const { spec, out } = await textJob(scratch.path, {
      model: { inputs: tokenInputs({ tokenizer: "hf://org/model/tokenizer.json" }) },
    });
    await expectEnd(runHere(["run", spec, "--worker", "0/2"], { env }), 0);
    const other = Buffer.from(bytes.toString("utf8").replace('"lowercase":true', '"lowercase":false'));
    hub.revisions.set("main", new Map([["tokenizer.json", other]]));

    const rest = await runHere(["run", spec, "--worker", "1/2", "--json"], { env });
    expect([rest.code, JSON.parse(rest.stdout)], rest.stderr).toMatchObject([0, { status: "complete" }]);
    expect(await embeddingFaults(out)).toEqual([]);

    await hub[Symbol.asyncDispose]();
    await rm(cache, { recursive: true });
    const again = await runHere(["run", spec, "--json"], { env });
    expect([again.code, JSON.parse(again.stdout)], again.stderr).toMatchObject([0, { status: "already_complete" }]);
  });

  test("a NULL is a bad row, and the hint says how to score it as an empty text", async () => {
    const withNulls = join(scratch.path, "nulls.parquet");
    await writeRows(withNulls, `SELECT id, CASE WHEN id % 100 = 5 THEN NULL ELSE body END AS body FROM '${textsFile}'`);
    const input = { path: withNulls };
    const { spec, rewrite } = await textJob(scratch.path, { input });
    expect(await refusalOf(scoreHere(spec))).toMatch(
      /row 5.*body.*input\.columns: \{ body: "coalesce\(body, ''\)" \} scores NULL as an empty text/s,
    );

    await rewrite({ input, name: "rejecting", output: { parquet: { path: "rejecting" } }, ...reject });
    await scoreHere(spec);
    const folder = join(scratch.path, "rejecting");
    expect(await embeddingFaults(folder, (id) => id % 100 !== 5)).toEqual([]);
    expect((await rejectLines(folder)).map(({ row, column, reason }) => [row, column, reason])).toEqual(
      [5, 105, 205, 305].map((row) => [row, "body", "null"]),
    );

    await rewrite({
      input: { ...input, columns: { body: "coalesce(body, '')" } },
      name: "empty",
      output: { parquet: { path: "empty" } },
    });
    await scoreHere(spec);
    expect(await outputRows(join(scratch.path, "empty"))).toHaveLength(330);
  });

  test("golden rows of texts are checked with the tokenizer of the run", async () => {
    const { spec, out, rewrite } = await textJob(scratch.path);
    const checks = { golden: { path: textsFile, atol: 1e-5 } };
    await rewrite({ checks });
    await scoreHere(spec);
    expect(await embeddingFaults(out)).toEqual([]);
    const control = join(out, "_infer-batch");
    const run = (await readdir(control)).find((name) => name.startsWith("texts-")) ?? "";
    const { features } = JSON.parse(await readFile(join(control, run, "profile.json"), "utf8")) as {
      features: unknown;
    };
    // Texts that are tokenized have no values in a profile.
    expect(features).toEqual([["body", { type: "utf8", rows: 330, nulls: 0, kind: "rows" }]]);

    const wrong = { input_ids: { tokenize: "body", tokenizer: "tokenizer.json", max: 8 } };
    const output = { parquet: { path: "short" } };
    await rewrite({ checks, name: "short", output, model: { inputs: { ...tokenInputs(), ...wrong } } });
    expect(await refusalOf(scoreHere(spec))).toContain("of 330 rows differ");
  });

  test("a pipe tokenizes the texts of a stream", async () => {
    const { spec } = await textJob(scratch.path, { input: { path: undefined }, output: { parquet: undefined } });
    const stream = await streamOf(scratch.path, `SELECT id, body FROM '${textsFile}'`);
    const { output, error } = await pipeHere(spec, stream);
    expect(error).toBeUndefined();
    const rows = arrow.tableFromIPC(output).toArray() as { id: bigint; embedding: arrow.Vector<arrow.Float32> }[];
    expect(await faultsOf(rows.map(({ id, embedding }) => ({ id, embedding: embedding.toArray() })))).toEqual([]);
  });

  test("a tokenizer that the library does not know is refused with 64 and named", async () => {
    const { spec, tokenizer } = await textJob(scratch.path);
    await writeFile(tokenizer, JSON.stringify({ model: { type: "Unheard", vocab: {} } }));
    expect(await refusalOf(scoreHere(spec))).toMatch(
      /^64 MODEL_INVALID\nloading tokenizer tokenizer\.json: data did not match/,
    );
    await writeFile(tokenizer, "{}");
    expect(await refusalOf(scoreHere(spec))).toContain("it is not a tokenizer.json");
    await rm(tokenizer);
    expect(await refusalOf(scoreHere(spec))).toMatch(
      /^64 FILE_MISSING\nreading .*model\.inputs\.input_ids\.tokenizer: loading tokenizer .*: there is no such file/,
    );
  });

  test("a challenger has a tokenizer of its own, which its run pins", async () => {
    const own = join(scratch.path, "own.json");
    const { spec, out, tokenizer } = await textJob(scratch.path, {
      challenger: { path: encoderFile, inputs: tokenInputs({ tokenizer: "own.json" }) },
    });
    const bytes = await readFile(tokenizer, "utf8");
    await writeFile(own, bytes.replace('"lowercase":true', '"lowercase":false'));
    await leaveUnfinished(spec, out, (span) => span < 2);
    await writeFile(own, bytes);
    expect(await scoreHere(spec)).toMatchObject({ status: "complete" });
    expect(await embeddingFaults(out)).toEqual([]);
  });

  test("two models are compared with the tokenizer of the spec", async () => {
    const { spec } = await textJob(scratch.path);
    const compared = await expectEnd(runHere(["compare", spec, "--model", encoderFile, "--json"]), 0);
    expect(JSON.parse(compared.stdout)).toMatchObject({ rows_compared: 330 });
  });
});
