import {
  type CommandLine,
  collect,
  countOf,
  toleranceOf,
  paramFlag,
  jsonFlag,
  rowsLimit,
  type CommandAnswer,
} from "../flags.js";
import { attemptServices } from "../../job/attempt.js";
import { openJob } from "../../job/open.js";
import { requireModelPath } from "../../job/model-tools.js";
import { resolveModel } from "../../job/kinds.js";
import type { JobOptions } from "../../job/reading.js";
import { agreementTables, comparedFields } from "../../report/agreement.js";
import { showBytes, showCount, count } from "../../base/shown-numbers.js";
import { fitTable } from "../../report/table.js";
import { type ComparedModel, type Comparison, type ModelSpeed, compareModels } from "../../run/compare.js";
import { openPinnedModel, openTokenizers } from "../../run/model.js";
import type { Models, OpenedJob, PlacedSpec } from "../../flow/opened-job.js";
import { isObjectUri, modelUriProblem, objectUriProblem } from "../../job/jobfile/uri.js";
import { JobError } from "../../base/errors.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export const compareCommand: CommandLine = {
  flags: {
    "--model <uri>": [
      "Model to compare: a file, or a URI as model.path. Given once, it is compared with the model of the spec; given twice, A with B",
      collect,
    ],
    "--limit <rows>": ["Number of rows to score, from the beginning of the input", countOf(rowsLimit), 100_000],
    "--tolerance <number>": ["Count the rows whose numbers differ by more", toleranceOf, 0.01],
    ...paramFlag,
    ...jsonFlag,
  },
  required: ["model"],
  examples: [
    "infer-batch compare job.yaml --model churn-int8.onnx",
    "infer-batch compare job.yaml --model models:/churn@champion --model models:/churn@next",
  ],
  run: compare,
};

interface CompareCommandOptions extends JobOptions {
  readonly model: readonly string[];
  readonly limit: number;
  readonly tolerance: number;
  readonly json?: boolean;
}

/** Scores the first rows of a job with two models, and prints how fast they are and how far they agree. */
async function compare(spec: string, options: CompareCommandOptions, io: SafeIo): Promise<CommandAnswer> {
  await using opened = await openJob(spec, options, { log: createWarningLog(io.stderr) });
  const [a, b] = await resolveCompared(opened, options.model);
  const { limit, tolerance } = options;
  await using joiner = await opened.queries.openRowJoiner([]);
  const comparison = await compareModels(opened, joiner, { one: a, other: b, limit, tolerance });
  return { json: () => comparisonJson(comparison), text: (width) => comparisonText(comparison, tolerance, width) };
}

/**
 * Resolves two models for a comparison: both given ones, or the spec's and the given one. Paths start from this process's
 * folder.
 * @throws JobError USAGE, and those of `ModelSource.resolve`
 */
async function resolveCompared(
  opened: OpenedJob,
  uris: readonly string[],
): Promise<readonly [ComparedModel, ComparedModel]> {
  const [first = "", second, ...more] = uris;
  if (more.length > 0) {
    throw new JobError("USAGE", `comparing models: ${uris.length} are given, and two can be compared`, {
      hint: "--model A --model B; with one --model, it is compared with the model of the spec",
    });
  }
  for (const uri of uris) {
    requireModelUri(uri);
  }
  if (second === undefined) {
    requireModelPath(opened.job.spec, "compare measures models on this machine", {
      hint: "name two models with --model; or name one under `challenger` in the spec: each run compares it with the served model",
    });
  }
  return second === undefined
    ? [await ownModel(opened.job, opened.models), await resolveGiven(opened, first)]
    : [await resolveGiven(opened, first), await resolveGiven(opened, second)];
}

function requireModelUri(uri: string): void {
  const problem = modelUriProblem(uri) ?? (isObjectUri(uri) ? objectUriProblem(uri) : undefined);
  if (uri === "" || problem !== undefined) {
    throw new JobError("USAGE", `reading --model ${uri}: ${problem ?? "it names no model"}`, {
      hint: "name a file, or a URI that model.path accepts",
    });
  }
}

async function ownModel(job: PlacedSpec, models: Models): Promise<ComparedModel> {
  const { model, ...about } = await openPinnedModel(job, models);
  if (!("path" in model)) {
    throw new TypeError(`${model.name} is on a server`);
  }
  return { ...about, model, isGiven: false };
}

/** A given model takes the inputs of the spec, and so its tokenizers. */
async function resolveGiven(opened: OpenedJob, path: string): Promise<ComparedModel> {
  const { job, models } = opened;
  const { spec } = job;
  const services = attemptServices(spec, opened.reporter.log, opened.attempt.signal);
  const folder = process.cwd();
  // `model.sha256` pins the spec's own model only.
  const { file, ...about } = await resolveModel({ ...spec.model, path, sha256: undefined }, { folder, ...services });
  return { ...about, model: { ...file, tokenizers: await openTokenizers(job, models) }, isGiven: true };
}

function comparisonText(comparison: Comparison, tolerance: number, width: number | undefined): string[] {
  const { one: a, other: b } = comparison;
  return [
    `A  ${a.name}`,
    `B  ${b.name}`,
    ...rowLines(comparison),
    "speed of the model alone, and size of its file",
    ...speedTable([a, b], width),
    ...agreementTables({ ...comparison, tolerance }, ["A", "B"], width),
  ];
}

function rowLines({ input, read, rows: { matched, onlyA, onlyB } }: Comparison): string[] {
  const whole =
    read === input ? `all ${count(input, "row")}` : `the first ${count(read, "row")} of ${showCount(input)}`;
  const apart = [
    ...(onlyA === 0 ? [] : [`${count(onlyA, "row")} that only A could score`]),
    ...(onlyB === 0 ? [] : [`${count(onlyB, "row")} that only B could score`]),
  ];
  return [`${count(matched, "row")} compared, from ${whole}`, ...apart];
}

function speedTable([a, b]: readonly [ModelSpeed, ModelSpeed], width: number | undefined): string[] {
  const head = ["", "rows/s", "size", "provider", "batch rows"];
  const rows = [head, speedLine("A", a), speedLine("B", b)];
  return fitTable(rows, { right: [1, 2, 4], width, leaveOut: [3, 4] });
}

function speedLine(name: string, { rowsPerSecond, sizeBytes, provider, batchRows }: ModelSpeed): string[] {
  return [
    name,
    rowsPerSecond === undefined ? "" : showCount(rowsPerSecond),
    showBytes(sizeBytes),
    provider,
    showCount(batchRows),
  ];
}

function comparisonJson(comparison: Comparison): object {
  const { input, read, rows, one: a, other: b, placeOf } = comparison;
  return {
    rows_input: input,
    rows_read: read,
    rows_compared: rows.matched,
    rows_only_a: rows.onlyA,
    rows_only_b: rows.onlyB,
    a: modelJson(a),
    b: modelJson(b),
    ...comparedFields(comparison, ["a", "b"], ({ row, keys }) => ({ ...placeOf(row), columns: keys })),
  };
}

function modelJson({ name, sha256, sizeBytes, provider, batchRows, rowsPerSecond }: ModelSpeed): object {
  return {
    model: name,
    sha256,
    size_bytes: sizeBytes,
    provider,
    batch_rows: batchRows,
    rows_per_second: rowsPerSecond ?? null,
  };
}
