// Nobody wins by not working: each output must hold every id once, with the score that the others give it.
import { statSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { quote } from "./data.mjs";

/** Different batch sizes and builds of onnxruntime sum in different orders. */
const tolerance = 1e-5;

/**
 * @param {readonly import("./contenders.mjs").Contender[]} contenders
 * @param {import("./contenders.mjs").Contender} reference whose scores are the measure; it has the rows of every other
 * @throws Error that names the contender and what is wrong with its output
 */
export async function verifyOutputs(contenders, reference) {
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  try {
    for (const contender of contenders) {
      const problem = await findProblem(connection, contender, reference);
      if (problem !== undefined) {
        throw new Error(`checking the output of ${contender.id}: ${problem}`);
      }
    }
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

async function findProblem(connection, contender, reference) {
  const one = async (sql) => (await connection.runAndReadAll(sql)).getRowObjects()[0];
  const ids = await one(
    `SELECT count(*) AS rows, count(DISTINCT id) AS ids, min(id) AS low, max(id) AS high, typeof(any_value(score)) AS type,
       count(DISTINCT score) AS scores FROM ${tableOf(contender)}`,
  );
  const rows = BigInt(contender.rows);
  if (ids.rows !== rows || ids.ids !== rows || ids.low !== 0n || ids.high !== rows - 1n) {
    return `${ids.rows} rows with ${ids.ids} ids from ${ids.low} to ${ids.high}, wanted ${rows} from 0 on`;
  }
  if (ids.type !== "FLOAT" || ids.scores < rows / 100n) {
    return `${ids.scores} different scores of type ${ids.type}, wanted many of type FLOAT`;
  }
  const agreed = await one(
    `SELECT count(*) AS rows FROM ${tableOf(contender)} AS own JOIN ${tableOf(reference)} AS other USING (id)
     WHERE NOT isnan(own.score) AND abs(own.score - other.score) <= ${tolerance}`,
  );
  return agreed.rows === rows ? undefined : `${rows - agreed.rows} scores differ from those of ${reference.id}`;
}

function tableOf({ output }) {
  const files = statSync(output).isDirectory() ? join(output, "*.parquet") : output;
  return `read_parquet(${quote(files)}, hive_partitioning = false)`;
}
