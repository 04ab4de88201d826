import { scoredColumns } from "../binding/contract.js";
import { difference } from "./compare.js";
import type { Plan } from "./plan.js";

/**
 * Compares a plan with that of an earlier run whose predictions it keeps: what must be the same for each kept row to be
 * the row that was scored, and for its prediction to be in the right column. Returns a line for each difference. What
 * decides whether a row is rejected may differ.
 */
export function takeOverDifferences(plan: Plan, earlier: Plan): string[] {
  const [now, was] = [plan.request, earlier.request];
  const readsColumns = [plan, earlier].some(usesComputed);
  return [
    ...difference("timezone", earlier.timezone, plan.timezone),
    ...difference("input.where", was.where, now.where),
    ...difference("input.partitions", was.partitions, now.partitions),
    ...(readsColumns ? difference("input.columns", was.columns, now.columns) : []),
    ...difference("the columns of the output", columnsOf(earlier), columnsOf(plan)),
    ...difference("output.lineage", earlier.contract.lineage === true, plan.contract.lineage === true),
    ...difference("reuse.key", earlier.contract.reuse?.key ?? null, plan.contract.reuse?.key ?? null),
    ...modelDifferences(plan, earlier),
  ];
}

/** Whether computed columns are in the output, or `input.where` may name one. */
function usesComputed({ contract, request: { where, columns } }: Plan): boolean {
  const condition = where?.toLowerCase() ?? "";
  return (
    contract.passthrough.some(({ source }) => source.computed === true) ||
    Object.keys(columns).some((name) => condition.includes(name.toLowerCase()))
  );
}

function columnsOf({ contract }: Plan): object[] {
  return scoredColumns(contract).map(({ name, type }) => ({ name, type }));
}

/** Of a language model only the name must stay, unless the output says what each row was predicted with. */
function modelDifferences(plan: Plan, earlier: Plan): string[] {
  const { model, request, contract } = plan;
  const uri = difference("model", earlier.model.uri, model.uri);
  if (request.prompt !== undefined && contract.reuse === undefined && contract.lineage !== true) {
    return uri;
  }
  const version = difference("the version of the model", earlier.model.version ?? null, model.version ?? null);
  const bound = contract.reuse === undefined ? [] : boundDifferences(plan, earlier);
  return [...difference("the model's digest", earlier.model.sha256, model.sha256), ...version, ...bound];
}

/** With `reuse`, the hash of each row covers what the model is given. */
function boundDifferences(plan: Plan, earlier: Plan): string[] {
  return difference("what the model is given", boundTo(earlier), boundTo(plan));
}

function boundTo({ contract, model: { tokenizers = [] } }: Plan): object {
  const { inputs, outputs, cast, missing } = contract;
  return { inputs, outputs, cast, missing, tokenizers: tokenizers.map(({ sha256 }) => sha256) };
}
