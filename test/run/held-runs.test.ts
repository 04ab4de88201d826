import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { listen } from "../support/listener.js";
import { fewRows, heldNight, lastJson, nightAt, nightlyJob, publishedRun } from "../support/nights.js";
import { outputRows, partNames } from "../support/output.js";
import { watchCommand } from "../support/watched.js";

describe("a run whose checks fail", () => {
  test("a run whose checks fail is held with exit code 67, names the failed checks and the commands, and publishes nothing", async () => {
    const nights = await nightlyJob(scratch.path);
    const runId = await heldNight(nights);
    const again = await expectEnd(nights.night("run", "2026-11-21", "--json"), 67);
    expect(lastJson(again)).toMatchObject({
      run_id: runId,
      status: "held",
      rows_scored: 0,
      verdict: {
        outcome: "hold",
        failed: ["50 rows (392 filtered out by input.where); the nearest night had 442 (2026-11-20), 11.3% of it"],
        compared_with: [expect.stringMatching(/^diabetes-mlp-/)],
      },
    });
    expect(again.stderr).toContain(`error: checking run ${runId}: it is held and not published; 1 of `);
    expect(again.stderr).toContain(`--run ${runId} --not-normal\n`);
    for (const verb of ["approve", "discard", "run"]) {
      expect(again.stderr).toContain(`infer-batch ${verb} ${nights.spec} --param ds=2026-11-21`);
    }
    const folder = nights.folder("2026-11-21");
    expect(await publishedRun(folder)).toBeUndefined();
    expect((await readdir(folder)).filter((name) => !name.startsWith("_"))).toEqual([]);
  });

  test("a run whose checks fail is published by approve, which needs neither model nor input", async () => {
    const nights = await nightlyJob(scratch.path);
    const runId = await heldNight(nights);
    await nights.rewrite({ ...fewRows, input: { path: "gone/*.parquet" }, model: { path: "gone.onnx" } });
    const approved = await nights.night("approve", "2026-11-21", "--reason", "a small day", "--by", "ann", "--json");
    expect([approved.code, approved.stderr]).toEqual([0, ""]);
    expect(lastJson(approved)).toMatchObject({
      run_id: runId,
      status: "published",
      already: false,
      decision: { kind: "approved", by: "ann", reason: "a small day" },
    });
    const folder = nights.folder("2026-11-21");
    expect(await publishedRun(folder)).toBe(runId);
    expect((await outputRows(folder)).length).toBe(50);
    expect(await readdir(join(folder, "_infer-batch", runId))).not.toContain("parts");
    const again = await nights.night("approve", "2026-11-21", "--json");
    expect([again.code, lastJson(again)]).toMatchObject([0, { already: true, decision: { by: "ann" } }]);
    expect((await nights.night("status", "2026-11-21")).stdout).toMatch(/\n {2}approved by ann at \S+Z: a small day\n/);
  });

  test("the next night's run warns of a held one, with the commands that publish it and throw it away", async () => {
    const nights = await nightlyJob(scratch.path);
    const runId = await heldNight(nights);
    const { stderr } = await nights.night("run", "2026-11-22");
    const warning = stderr.split("\n").find((line) => line.includes("is held by its checks")) ?? "";
    for (const verb of ["approve", "discard"]) {
      expect(warning).toContain(`infer-batch ${verb} ${nights.spec} --param ds=2026-11-21 --run ${runId}`);
    }
    expect(warning).not.toContain("--allow-older");
  });

  test("an id that no run has is refused, and the message names no folder of one date", async () => {
    const nights = await nightlyJob(scratch.path);
    await heldNight(nights);
    await expectEnd(
      runHere(["discard", nights.spec, "--run", "diabetes-mlp-000000000000"]),
      64,
      /looking for run diabetes-mlp-0+: none of the 2 runs of diabetes-mlp that were found has this id\n.*infer-batch history .*--param ds=…/,
    );
  });

  test("a run that was approved as a normal one is not said to be none by a second approval", async () => {
    const nights = await nightlyJob(scratch.path);
    await heldNight(nights);
    await expectEnd(nights.night("approve", "2026-11-21", "--by", "checks"), 64);
    await expectEnd(nights.night("approve", "2026-11-21", "--by", "  "), 0);
    await expectEnd(
      nights.night("approve", "2026-11-21", "--not-normal"),
      66,
      /it was approved without --not-normal, by \S+ at .*\n.*score again, .*: infer-batch run \S+ --param ds=2026-11-21 --new-run\n {4}then approve/,
    );

    await expectEnd(nights.night("run", "2026-11-21", "--new-run"), 67);
    await expectEnd(nights.night("approve", "2026-11-21", "--not-normal", "--by", "ann"), 0);
    await expectEnd(nights.night("approve", "2026-11-21", "--not-normal"), 0);
    const { stdout } = await nights.night("history", "2026-11-21");
    expect(stdout).toContain("approved by ann, as not normal\n");
  });

  test.each([
    { flags: [], held: false },
    { flags: ["--not-normal"], held: true },
  ])("approved with $flags, later runs may resemble it unless the person says no", async ({ flags, held }) => {
    const nights = await nightlyJob(scratch.path);
    const runId = await heldNight(nights);
    await expectEnd(nights.night("approve", "2026-11-21", ...flags), 0);
    const next = await nights.night("run", "2026-11-22", "--json");
    const { verdict } = lastJson(next) as { verdict: { compared_with: string[] } };
    expect(verdict.compared_with.includes(runId)).toBe(!held);
    expect(next.code, next.stderr).toBe(held ? 67 : 0);
  });

  test("a run whose checks fail stays unpublished when it is discarded, and a new run takes its place", async () => {
    const nights = await nightlyJob(scratch.path);
    const runId = await heldNight(nights);
    const discarded = await nights.night("discard", "2026-11-21", "--reason", "half a table");
    expect([discarded.code, discarded.stderr]).toEqual([0, ""]);
    const folder = nights.folder("2026-11-21");
    expect(await readdir(join(folder, "_infer-batch", runId))).not.toContain("parts");
    for (const command of ["run", "approve"]) {
      await expectEnd(nights.night(command, "2026-11-21"), command === "run" ? 67 : 66, "half a table");
    }
    await nights.rewrite({});
    const next = await expectEnd(nights.night("run", "2026-11-21", "--new-run", "--json"), 0);
    expect(lastJson(next)).toMatchObject({ run_id: `${runId}-r2`, status: "complete" });
    expect(await publishedRun(folder)).toBe(`${runId}-r2`);
    expect((await outputRows(folder)).length).toBe(442);
  });

  test("a run whose checks fail is superseded by a new run, and can then not be approved", async () => {
    const nights = await nightlyJob(scratch.path);
    const runId = await heldNight(nights);
    await nights.rewrite({});
    const next = await nights.night("run", "2026-11-21", "--new-run", "--json");
    expect(lastJson(next)).toMatchObject({ run_id: `${runId}-r2`, status: "complete" });
    const control = join(nights.folder("2026-11-21"), "_infer-batch");
    expect(JSON.parse(await readFile(join(control, runId, "decision.json"), "utf8"))).toMatchObject({
      kind: "superseded",
      successor: `${runId}-r2`,
    });
    await expectEnd(nights.night("approve", "2026-11-21", "--run", runId), 66, `${runId}-r2`);
  });

  test("a run whose checks fail leaves the predictions that it was to replace as they are until it is approved", async () => {
    const nights = await nightlyJob(scratch.path);
    await nights.night("run", "2026-11-20");
    const first = lastJson(await nights.night("run", "2026-11-21", "--json"));
    const folder = nights.folder("2026-11-21");
    const before = await partNames(folder);
    await nights.rewrite(fewRows);
    const held = await nights.night("run", "2026-11-21", "--new-run", "--json");
    expect([held.code, lastJson(held)["run_id"]]).toEqual([67, `${String(first["run_id"])}-r2`]);
    expect([await publishedRun(folder), await partNames(folder)]).toEqual([first["run_id"], before]);
    await expectEnd(nights.night("approve", "2026-11-21"), 0);
    expect((await outputRows(folder)).length).toBe(50);
  });
});

