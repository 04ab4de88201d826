import { boundColumns, type Contract } from "./contract.js";

/** The contract with the row filter and the computed columns that it uses: others are another model's. */
export function withUsedExpressions(contract: Contract): Contract {
  const { expressions } = contract;
  if (expressions === null) {
    return contract;
  }
  const used = computedColumns(contract);
  const list = expressions.list.filter(({ kind, name }) => kind === "where" || used.has(name));
  const sources = new Set(list.flatMap(({ uses }) => uses));
  const folders = expressions.folders.filter(({ name }) => sources.has(name));
  return { ...contract, expressions: list.length === 0 ? null : { list, folders } };
}

/** The names of the computed columns that a contract uses. */
export function computedColumns(contract: Pick<Contract, "inputs" | "passthrough">): ReadonlySet<string> {
  return new Set(boundColumns(contract).flatMap(({ path, computed }) => (computed === true ? [path[0] ?? ""] : [])));
}
