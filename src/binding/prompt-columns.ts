import type { ColumnType, SourceColumn } from "../columnar/types.js";
import { type ContractRequest, findColumn } from "./contract-request.js";
import type { ColumnRef } from "./contract.js";

/** The computed column with the text of a column that a prompt names. */
function textColumn(name: string): string {
  return `text of ${name}`;
}

/** Finds columns that a prompt names and that are no texts, with the SQL that makes them texts. */
export function textsOf(names: readonly string[], columns: readonly SourceColumn[]): [name: string, sql: string][] {
  return names.flatMap((name): [string, string][] => {
    const found = typeOf(name, columns);
    return found === undefined || found.type === "utf8" || !isScalar(found.type)
      ? []
      : [
          [
            textColumn(name),
            `cast(${found.path.map((part) => `"${part.replaceAll('"', '""')}"`).join(".")} as varchar)`,
          ],
        ];
  });
}

/** Binds a column that a prompt names: the column, or its text where it is none. */
export function findPromptColumn(name: string, request: ContractRequest): ColumnRef {
  const asText = request.columns.find((column) => column.name === textColumn(name));
  return asText === undefined
    ? findColumn(name, "model.prompt", request)
    : { name, path: [asText.name], type: "utf8", computed: true };
}

interface FoundType {
  readonly path: readonly string[];
  readonly type: ColumnType;
}

function typeOf(name: string, columns: readonly SourceColumn[]): FoundType | undefined {
  const whole = columns.find((column) => column.name === name)?.type;
  if (whole !== undefined) {
    return { path: [name], type: whole };
  }
  const path = name.split(".");
  let type = columns.find((column) => column.name === path[0])?.type;
  for (const field of path.slice(1)) {
    type =
      typeof type === "object" && type.kind === "struct"
        ? type.fields.find((candidate) => candidate.name === field)?.type
        : undefined;
  }
  return type === undefined ? undefined : { path, type };
}

/** Lists, structs and bytes have no text that all would agree on. */
function isScalar(type: ColumnType): boolean {
  return typeof type === "string" ? type !== "binary" : type.kind === "decimal";
}
