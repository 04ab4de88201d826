import {
  type Contract,
  type InputBinding,
  type PaddedBinding,
  type TextBinding,
  inputWidth,
  predictedColumns,
} from "../models/binding/contract.js";
import { type MatchedColumns, matchColumns, modelNames } from "../checks/agreement.js";
import type { Tokenizing } from "../columns/tensor.js";
import { showType } from "../columns/types.js";
import { shortDigest } from "../run/plan/identity.js";
import { versionText } from "../run/plan/lake-tables.js";
import type { PinnedTable, Plan, PlannedModel } from "../run/plan/plan.js";
import { spanCount } from "../run/plan/spans.js";
import { assertNever } from "../base/errors.js";
import { showCost, showCount, count, showBytes } from "../base/shown-numbers.js";
import { printable } from "../base/texts.js";

const shownShards = 10;
const shownColumns = 8;

interface FoundTarget {
  readonly target: string;
  /** The run that is there, with its status; undefined: there is none, or it is not known. */
  readonly found?: string | undefined;
  readonly untried: readonly string[];
}

interface PlannedTarget extends FoundTarget {
  /** What the run will take; undefined: predictions are free. */
  readonly estimate?: PlanEstimate | undefined;
  /** How many rejected rows of an earlier run are scored alone; undefined: all rows are. */
  readonly rejectedRows?: number | undefined;
  /** What the checks look at, and what the run is compared with, a line each. */
  readonly checks: readonly string[];
  /** undefined: the run has none. */
  readonly second: SecondPlan | undefined;
}

/** The run of a second model, and how its predictions are compared. */
export interface SecondPlan extends MatchedColumns {
  readonly model: PlannedModel;
  /** The folder or table of its predictions. */
  readonly place: string;
  /** Whether the two may leave different rows out. */
  readonly differs: boolean;
}

/** What a run does with its second model; undefined: it has none. */
export function secondPlanOf(plan: Plan, second: Plan | undefined): SecondPlan | undefined {
  if (second === undefined) {
    return undefined;
  }
  const { model, contract, target } = second;
  const differs = plan.contract.missing !== contract.missing || plan.contract.cast !== contract.cast;
  return {
    model,
    place: String(target["uri"] ?? target["table"]),
    differs,
    ...matchColumns(predictedColumns(plan.contract), predictedColumns(contract), modelNames),
  };
}

/** A plan as text. */
export function planLines(plan: Plan, { estimate, checks, second, ...target }: PlannedTarget): string[] {
  const { shards, rows, table } = plan.input;
  const bytes = shards.reduce((sum, shard) => sum + shard.sizeBytes, 0);
  const shown = shards.slice(0, shownShards).map((shard) => ({ shard, name: printable(shard.uri) }));
  const width = Math.max(...shown.map(({ name }) => name.length), 0);
  return [
    `run      ${plan.runId}`,
    ...(table === undefined ? [] : [`table    ${tableText(table)}${rangeText(plan.input)}`]),
    `input    ${count(rows, "row")} in ${count(shards.length, "shard")}, ${showBytes(bytes)}`,
    ...shown.map(
      ({ name, shard }) =>
        `           ${name.padEnd(width)}  ${count(shard.rows, "row")}, ${showBytes(shard.sizeBytes)}`,
    ),
    ...(shards.length > shownShards ? [`           … and ${count(shards.length - shownShards, "more shard")}`] : []),
    `spans    ${showCount(spanCount(plan))} of up to ${count(plan.commitRows, "row")}`,
    `model    ${modelText(plan.model)}`,
    ...contractLines(plan.contract),
    ...secondPlanLines(second),
    ...checkLines(checks),
    ...(estimate === undefined ? [] : [`prompts  ${estimateText(estimate)}`]),
    ...targetLines(target),
  ];
}

function rangeText({ changes }: Plan["input"]): string {
  return changes === undefined || changes.from === null ? "" : "; only what was added since the last run";
}

