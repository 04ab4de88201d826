import { boundColumns, type Contract, usedColumns } from "../../binding/contract.js";
import { showColumnType, type SourceColumn } from "../../columnar/types.js";
import { JobError } from "../../util/errors.js";

/** The columns of a shard, with the name of the shard for messages. */
export interface NamedSchema {
  readonly name: string;
  readonly columns: readonly SourceColumn[];
}

/** Gives columns that have NULLs only, and so no type, the type that the first other shard with a type has. */
export function withTypesOf<T extends NamedSchema>(others: readonly NamedSchema[], shard: T): T {
  const typed = (column: SourceColumn): SourceColumn =>
    others.map((other) => find(other, column.name)).find((found) => found?.type !== undefined) ?? column;
  return { ...shard, columns: shard.columns.map((column) => (column.onlyNulls === true ? typed(column) : column)) };
}

/**
 * Checks that the columns that the job uses are in every shard with the same type; their order may differ. A column
 * with NULLs only fits any type, except in expressions and as a struct whose fields are used; expressions take it as
 * NULL where no shard has a type for it.
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
    const isTyped = find(first, name)?.onlyNulls !== true;
    if (onlyNulls ? isTyped && needType.has(name) : found !== expected) {
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
  return column === undefined ? "missing" : `${showColumnType(column)}${column.isUtc === true ? " in UTC" : ""}`;
}
