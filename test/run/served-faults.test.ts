import { describe, expect, test } from "vitest";
import { expectFinished } from "../support/crash.js";
import { differences, goldenRows } from "../support/golden.js";
import { outputRows, partNames } from "../support/output.js";
import { reject, rejectLines } from "../support/rejects.js";
import { isBlank, onRows, servedJob, type ServedJobOptions } from "../support/served-job.js";
import { until } from "../support/waiting.js";
import type { Misbehaviour, V2Server } from "../support/v2-server.js";
import { firstOf } from "../support/torture.js";
import { expectEnd, expectReport } from "../support/cli.js";

type Decide = NonNullable<V2Server["misbehave"]>;

/** Answers every request for a row with the fault: the first one of the table. */
function poisoned(fault: Misbehaviour): Decide {
  let poison: string | undefined;
  return onRows(({ inputs: [input], rows }) => {
    const values = (input?.values ?? []) as Float32Array;
    const width = values.length / rows;
    const keys = Array.from({ length: rows }, (_, row) => values.slice(row * width, (row + 1) * width).join());
    poison ??= keys[0];
    return keys.includes(poison ?? "") ? fault : undefined;
  });
}

/** More batches than requests in flight. */
const small = { engine: { batch_size: 10 } };
const diabetes = { inputs: { features: "float32[10]" }, outputs: { score: "float32" } };
const v1: ServedJobOptions = { rest: { kind: "tensorflow" } };