describe("a run whose checks pass", () => {
  test("a run whose checks pass is published by a decision of the checks, and its profile stays for later runs", async () => {
    const nights = await nightlyJob(scratch.path);
    for (const date of ["2026-11-19", "2026-11-20"]) {
      const done = await nights.night("run", date, "--json");
      expect([done.code, lastJson(done)["status"]]).toEqual([0, "complete"]);
    }
    const folder = nights.folder("2026-11-20");
    const { run_id: runId = "" } = lastJson(await nights.night("status", "2026-11-20", "--json"));
    const control = join(folder, "_infer-batch", String(runId));
    expect((await readdir(control)).toSorted()).toEqual(["decision.json", "plan.json", "profile.json", "verdict.json"]);
    expect(JSON.parse(await readFile(join(control, "decision.json"), "utf8"))).toMatchObject({
      kind: "approved",
      by: "checks",
    });
    expect(JSON.parse(await readFile(join(folder, "_manifest.json"), "utf8"))).toMatchObject({
      profile: { file: `_infer-batch/${String(runId)}/profile.json`, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) },
    });
  });

  test("a run that cannot be compared with earlier runs logs a warning", async () => {
    const nights = await nightlyJob(scratch.path);
    const first = await nights.night("run", "2026-11-20");
    expect(first.stderr).toContain("the checks cannot compare this run with earlier runs");
    const second = await nights.night("run", "2026-11-21");
    expect(second.stderr).not.toContain("with no other");
  });
});

