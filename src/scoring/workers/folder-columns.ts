import type { Projection } from "../../binding/contract.js";
import { createColumnBuilder } from "../../columnar/columns.js";
import type { Column } from "../../columnar/types.js";
import type { UnitRequest } from "./protocol.js";

/** Columns from folder names, of one row each, as columns of at least so many. */
export function repeater(
  projection: Projection,
  constants: UnitRequest["constants"],
): (rows: number) => Map<string, Column> {
  let made = { rows: 0, columns: new Map<string, Column>() };
  const repeated = (rows: number): Map<string, Column> => {
    const columns = new Map<string, Column>();
    for (const { source } of projection.passthrough) {
      const one = constants.get(source.path[0] ?? "");
      if (source.partition === true && one !== undefined) {
        const builder = createColumnBuilder(source.type, rows);
        for (let row = 0; row < rows; row += 1) {
          builder.append(one, 0, 1);
        }
        columns.set(source.path[0] ?? "", builder.finish());
      }
    }
    return columns;
  };
  return (rows) => {
    made = made.rows < rows ? { rows, columns: repeated(rows) } : made;
    return made.columns;
  };
}
