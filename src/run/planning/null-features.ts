import { type Contract, type InputBinding, inputColumns } from "../../binding/contract.js";
import { count, showCount } from "../../report/report.js";
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
  { spec, log }: Pick<ScoringContext, "spec" | "log">,
  contract: Contract,
  { nulls, rows }: Pick<SeenShards, "nulls" | "rows">,
): void {
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
  const named = [...found].slice(0, namedColumns).map(([name, nullRows]) => `${name} in ${showCount(nullRows)}`);
  const more = found.size > namedColumns ? `, and ${count(found.size - namedColumns, "more feature")}` : "";
  const filtered = where === undefined ? "" : " before input.where";
  const outcome = rejects
    ? `max_rejects (${spec.max_rejects}) allows ${count(allowed, "rejected row")}`
    : "on_bad_row: fail ends the run at the first one";
  const isFloat = contract.inputs.some(
    (binding) => isOfFloats(binding) && inputColumns(binding).some(({ name }) => name === column),
  );
  const nan = isFloat ? "model.missing: nan if the model takes NaN, " : "";
  log.warn(
    `features are NULL in some of ${count(rows, "row")}${filtered}: ${named.join(", ")}${more}; ` +
      `a row with a NULL feature cannot be scored, and ${outcome}. Write ${nan}` +
      `\`${column}: coalesce(${column}, …)\` under input.columns, or ${rejects ? "a larger max_rejects" : "on_bad_row: reject"}`,
  );
}

/** Whether an input has a NaN in place of a NULL with `model.missing: nan`. */
function isOfFloats(binding: InputBinding): boolean {
  return binding.kind === "matrix" && ["float32", "float64", "float16"].includes(binding.dtype);
}