/** "s3://lake/features, Delta version 12; 3 rows of the files below are removed, and count as filtered". */
function tableText(table: PinnedTable): string {
  const { uri, removedRows } = table;
  const removed =
    removedRows === 0 ? "" : `; ${count(removedRows, "row")} of the files below are removed, and count as filtered`;
  return `${printable(uri)}, ${versionText(table)}${removed}`;
}

/** What a run does with its second model as text: what is compared, and where its predictions will be. */
export function secondPlanLines(preview: SecondPlan | undefined): string[] {
  if (preview === undefined) {
    return [];
  }
  const { model, compared, apart, place, differs } = preview;
  const lines = [
    compared.length === 0 ? "no output is compared" : `compared: ${compared.map(({ name }) => name).join(", ")}`,
    ...apart.map(({ name, reason }) => `not compared: ${name}, ${reason}`),
    ...(differs ? ["missing or cast differ: rows that only one of both models scores are not compared"] : []),
    `its predictions are written to ${place}`,
  ];
  return [`${modelNames[1]} ${modelText(model)}`, ...lines.map((line) => `           ${printable(line)}`)];
}

function modelText(model: PlannedModel): string {
  return `${printable(modelName(model))}, sha256 ${shortDigest(model.sha256)}`;
}

/** The same under its JSON name; nothing if there is none. */
export function secondPlanFields(preview: SecondPlan | undefined): object {
  if (preview === undefined) {
    return {};
  }
  const { model, compared, apart, place } = preview;
  const not = Object.fromEntries(apart.map(({ name, reason }) => [name, reason]));
  return { [modelNames[1]]: { ...model, compared: compared.map(({ name }) => name), not_compared: not, place } };
}

/** The checks of a run as text, a line each. */
export function checkLines(checks: readonly string[]): string[] {
  return checks.map((line) => printable(`checks   ${line}`));
}

/** The target as text: which run it has, and what was not checked. */
export function targetLines({ target, found, untried }: FoundTarget): string[] {
  return [
    `target   ${target}${found === undefined ? "" : `, which has ${found}`}`,
    ...untried.flatMap((text) => text.split("\n").map((line, i) => `${i === 0 ? "untried  " : " ".repeat(9)}${line}`)),
  ].map(printable);
}

/** Names a model with the version that its URI resolves to: "models:/churn@champion → version 7". */
export function modelName({ uri, version }: Pick<PlannedModel, "uri" | "version">): string {
  return version === undefined ? uri : `${uri} → version ${version}`;
}

/** The bindings of a contract as text: which columns go where. */
export function contractLines(contract: Contract): string[] {
  const rows = contract.fixedBatchRows === null ? "N" : String(contract.fixedBatchRows);
  const lines = contract.inputs.map((binding) => `input    ${inputText(binding, contract, rows)}`);
  for (const { kind, name, text } of contract.expressions?.list ?? []) {
    lines.push(kind === "where" ? `where    ${oneLine(text)}` : `column   ${name} <- ${oneLine(text)}`);
  }
  for (const { column, source } of contract.passthrough) {
    lines.push(`output   ${column} ${showType(source.type)} <- column ${source.name}`);
  }
  for (const output of contract.outputs) {
    const from = output.kind === "element" ? `${output.tensor}[${output.element}]` : output.tensor;
    lines.push(`output   ${output.column} ${showType(output.type)} <- tensor ${from}`);
  }
  return lines.map(printable);
}

function oneLine(text: string): string {
  return text.trim().replaceAll(/\s+/g, " ");
}

function inputText(binding: InputBinding, contract: Contract, rows: string): string {
  switch (binding.kind) {
    case "text":
      if (binding.tokens !== undefined) {
        return tokensText(binding, binding.tokens, rows);
      }
      return `${binding.input} string [${rows}${binding.rank === 1 ? "" : ",1"}] <- ${binding.column.name}`;
    case "list":
      return `${binding.input} ${binding.dtype} [${rows},${binding.width}] <- list ${binding.column.name}`;
    case "padded":
      return `${binding.input} ${binding.dtype} [${rows},${binding.width}] <- list ${binding.column.name}, ${paddingText(binding)}`;
    case "mask":
      return `${binding.input} ${binding.dtype} [${rows},${inputWidth(binding, contract)}] <- mask of ${binding.of}`;
    case "matrix": {
      const names = binding.columns.map(({ name }) => name);
      const shown =
        names.length > shownColumns
          ? `${names.slice(0, shownColumns).join(", ")}, … (${names.length} columns)`
          : names.join(", ");
      return `${binding.input} ${binding.dtype} [${rows}${binding.rank === 1 ? "" : `,${names.length}`}] <- ${shown}`;
    }
    default:
      return assertNever(binding);
  }
}

