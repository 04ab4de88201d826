import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";
import { deployText, finalCodes, retriedCodes } from "../support/deploy.js";
import { validators } from "../support/validators.js";

const definition = z
  .object({
    containerProperties: z.object({ command: z.array(z.string()) }),
    timeout: z.object({ attemptDurationSeconds: z.int() }),
    retryStrategy: z.object({
      evaluateOnExit: z
        .array(
          z.object({
            onStatusReason: z.string().optional(),
            onReason: z.string().optional(),
            onExitCode: z.string().optional(),
            action: z.enum(["RETRY", "EXIT"]),
          }),
        )
        .max(5),
    }),
  })
  .parse(JSON.parse(deployText("aws-batch/job-definition.json")));

const schedule = z
  .object({ Target: z.object({ Input: z.string() }) })
  .parse(JSON.parse(deployText("aws-batch/schedule.json")));
const submitted = z
  .object({
    ArrayProperties: z.object({ Size: z.int().min(2) }),
    ContainerOverrides: z.object({ Environment: z.array(z.object({ Name: z.string(), Value: z.string() })) }),
  })
  .loose()
  .parse(JSON.parse(schedule.Target.Input));

/** AWS's own models of its APIs, as its command line checks requests against them. */
const script = `
import json, sys
from botocore.session import get_session
from botocore.validate import validate_parameters
session = get_session()
for service, operation, given in json.load(sys.stdin):
    shape = session.get_service_model(service).operation_model(operation).input_shape
    try:
        validate_parameters(given, shape)
        print(f"{operation}: ok")
    except Exception as error:
        print(f"{operation}: {str(error).splitlines()[-1]}")
`;

/** The scheduler's requests write names with capitals, the API of AWS Batch without. */
function uncapitalized(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(uncapitalized);
  }
  return typeof value === "object" && value !== null
    ? Object.fromEntries(
        Object.entries(value).map(([name, item]) => [
          `${name.charAt(0).toLowerCase()}${name.slice(1)}`,
          uncapitalized(item),
        ]),
      )
    : value;
}

test.skipIf(validators.missing !== undefined)(`AWS would take the requests${validators.skipped}`, () => {
  const text = deployText("aws-batch/job-definition.json");
  const requests = [
    ["batch", "RegisterJobDefinition", JSON.parse(text)],
    ["scheduler", "CreateSchedule", JSON.parse(deployText("aws-batch/schedule.json"))],
    ["batch", "SubmitJob", uncapitalized(submitted)],
    ["batch", "RegisterJobDefinition", JSON.parse(text.replace("onExitCode", "onExit"))],
  ];

  const { stdout, stderr } = spawnSync(join(validators.bin, "python"), ["-c", script], {
    input: JSON.stringify(requests),
    encoding: "utf8",
  });

  expect(`${stdout}${stderr}`).toMatchInlineSnapshot(`
    "RegisterJobDefinition: ok
    CreateSchedule: ok
    SubmitJob: ok
    RegisterJobDefinition: Unknown parameter in retryStrategy.evaluateOnExit[1]: "onExit", must be one of: onStatusReason, onReason, onExitCode, action
    "
  `);
});

function matches(pattern: string, text = ""): boolean {
  return pattern.endsWith("*") ? text.startsWith(pattern.slice(0, -1)) : text === pattern;
}

/** What AWS Batch does when a container has ended: the first rule all of whose patterns match, else RETRY. */
function actionOn(end: { onStatusReason?: string; onReason?: string; onExitCode?: string }): string {
  const keys = ["onStatusReason", "onReason", "onExitCode"] as const;
  const found = definition.retryStrategy.evaluateOnExit.find((rule) =>
    keys.every((key) => rule[key] === undefined || matches(rule[key], end[key])),
  );
  return found?.action ?? "RETRY";
}

test("each exit code has its action", () => {
  const onReason = "Essential container in task exited";
  for (const code of finalCodes) {
    expect(actionOn({ onExitCode: String(code), onReason })).toBe("EXIT");
  }
  for (const code of [1, ...retriedCodes]) {
    expect(actionOn({ onExitCode: String(code), onReason })).toBe("RETRY");
  }
  expect(actionOn({ onStatusReason: "Host EC2 (instance i-0123456789) terminated." })).toBe("RETRY");
});

test("an attempt has time to score when it has waited for the features as long as it may", () => {
  const [, hours = ""] = /^ {2}wait: (\d+)h\b/m.exec(deployText("aws-batch/job.yaml")) ?? [];
  expect(Number(hours)).toBeGreaterThanOrEqual(4);
  expect(definition.timeout.attemptDurationSeconds).toBeGreaterThanOrEqual((Number(hours) + 2) * 3600);
});

test("the day is that of the schedule", () => {
  const [{ Name: name, Value: value } = { Name: "", Value: "" }, ...others] = submitted.ContainerOverrides.Environment;
  expect([value, others]).toEqual(["<aws.scheduler.scheduled-time>", []]);
  expect(start({ [name]: "2026-01-31T02:10:00Z" })).toMatchObject({ status: 0, ds: "2026-01-31" });
  expect(start({ [name]: "2026-01-31" })).toMatchObject({ status: 0, ds: "2026-01-31" });
});

test.each([{}, { SCHEDULED_TIME: "" }, { SCHEDULED_TIME: "2026-13-45" }])(
  "without a day no retry helps: %j",
  (given) => {
    expect(start(given)).toEqual({
      status: 64,
      ds: undefined,
      said: expect.stringContaining("error: SCHEDULED_TIME: expected a day, such as 2026-01-31\n"),
    });
  },
);

function start(env: Readonly<Record<string, string>>): { status: number | null; ds: string | undefined; said: string } {
  const [program = "", ...args] = definition.containerProperties.command;
  const shown = args.map((arg) => arg.replace("exec infer-batch", 'printf "%s\\n"'));
  const PATH = process.env["PATH"] ?? "";
  const { status, stdout, stderr } = spawnSync(program, shown, { env: { PATH, ...env }, encoding: "utf8" });
  return { status, ds: /^--param\nds=(.*)$/m.exec(stdout)?.[1], said: stderr };
}