describe("what a run is compared with", () => {
  test("a run is compared with published runs of earlier logical dates and otherwise equal params, whenever they were scored", async () => {
    const params = { region: "EU", ds: "${today}" };
    const nights = await nightlyJob(scratch.path, { params, output: { parquet: { path: "out/${region}/dt=${ds}" } } });
    const ids = new Map<string, unknown>();
    for (const [region, date] of [
      ["EU", "2026-11-25"],
      ["US", "2026-11-19"],
      ["EU", "2026-11-18"],
      ["EU", "2026-11-17"],
    ] as const) {
      const done = await nights.night("run", date, "--param", `region=${region}`, "--json");
      ids.set(`${region} ${date}`, lastJson(done)["run_id"]);
    }
    const last = await nights.night("run", "2026-11-20", "--json");
    expect(lastJson(last)["verdict"]).toMatchObject({
      compared_with: [ids.get("EU 2026-11-17"), ids.get("EU 2026-11-18")],
    });
  });

  test("the runs to compare with are pinned when a run is planned: a profile that disappears ends the attempt with 75", async () => {
    const nights = await nightlyJob(scratch.path);
    const first = lastJson(await nights.night("run", "2026-11-20", "--json"));
    const profile = join(nights.folder("2026-11-20"), "_infer-batch", String(first["run_id"]), "profile.json");
    await rm(profile);
    await expectEnd(nights.night("run", "2026-11-21"), 75, "it is gone");
  });
});

test("checks with on_fail: warn publish the run span by span, with a verdict and warnings", async () => {
  const nights = await nightlyJob(scratch.path, { checks: { on_fail: "warn" } });
  await nights.night("run", "2026-11-20");
  await nights.rewrite(fewRows);
  const done = await expectEnd(nights.night("run", "2026-11-21", "--json"), 0);
  expect(lastJson(done)).toMatchObject({
    status: "complete",
    verdict: { outcome: "publish", failed: [expect.stringContaining("50 rows")] },
  });
  expect(done.stderr).toContain("checks: 50 rows");
});

test("removing checks from the spec leaves a held run held", async () => {
  const nights = await nightlyJob(scratch.path);
  await heldNight(nights);
  await nights.rewrite({ ...fewRows, checks: undefined });
  await expectEnd(nights.night("run", "2026-11-21"), 67);
});

test("checks only warn for a run that is named in expect", async () => {
  const nights = await nightlyJob(scratch.path);
  await nights.night("run", "2026-11-20");
  await nights.rewrite({ ...fewRows, checks: { expect: [{ ds: "2026-11-21", reason: "Black Friday" }] } });
  const done = await nights.night("run", "2026-11-21", "--json");
  expect([done.code, lastJson(done)["verdict"]]).toEqual([
    0,
    expect.objectContaining({ outcome: "publish", warnings: [expect.stringContaining("Black Friday")] }),
  ]);
});

test("report.on_held is called once, and on_success and on_failure are not", async () => {
  await using server = await listen();
  const report = {
    on_held: `${server.url}/held`,
    on_success: `${server.url}/ok`,
    on_failure: `${server.url}/fail`,
    method: "post",
  };
  const nights = await nightlyJob(scratch.path, { report });
  await heldNight(nights);
  await expectEnd(nights.night("run", "2026-11-21"), 67);
  expect(server.calls.map(({ path }) => path)).toEqual(["/ok", "/held"]);
  expect(JSON.parse(server.calls[1]?.body ?? "")).toMatchObject({
    status: "held",
    exit_code: 67,
    text: expect.stringMatching(
      /50 rows \(392 filtered out by input.where\); the nearest night had 442 .*, 11.3% of it\nto publish the predictions: infer-batch approve .* --run \S+\nto throw the predictions away: infer-batch discard .* --run \S+$/,
    ),
    commands: [
      expect.stringMatching(/^infer-batch approve /),
      expect.stringMatching(/^infer-batch discard /),
      expect.stringMatching(/^infer-batch run .* --new-run$/),
    ],
  });
});

test.each([
  ["was killed before it could call", { CRASH_AT: "after link control/verdict.json #1" }, 137],
  ["could not reach the URL", {}, 67],
])("report.on_held is called by the next attempt if the one that made the verdict %s", async (_, env, code) => {
  let status = "CRASH_AT" in env ? 200 : 404;
  await using server = await listen(() => status);
  const nights = await nightlyJob(scratch.path, { report: { on_held: `${server.url}/held` } });
  await expectEnd(nights.night("run", "2026-11-20"), 0);
  await nights.rewrite(fewRows);
  const night = nightAt(scratch.path, "2026-11-21");
  const first = await watchCommand(night.args("run"), { CRASH_ROOT: night.out, ...env });
  expect(first.signal === "SIGKILL" ? 137 : first.code, first.stderr).toBe(code);
  const before = server.calls.length;
  status = 200;
  for (let attempt = 0; attempt < 2; attempt += 1) {
    await expectEnd(night.run("run"), 67);
  }
  expect(server.calls.length - before).toBe(1);
});

test("a held run calls on_failure if report.on_held is not set", async () => {
  await using server = await listen();
  const nights = await nightlyJob(scratch.path, { report: { on_failure: `${server.url}/fail` } });
  await heldNight(nights);
  expect(server.calls.map(({ path }) => path)).toEqual(["/fail"]);
});
