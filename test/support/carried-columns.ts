import { writeSpec } from "./job.js";
import { query } from "./parquet.js";
import { fixtureNamed } from "./world.js";

export const fixture = fixtureNamed("diabetes-mlp");

export const featureNames = Array.from({ length: 10 }, (_, index) => `f${index}`);

export const features = featureNames
  .map((name, index) => `((row * 7 + ${index}) % 100 / 100)::DOUBLE AS ${name}`)
  .join(", ");

/** More than a vector, and no multiple of one. */
export const rowCount = 2500;

/** Every column of the input is in the output as it was, row by row; `columns`: input expression by output column. */
export async function changed(
  input: string,
  output: string,
  columns: Readonly<Record<string, string>>,
): Promise<unknown[]> {
  const found: unknown[] = [];
  const given = `read_parquet('${input}', hive_partitioning = false)`;
  const came = `read_parquet('${output}', hive_partitioning = false)`;
  for (const [name, source] of Object.entries(columns)) {
    const [row] = await query(`
      WITH given AS (SELECT row, ${source} AS v FROM ${given}), came AS (SELECT row, "${name}" AS v FROM ${came})
      SELECT (SELECT count(*) FROM given) AS given_rows, (SELECT count(*) FROM came) AS came_rows,
        (SELECT count(*) FROM (FROM given EXCEPT ALL FROM came)) AS missing,
        (SELECT count(*) FROM (FROM came EXCEPT ALL FROM given)) AS added,
        (SELECT count(*) FROM given FULL JOIN came USING (row) WHERE given.v IS DISTINCT FROM came.v
           OR given.v::VARCHAR IS DISTINCT FROM came.v::VARCHAR) AS different,
        (SELECT any_value(typeof(v)) FROM given) = (SELECT any_value(typeof(v)) FROM came) AS same_type`);
    if (row?.["given_rows"] !== row?.["came_rows"] || Number(row?.["given_rows"]) === 0) {
      found.push([name, "rows", row]);
    } else if (row?.["missing"] !== 0n || row["added"] !== 0n || row["different"] !== 0n || row["same_type"] !== true) {
      found.push([name, row]);
    }
  }
  return found;
}

/** A job over `<folder>/in/*.parquet` that predicts from f0 to f9. */
export async function jobOver(folder: string, columns: readonly string[], model: object = {}): Promise<string> {
  return await writeSpec(folder, fixture, {
    input: { path: "in/*.parquet" },
    model: { inputs: { features: featureNames }, ...model },
    output: { columns: ["row", ...columns] },
    commit_rows: 700,
  });
}
