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
import { type ComparedModel, type Comparison, compareModels } from "../../run/compare.js";
import { openPinnedModel, openTokenizers } from "../../run/find-model.js";
import type { ModelFile } from "../../models/places/place.js";
import type { OpenedJob } from "../../flow/opened-job.js";
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

async function compare(spec: string, options: CompareCommandOptions, io: SafeIo): Promise<CommandAnswer> {
  await using opened = await openJob(spec, options, { log: createWarningLog(io.stderr) });
  const [first = "", second, ...more] = options.model;
  if (more.length > 0) {
    throw new JobError("USAGE", `comparing models: ${options.model.length} are given, and two can be compared`, {
      hint: "--model A --model B; with one --model, it is compared with the model of the spec",
    });
  }
  const [a, b] = second === undefined ? [undefined, first] : [first, second];
  const models = [await modelAt(opened, a), await modelAt(opened, b)] as const;
  const { placeOf, ...comparison } = await compareModels(opened, models, options);
  const { rows: _rows, columns: _columns, apart: _apart, tolerance: _tolerance, ...about } = comparison;
  return {
    json: () => ({
      ...about,
      ...comparedFields(comparison, ["a", "b"], ({ row, keys }) => ({ ...placeOf(row), columns: keys })),
    }),
    text: (width) => comparisonText(comparison, width),
  };
}

/** Without a URI, that of the spec. Paths start from this process's folder. */
async function modelAt(opened: OpenedJob, uri: string | undefined): Promise<ComparedModel> {
  const { job, models, reporter, attempt } = opened;
  const { spec } = job;
  if (uri === undefined) {
    requireModelPath(spec, "compare measures models on this machine", {
      hint: "name two models with --model; or name one under `challenger` in the spec: each run compares it with the served model",
    });
    const { model, ...about } = await openPinnedModel(job, models);
    return { ...about, model: model as ModelFile, isGiven: false };
  }
  const problem = modelUriProblem(uri) ?? (isObjectUri(uri) ? objectUriProblem(uri) : undefined);
  if (uri === "" || problem !== undefined) {
    throw new JobError("USAGE", `reading --model ${uri}: ${problem ?? "it names no model"}`, {
      hint: "name a file, or a URI that model.path accepts",
    });
  }
  const services = { folder: process.cwd(), ...attemptServices(spec, reporter.log, attempt.signal) };
  // It takes the inputs of the spec, and so its tokenizers; `model.sha256` pins the spec's own model only.
  const { file, ...about } = await resolveModel({ ...spec.model, path: uri, sha256: undefined }, services);
  return { ...about, model: { ...file, tokenizers: await openTokenizers(job, models) }, isGiven: true };
}

function comparisonText(comparison: Omit<Comparison, "placeOf">, width: number | undefined): string[] {
  const { a, b, rows_input: input, rows_read: read, rows } = comparison;
  const whole =
    read === input ? `all ${count(input, "row")}` : `the first ${count(read, "row")} of ${showCount(input)}`;
  const apart = [["A", rows.rows_gone] as const, ["B", rows.rows_added] as const].flatMap(([name, scored]) =>
    scored === 0 ? [] : [`${count(scored, "row")} that only ${name} could score`],
  );
  const speeds = [["A", a] as const, ["B", b] as const].map(([name, speed]) => [
    name,
    speed.rows_per_second === null ? "" : showCount(speed.rows_per_second),
    showBytes(speed.size_bytes),
    speed.provider,
    showCount(speed.batch_rows),
  ]);
  const head = ["", "rows/s", "size", "provider", "batch rows"];
  return [
    `A  ${a.model}`,
    `B  ${b.model}`,
    `${count(rows.rows_compared, "row")} compared, from ${whole}`,
    ...apart,
    "speed of the model alone, and size of its file",
    ...fitTable([head, ...speeds], { right: [1, 2, 4], width, leaveOut: [3, 4] }),
    ...agreementTables(comparison, ["A", "B"], width),
  ];
}