describe("a fault of the server that has the model", () => {
  const passing: readonly Misbehaviour[] = [
    { status: 503 },
    { status: 429, headers: { "retry-after": "0" } },
    { status: 504 },
    { status: 404, said: "unknown model" }, // it has restarted, and has not loaded the model yet
    { status: 500, said: "out of memory" },
    { reset: "before" },
    { reset: "in the body" },
    { text: "<html>" },
  ];

  test.each<[string, readonly Misbehaviour[], ServedJobOptions?]>([
    ["a server", passing],
    ["TensorFlow Serving", [{ status: 503 }, { text: "<html>" }], v1],
  ])("%s is asked again after each fault that may pass: every row once", async (_what, faults, of) => {
    // One request may meet all of the faults, and waits longer after each.
    await using job = await servedJob({ ...of, overrides: { ...small, ...reject, retry: { max_seconds: 60 } } });
    const left = [...faults, ...faults];
    job.server.misbehave = onRows(() => left.shift());

    const ended = await job.runWhole({ rows_rejected: 0 });
    expect(left).toEqual([]);
    expect((ended.report["server"] as { retries: number }).retries).toBeGreaterThanOrEqual(faults.length);
  });

  const endless = { text: Buffer.alloc(70 * 1024 * 1024, " ") };

  test("an answer that is far longer than was asked for rejects its row, if the server answers others", async () => {
    await using job = await servedJob({
      keys: { concurrency: 1 },
      overrides: { engine: { batch_size: 2 }, ...reject },
    });
    job.server.misbehave = poisoned(endless);

    await expectReport(job.run(), 0, { rows_rejected: 1 });
    expect(await rejectLines(job.out)).toMatchObject([
      { reason: "model_failed", value: "the answer has more than 64 MiB, far more than was asked for" },
    ]);
  });

  test("a server whose answers all are far longer than was asked for ends the attempt with 75", async () => {
    await using job = await servedJob({ keys: { concurrency: 1 }, overrides: { ...small, retry: { max_seconds: 1 } } });
    let rowsCame = false;
    job.server.misbehave = (request) => {
      rowsCame ||= !isBlank(request); // before, the model is tried with blank rows
      return rowsCame ? endless : undefined;
    };

    await expectEnd(job.run(), 75, "the answer has more than 64 MiB, far more than was asked for (tried");
  });

  test("a silent server is asked again after model.server.timeout", async () => {
    await using job = await servedJob({ keys: { timeout: 1 }, overrides: small });
    let silences = 0;
    job.server.misbehave = onRows(() => {
      silences += 1;
      return silences <= 2 ? { silent: true } : undefined;
    });

    await expectEnd(job.runWhole(), 0, "the request took more than 1 s; trying again");
  });

  test("a server that asks for a pause gets no request in it", async () => {
    await using job = await servedJob({ overrides: small });
    const times: number[] = [];
    job.server.misbehave = onRows(() => {
      times.push(performance.now());
      return times.length === 1 ? { status: 429, headers: { "retry-after": "1" } } : undefined;
    });

    await expectEnd(job.run(), 0);
    const [first = 0, ...later] = times;
    // Requests that were sent before the answer came are not in the pause.
    expect(later.filter((ms) => ms - first > 100 && ms - first < 990)).toEqual([]);
  });

  test("a server that asks for a longer pause than retry.max_seconds ends the attempt at once with 75", async () => {
    await using job = await servedJob({ overrides: small });
    job.server.misbehave = onRows(() => ({ status: 503, headers: { "retry-after": "3600" } }));

    await expectEnd(job.run(), 75, "asks for a pause of 3600 s");
  });

  test("a server that stays away ends the attempt with 75 and rejects no row; the same command continues", async () => {
    await using job = await servedJob({ overrides: { ...small, ...reject, retry: { max_seconds: 1 } } });
    let answers = 0;
    job.server.misbehave = onRows(() => {
      answers += 1;
      return answers > 25 ? { reset: "before" } : undefined;
    });

    await expectEnd(job.run(), 75, /scoring with m on http:\S+: ECONNRESET \(tried \d+ times in \d+ s\)/);
    job.server.misbehave = undefined;
    await job.runWhole({ rows_rejected: 0 });
  });

  test.each<[string, Misbehaviour, ServedJobOptions?]>([
    ["refuses (400)", { status: 400, said: "[request id: 7] unknown category" }],
    ["refuses (400), of TensorFlow Serving", { status: 400, said: "unknown category" }, v1],
    ["fails on (500)", { status: 500, said: "unknown category" }],
  ])("a row that the model %s is found and rejected, all others are scored", async (_what, fault, of) => {
    await using job = await servedJob({ ...of, overrides: { ...reject, engine: { batch_size: 64 } } });
    job.server.misbehave = poisoned(fault);

    await expectReport(job.run(), 0, { rows_rejected: 1, rows_scored: 441 });
    const [, ...others] = await goldenRows(job.fixture);
    expect(differences(await outputRows(job.out), others)).toEqual([]);
    expect(await rejectLines(job.out)).toMatchObject([{ row: 0, reason: "model_failed" }]);
    expect(JSON.stringify(await rejectLines(job.out))).toContain("unknown category");
  });

  test("a row that the model refuses ends the run with 65 where bad rows are not rejected", async () => {
    await using job = await servedJob();
    job.server.misbehave = poisoned({ status: 400, said: "unknown category" });

    await expectEnd(job.run(), 65, "unknown category");
  });

  test("a run is resumed on a server that has restarted, and has not loaded the model yet", async () => {
    const retry = { max_seconds: 20 };
    await using job = await servedJob({ overrides: { ...small, commit_rows: 10, retry: { max_seconds: 1 } } });
    job.server.misbehave = onRows(({ number }) => (number > 20 ? { status: 503 } : undefined));
    await expectEnd(job.run(), 75);
    job.server.misbehave = undefined;
    await job.rewrite({ ...small, commit_rows: 10, retry });
    const { versions } = job.server;
    job.server.versions = [];
    const asked = job.server.paths.length;

    const resumed = job.run();
    await until(() => job.server.paths.slice(asked).filter((path) => path.endsWith("/versions/1")).length > 1);
    job.server.versions = versions;
    await expectEnd(resumed, 0, "waiting for a model that may be loading");
    await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
  });

  test("a server that answers 500 to all requests counts as unreachable: no row is rejected", async () => {
    const byRow = { engine: { batch_size: 1 }, commit_rows: 1 }; // a rejected row is committed at once
    await using job = await servedJob({ overrides: { ...reject, ...byRow, retry: { max_seconds: 3 } } });
    let isBroken = false;
    job.server.misbehave = (request) => {
      isBroken ||= !isBlank(request);
      return isBroken ? { status: 500, said: "CUDA error" } : undefined;
    };

    await expectEnd(job.run(), 75);
    expect(await partNames(job.out)).toEqual([]);
  });

  const fewerRows: Misbehaviour = {
    outputs: (all) => all.map((one) => ({ ...one, shape: [1, 1], values: (one.values as Float32Array).slice(0, 1) })),
  };

  test.each<[string, number, RegExp, Misbehaviour, ServedJobOptions?]>([
    ["no longer knows the model", 66, /404.*this run is scored with version 1/s, { status: 404, said: "unknown" }],
    ["does not have predictions", 64, /the server answered 501: no batches/, { status: 501, said: "no batches" }],
    ["refuses the token", 64, /the server answered 401: who\?/, { status: 401, said: "who?" }],
    ["redirects", 64, /redirects are not followed/, { status: 307, headers: { location: "/" } }],
    [
      "answers with another type",
      64,
      /output `score` is float64, and the model's signature says float32/,
      {
        outputs: (all) =>
          all.map((one) => ({ ...one, datatype: "FP64", values: Float64Array.from(one.values as never) })),
      },
    ],
    ["answers with fewer rows", 64, /output `score` came as float32 \[1,1\] for a batch of/, fewerRows],
    ["answers with fewer rows", 64, /output `score` came as float32 \[1,1\] for a batch of/, fewerRows, v1],
    ["no longer has the version", 66, /this run is scored with version 1/, { status: 404, said: "unknown" }, v1],
    ["answers without predictions", 64, /it has no `predictions`/, { text: '{"outputs":[1]}' }, v1],
    ["leaves out an output", 64, /output `score` is missing/, { outputs: () => [] }],
  ])("a server that %s ends the run with %i", async (_what, code, said, fault, of) => {
    await using job = await servedJob({ ...of, overrides: { ...reject, retry: { max_seconds: 2 } } });
    job.server.misbehave = onRows(() => fault);

    await expectEnd(job.run(), code, said);
  });

  test.each(
    firstOf([
      ["knows versions in URLs", false],
      ["does not", true],
    ] as const),
  )(
    "a model that changes its version during the run, of a server that %s, ends it with 66; with the planned version it is continued",
    async (_what, lacksVersions) => {
      await using job = await servedJob({
        hidesVersions: true,
        lacksVersions,
        overrides: { ...small, commit_rows: 20 },
      });
      job.server.misbehave = ({ number }) => {
        job.server.versions = number < 20 ? ["1"] : ["1", "2"];
        return undefined;
      };

      await expectEnd(job.run(), 66, "version 2 answered, and this run is scored with version 1");
      job.server.misbehave = undefined;
      job.server.versions = ["2"];
      await expectEnd(job.run(), 66, "this run was planned with version 1");
      job.server.versions = ["1"];
      await job.runWhole();
    },
  );

  test.each<[string, ServedJobOptions]>([
    ["no binary tensors", { isBinary: false }],
    ["JSON", { rest: { kind: "json" }, keys: { signature: diabetes } }],
  ])("NaN in place of a NULL is never sent and makes a row bad where the server takes %s", async (_what, of) => {
    const others = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5"];
    await using job = await servedJob({
      ...of,
      overrides: {
        ...reject,
        input: { columns: { changed: "case when id % 100 = 7 then null else s6 end" } },
        model: { inputs: { features: [...others, "changed"] }, missing: "nan" },
      },
    });
    const golden = await goldenRows(job.fixture);
    const good = golden.filter(({ id }) => Number(id) % 100 !== 7);

    await expectReport(job.run(), 0, { rows_rejected: golden.length - good.length });
    expect(differences(await outputRows(job.out), good)).toEqual([]);
    expect(JSON.stringify(await rejectLines(job.out))).toContain("which JSON lacks");
  });
});
