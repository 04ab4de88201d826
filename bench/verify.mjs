// No contender may win by skipping work: each output must hold every id once, with the same predictions as the others.
import { statSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { quote } from "./data.mjs";
import { plainLoop } from "./jobs.mjs";

/** Different batch sizes and builds of onnxruntime sum in different orders. */
const usualTolerance = 1e-5;

/**
 * @param {import("./jobs.mjs").Job} job
 * @param {readonly import("./contenders.mjs").Contender[]} all that ran, of this job and others
 * @throws Error that names the contender and what is wrong with its output
 */
export async function verifyOutputs(job, all) {
  const contenders = all.filter((contender) => contender.job === job.id && contender.output !== undefined);
  // infer-batch is checked against a rival where there is one, not the other way round. Either has all rows.
  const like = job.like ?? job.id;
  const reference = all.find((contender) => contender.job === like && contender.id === plainLoop) ?? contenders[0];
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  try {
    for (const contender of contenders) {
      const problem = await findProblem(connection, job, contender, reference);
      if (problem !== undefined) {
        throw new Error(`checking the output of ${contender.id} (${job.id}): ${problem}`);
      }
    }
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

async function findProblem(connection, { predictions, tolerance = usualTolerance }, contender, reference) {
  const one = async (sql) => (await connection.runAndReadAll(sql)).getRowObjects()[0];
  const ids = await one(
    `SELECT count(*) AS rows, count(DISTINCT id) AS ids, min(id) AS low, max(id) AS high FROM ${tableOf(contender)}`,
  );
  const rows = BigInt(contender.rows);
  if (ids.rows !== rows || ids.ids !== rows || ids.low !== 0n || ids.high !== rows - 1n) {
    return `${ids.rows} rows with ${ids.ids} ids from ${ids.low} to ${ids.high}, wanted ${rows} from 0 on`;
  }
  for (const { column, type, atLeast } of predictions) {
    const found = await one(
      `SELECT typeof(any_value(${column})) AS type, count(DISTINCT ${column}) AS different FROM ${tableOf(contender)}`,
    );
    const wanted = atLeast(contender.rows);
    if (found.type !== type || found.different < wanted) {
      return `${column} has ${found.different} values of type ${found.type}, wanted at least ${wanted} of type ${type}`;
    }
    const agreed = await one(
      `SELECT count(*) AS rows FROM ${tableOf(contender)} AS own JOIN ${tableOf(reference)} AS other USING (id)
       WHERE ${agreementSql(column, type, tolerance)}`,
    );
    if (agreed.rows !== rows) {
      return `${column} differs from that of ${reference.id} in ${rows - agreed.rows} rows`;
    }
  }
  return undefined;
}

function agreementSql(column, type, tolerance) {
  return type === "FLOAT"
    ? `NOT isnan(own.${column}) AND abs(own.${column} - other.${column}) <= ${tolerance}`
    : `own.${column} = other.${column}`;
}

function tableOf({ output }) {
  const files = statSync(output).isDirectory() ? join(output, "*.parquet") : output;
  return `read_parquet(${quote(files)}, hive_partitioning = false)`;
}
