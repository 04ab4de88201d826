import { boundColumns, type Contract, usedColumns } from "../binding/contract.js";
import { showColumnType, type SourceColumn } from "../columnar/types.js";
import { JobError } from "../util/errors.js";

/** The columns of a shard, which messages name. */
export interface NamedSchema {
  readonly name: string;
  readonly columns: readonly SourceColumn[];
}

/** Columns without a type of their own, since they have NULLs only, take that of the first other shard that has one. */
export function withTypesOf<T extends NamedSchema>(others: readonly NamedSchema[], shard: T): T {
  const typed = (column: SourceColumn): SourceColumn =>
    others.map((other) => find(other, column.name)).find((found) => found?.type !== undefined) ?? column;
  return { ...shard, columns: shard.columns.map((column) => (column.onlyNulls === true ? typed(column) : column)) };
}

/**
 * Columns that the job uses must be in every shard with the same type; their order may differ. One that has NULLs only
 * in a shard has any type there, but for expressions and fields: what those mean depends on it.
 * @throws JobError SCHEMA_MISMATCH
 */
export function refuseDrift(contract: Contract, first: NamedSchema | undefined, other: NamedSchema | undefined): void {
  const needType = new Set([
    ...(contract.expressions?.list.flatMap(({ uses }) => uses) ?? []),
    ...boundColumns(contract).flatMap(({ path }) => (path.length > 1 ? path.slice(0, 1) : [])),
  ]);
  for (const name of usedColumns(contract)) {
    const expected = typeIn(first, name);
    const found = typeIn(other, name);
    const onlyNulls = find(other, name)?.onlyNulls === true && find(first, name)?.partition !== true;
    if (found !== expected && !(onlyNulls && !needType.has(name))) {
      throw new JobError(
        "SCHEMA_MISMATCH",
        `planning: column \`${name}\` is ${found} in ${other?.name}, but ${expected} in ${first?.name}`,
        {
          hint: "the columns that the job uses must have the same type in all shards; write that shard again, or take it out of input.path",
        },
      );
    }
  }
}

function find(shard: NamedSchema | undefined, name: string): SourceColumn | undefined {
  return shard?.columns.find((candidate) => candidate.name === name);
}

function typeIn(shard: NamedSchema | undefined, name: string): string {
  const column = find(shard, name);
  return column === undefined ? "missing" : showColumnType(column);
}
