import { basename, dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { createProgram } from "#src/cli/program.js";
import { checkSeveral, findWorker } from "#src/job/attempt.js";
import { loadSpec } from "#src/job/jobfile/load.js";
import { commandLines, deployFiles, deployText, finalCodes, knownCodes, retriedCodes } from "../support/deploy.js";

const program = await createProgram(process);

function check(words: readonly string[]): void {
  const [name, ...args] = words;
  if (name === "--help") {
    return;
  }
  const command = program.commands.find((candidate) => candidate.name() === name);
  if (command === undefined) {
    throw new Error(`there is no command ${name}`);
  }
  const { operands, unknown } = command.parseOptions(args);
  const { registeredArguments } = command;
  expect(unknown).toEqual([]);
  expect(operands.length).toBeLessThanOrEqual(registeredArguments.length);
  expect(operands.length).toBeGreaterThanOrEqual(registeredArguments.filter(({ required }) => required).length);
}

const lines = deployFiles().flatMap((path) =>
  commandLines(path, deployText(path)).map((words) => ({ path, words, line: words.join(" ") })),
);

describe("the command lines of deploy/", () => {
  test.each(lines)("$path: $line", ({ words }) => {
    check(words);
  });

  test("are found where they are", () => {
    const counts = new Map<string, number>();
    for (const { path } of lines) {
      counts.set(path, (counts.get(path) ?? 0) + 1);
    }
    expect(Object.fromEntries(counts)).toMatchInlineSnapshot(`
      {
        "../Dockerfile": 3,
        "airflow/daily_churn.py": 2,
        "argo/cronworkflow.yaml": 1,
        "aws-batch/job-definition.json": 1,
        "cron/README.md": 1,
        "cron/infer-batch.cron": 1,
        "dagster/daily_churn.py": 1,
        "kubernetes/base/cronjob.yaml": 1,
        "prefect/daily_churn.py": 1,
        "systemd/infer-batch@.service": 1,
      }
    `);
  });

  test.each([
    "run job.yaml --parm ds=1",
    "run job.yaml --skip-exit-code 75",
    "run job.yaml --log-format xml",
    "run",
    "run a.yaml b.yaml",
    "score job.yaml",
  ])("would be refused as `%s`", (line) => {
    expect(() => {
      check(line.split(" "));
    }).toThrow();
  });
});

const specs = deployFiles().filter((path) => basename(path) === "job.yaml");

describe("the specs of deploy/", () => {
  test.each(specs)("%s holds, and several workers may share its run", (path) => {
    const env = { DATABASE_URL: "postgres://user@host/database", JOB_COMPLETION_INDEX: "3", INFER_BATCH_WORKERS: "4" };
    const { spec, clock } = loadSpec(deployText(path), { file: path, params: { ds: "2026-01-31" }, env, nowMs: 0 });
    expect(spec.params).toEqual({ ds: "2026-01-31" });
    checkSeveral({ worker: findWorker(undefined, env), newRun: false }, clock);
  });

  test("are there for all that run them", () => {
    expect(specs.map(dirname)).toEqual([
      "aws-batch",
      "kubernetes/base",
      "kubernetes/overlays/gpu",
      "kubernetes/overlays/postgres",
    ]);
  });
});

describe("the files of deploy/ that decide by exit code", () => {
  const deciding = deployFiles()
    .map((path) => ({ path, text: deployText(path) }))
    .filter(({ path, text }) => path !== "../Dockerfile" && /\b6[4-7*]/.test(text.replaceAll(/exit 64|with 64/g, "")));

  test("are these", () => {
    expect(deciding.map(({ path }) => path)).toMatchInlineSnapshot(`
      [
        "README.md",
        "airflow/README.md",
        "airflow/daily_churn.py",
        "argo/README.md",
        "argo/cronworkflow.yaml",
        "aws-batch/README.md",
        "aws-batch/job-definition.json",
        "cron/README.md",
        "dagster/README.md",
        "dagster/daily_churn.py",
        "kubernetes/README.md",
        "kubernetes/base/cronjob.yaml",
        "prefect/README.md",
        "prefect/daily_churn.py",
        "prometheus/alerts.yaml",
        "systemd/README.md",
        "systemd/infer-batch@.service",
      ]
    `);
  });

  test.each(deciding)("$path: names each final code", ({ text }) => {
    const named = finalCodes.filter((code) => new RegExp(String.raw`\b${code}\b|"6\*"`).test(text));
    expect(named).toEqual(finalCodes);
  });
});

test("the DAG of Airflow gives up at each final code, and at no other", () => {
  const [, pattern = ""] = /re\.search\(r"(.*?)"/.exec(deployText("airflow/daily_churn.py")) ?? [];
  // As BashOperator says it.
  const isFinal = (code: number): boolean =>
    new RegExp(pattern).test(`Bash command failed. The command returned a non-zero exit code ${code}.`);
  expect([1, ...knownCodes].filter(isFinal)).toEqual(finalCodes);
});

test("each exit code is either tried again or final, as the files of deploy/ have it", () => {
  expect([...finalCodes, ...retriedCodes].toSorted((one, other) => one - other)).toEqual(knownCodes);
});
