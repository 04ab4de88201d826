import { boundColumns, featureColumns, usedColumns, type Projection } from "../models/binding/contract.js";
import type { ColumnType } from "../columns/types.js";
import type { ShardFile } from "./format.js";

/** The file's columns that a projection reads. */
export function columnsInFile(projection: Projection): string[] {
  const fromFolders = new Set([
    ...(projection.expressions?.folders ?? []).map(({ name }) => name),
    ...projection.passthrough.flatMap(({ source }) => (source.partition === true ? [source.name] : [])),
    ...featureColumns(projection).flatMap(({ partition, name }) => (partition === true ? [name] : [])),
  ]);
  return usedColumns({ ...projection, outputs: [], fixedBatchRows: null }).filter((name) => !fromFolders.has(name));
}

/** The file's columns that a projection reads, each with the type that the plan has, where it is known. */
export function plannedColumns(projection: Projection): Map<string, ColumnType | undefined> {
  const refs = boundColumns(projection);
  return new Map(
    columnsInFile(projection).map((name) => [
      name,
      refs.find(({ path, computed }) => path.length === 1 && path[0] === name && computed !== true)?.type,
    ]),
  );
}

/** Rows of a shard that its table has removed: ascending numbers. */
export async function removedRows({ table }: ShardFile): Promise<Uint32Array> {
  return (await table?.removed()) ?? none;
}

const none = new Uint32Array(0);

/** Whether values come from folder names. */
export function hasFolderColumns({ passthrough }: Pick<Projection, "passthrough">): boolean {
  return passthrough.some(({ source }) => source.partition === true);
}

/** The type that expressions find in a column of type null where no shard has another type for it. */
export const untypedNulls = "utf8";
