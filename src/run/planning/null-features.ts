import { type Contract, type InputBinding, inputColumns } from "../../binding/contract.js";
import { nullRowsText } from "../../scoring/rejects.js";
import { count } from "../../report/report.js";
import { allowedRejects } from "../../scoring/reject-budget.js";
import type { ScoringContext } from "../../scoring/context.js";
import type { SeenShards } from "./read-shards.js";

/** Columns that one warning names. */
const namedColumns = 5;

/**
 * Warns of features that the shards' statistics state to be NULL in more rows than the job accepts, before hours of
 * scoring end there. Not of a feature that `input.where` uses: most conditions leave its NULLs out.
 */
export function warnOfNulls(
  { spec, log, record }: Pick<ScoringContext, "spec" | "log" | "record">,
  contract: Contract,
  { nulls, rows }: Pick<SeenShards, "nulls" | "rows">,
): void {
  record.nullFeatures = undefined; // those of a plan that this attempt has made before
  const where = contract.expressions?.list.find(({ kind }) => kind === "where");
  const found = new Map(
    contract.inputs
      .filter((binding) => contract.missing !== "nan" || !isOfFloats(binding))
      .flatMap((binding) => inputColumns(binding))
      .flatMap(({ path, computed, partition }) => {
        const isLeft = path.length > 1 || computed || partition || where?.uses.includes(path[0] ?? "") === true;
        const stated = isLeft ? undefined : nulls.get(path[0] ?? "");
        return stated === undefined ? [] : [[path[0] ?? "", stated] as const];
      })
      .toSorted(([, left], [, right]) => right - left),
  );
  const [first] = found;
  if (first === undefined) {
    return;
  }
  const [column, most] = first;
  const allowed = allowedRejects({ limit: spec.max_rejects, rows });
  const rejects = spec.on_bad_row === "reject";
  if (rejects && most <= allowed) {
    return;
  }
  const isFloat = contract.inputs.some(
    (binding) => isOfFloats(binding) && inputColumns(binding).some(({ name }) => name === column),
  );
  const nan = isFloat ? "model.missing: nan if the model takes NaN, " : "";
  const outcome = rejects
    ? `max_rejects (${spec.max_rejects}) allows ${count(allowed, "rejected row")}`
    : "on_bad_row: fail ends the run at the first one";
  const before = where === undefined ? "" : " before input.where";
  const other = rejects ? "a larger max_rejects" : "on_bad_row: reject";
  const text = `features are NULL${before}: ${namedText([...found], rows)}; a row with a NULL feature cannot be scored, and ${outcome}. Correct the input and run the same command again; or, if NULL is right there, write ${nan}\`${column}: coalesce(${column}, …)\` under input.columns, or ${other}`;
  record.nullFeatures = { text, nulls: found, rows };
  log.warn(text);
}

/** "temp_c in all 8,831 rows, age in 12 of 8,831 rows". */
function namedText(found: readonly (readonly [string, number])[], rows: number): string {
  const named = found.slice(0, namedColumns).map(([name, nullRows]) => `${name} in ${nullRowsText(nullRows, rows)}`);
  const more = found.length > namedColumns ? [count(found.length - namedColumns, "more feature")] : [];
  return [...named, ...more].join(", ");
}

/** Whether an input has a NaN in place of a NULL with `model.missing: nan`. */
function isOfFloats(binding: InputBinding): boolean {
  return binding.kind === "matrix" && ["float32", "float64", "float16"].includes(binding.dtype);
}
