import {
  type ColumnRef,
  type Contract,
  featureColumns,
  type InputBinding,
  usedColumns,
} from "../../binding/contract.js";
import { isComparable } from "../../checks/golden-rows.js";
import { type ColumnType, showColumnType, showType, type SourceColumn } from "../../columnar/types.js";
import { assertNever, JobError } from "../../util/errors.js";
import { didYouMean } from "../../util/suggest.js";

/** The columns of the file of golden rows. */
export interface GoldenSchema {
  /** The name of the file in messages. */
  readonly name: string;
  readonly columns: readonly SourceColumn[];
}

/** Returns the name of the column with the expected values of an output column. */
export function expectedName(column: string): string {
  return `expected ${column}`;
}

/**
 * Makes the contract that scores golden rows: the run's, except that the values of folder names are columns of the file,
 * and that the expected predictions are carried in place of the run's carried columns.
 * @throws JobError SCHEMA_MISMATCH, CONTRACT
 */
export function goldenContract(contract: Contract, schema: GoldenSchema): Contract {
  const inputs = contract.inputs.map(ofFile);
  const used = new Set(featureColumns({ inputs }).map(({ path }) => path[0]));
  const list = contract.expressions?.list.filter(({ kind, name }) => kind === "where" || used.has(name)) ?? [];
  const features: Contract = {
    ...contract,
    inputs,
    passthrough: [],
    lineage: undefined,
    reuse: undefined,
    expressions: list.length === 0 ? null : { list, folders: [] },
  };
  checkFeatures(features, schema);
  const passthrough = contract.outputs.map(({ column, type }) => {
    refuseFeature(column, features);
    const expected = findColumn(schema, column);
    const found = expected.type;
    if (found === undefined || !isComparable(found, type)) {
      throw mismatch(
        schema,
        `column \`${column}\` is ${showColumnType(expected)}, but the prediction is ${showType(type)}`,
      );
    }
    return { column: expectedName(column), source: { name: column, path: [expected.name], type: found } };
  });
  return { ...features, passthrough };
}

function ofFile(binding: InputBinding): InputBinding {
  switch (binding.kind) {
    case "matrix":
      return { ...binding, columns: binding.columns.map(inFile) };
    case "list":
    case "padded":
    case "text":
      return { ...binding, column: inFile(binding.column) };
    case "mask":
      return binding;
    default:
      return assertNever(binding);
  }
}

function inFile(ref: ColumnRef): ColumnRef {
  return { ...ref, partition: undefined };
}

/** Checks that the columns which the model needs are in the file, with the types that they have in the input. */
function checkFeatures(contract: Contract, schema: GoldenSchema): void {
  for (const name of usedColumns(contract)) {
    findColumn(schema, name);
  }
  for (const { name, path, type, computed } of featureColumns(contract)) {
    const found = computed === true ? type : typeAt(schema, path);
    if (found === undefined || showType(found) !== showType(type)) {
      const shown = found === undefined ? "of another type" : showType(found);
      throw mismatch(schema, `column \`${name}\` is ${shown}, but ${showType(type)} in the input`);
    }
  }
}

function typeAt({ columns }: GoldenSchema, [first, ...fields]: readonly string[]): ColumnType | undefined {
  let type = columns.find(({ name }) => name === first)?.type;
  for (const field of fields) {
    const inner: readonly { readonly name: string; readonly type: ColumnType }[] =
      typeof type === "object" && type.kind === "struct" ? type.fields : [];
    type = inner.find(({ name }) => name === field)?.type;
  }
  return type;
}

function findColumn(schema: GoldenSchema, name: string): SourceColumn {
  const found = schema.columns.find((column) => column.name === name);
  if (found === undefined) {
    const names = schema.columns.map((column) => column.name);
    throw mismatch(schema, `it has no column \`${name}\`${didYouMean(name, names)}`);
  }
  return found;
}

function mismatch({ name }: GoldenSchema, found: string): JobError {
  return new JobError("SCHEMA_MISMATCH", `checking the golden rows of ${name}: ${found}`, {
    hint: "write the columns that the model reads to the file, with their types in the input, and every predicted column",
  });
}

function refuseFeature(column: string, features: Contract): void {
  if (usedColumns(features).includes(column)) {
    throw new JobError(
      "CONTRACT",
      `checking the golden rows: \`${column}\` names both an input column and a prediction`,
      {
        hint: "give the prediction another name in model.outputs",
      },
    );
  }
}