function tokensText({ input, column }: TextBinding, tokens: Tokenizing, rows: string): string {
  const masksAndTypes = [
    ...tokens.masks.map((mask) => `${mask.input} ${mask.dtype} is the mask`),
    ...tokens.types.map((types) => `${types.input} ${types.dtype} has the types`),
  ];
  const narrow = tokens.shrink ? ", to the longest text of a call" : "";
  const made = `tokens of ${column.name}, tokenizer sha256 ${tokens.tokenizer.slice(0, 12)}`;
  return [`${input} ${tokens.dtype} [${rows},${tokens.width}] <- ${made}${narrow}`, ...masksAndTypes].join("; ");
}

function paddingText({ value, side, truncate, shrink }: PaddedBinding): string {
  const more = [truncate ? ", truncated" : "", shrink ? ", to the longest of a batch" : ""].join("");
  return `padded with ${value} on the ${side}${more}`;
}

/** What a run will take, about. */
export interface PlanEstimate {
  readonly requests: number;
  readonly promptTokens: number;
  /** The share by which `promptTokens` may be wrong. */
  readonly error: number;
  /** The tokenizer that counted them, as the spec names it; undefined: bytes were counted. */
  readonly tokenizer: string | undefined;
  /** Rows whose prompts were counted. */
  readonly measuredRows: number;
  /** The part of `promptTokens` that each prompt has for the server's chat template: a guess. */
  readonly templateTokens: number;
  /** If each answer is as long as it may be; undefined: answers have no limit. */
  readonly mostCompletionTokens: number | undefined;
  /** With such answers; undefined: prices or limits are not known. */
  readonly mostCost: number | undefined;
  readonly limits: { readonly tokens: number | undefined; readonly cost: number | undefined };
}

function estimateText(estimate: PlanEstimate): string {
  const { requests, promptTokens, mostCompletionTokens, mostCost, limits } = estimate;
  const most = mostCompletionTokens === undefined ? "" : `, at most ${showCount(mostCompletionTokens)} out`;
  const cost = mostCost === undefined ? "" : `, cost up to about ${showCost(mostCost)}`;
  const limit =
    limits.cost !== undefined
      ? ` of max_cost ${limits.cost}`
      : limits.tokens !== undefined
        ? ` (max_tokens ${showCount(limits.tokens)})`
        : "";
  return `about ${count(requests, "prompt")}, ${showCount(promptTokens)} tokens in (${countedText(estimate)})${most}${cost}${limit}`;
}

function countedText({ error, tokenizer, measuredRows, templateTokens }: PlanEstimate): string {
  const share = `±${Math.ceil(error * 100)}%`;
  if (tokenizer === undefined) {
    return `by bytes, ${share}`;
  }
  const template = templateTokens === 0 ? "" : `, with about ${templateTokens} a prompt for the chat template`;
  return `by ${printable(tokenizer)} in ${count(measuredRows, "row")}, ${share}${template}`;
}

/** The estimate under its JSON names. */
export function estimateFields(estimate: PlanEstimate): object {
  return {
    requests: estimate.requests,
    prompt_tokens: estimate.promptTokens,
    prompt_tokens_error: roundedShare(estimate.error),
    prompt_tokens_by: estimate.tokenizer ?? "bytes",
    most_completion_tokens: estimate.mostCompletionTokens ?? null,
    most_cost: estimate.mostCost ?? null,
  };
}

/** Thousandths: more digits would say more than a sample knows. */
function roundedShare(share: number): number {
  return Math.ceil(share * 1000) / 1000;
}
