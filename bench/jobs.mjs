// What is timed: jobs, each done by several programs over one table.

/**
 * @typedef {object} Job
 * @property {string} id
 * @property {string} what as the report shows it
 * @property {readonly Prediction[]} predictions the columns that each output has beside `id`
 * @property {readonly Ratio[]} ratios those that matter
 */

/**
 * @typedef {object} Prediction
 * @property {string} column
 * @property {"FLOAT" | "VARCHAR"} type as DuckDB names it; texts must be equal, floats may differ a little
 * @property {(rows: number) => number} atLeast how many different values make it plausible
 */

/**
 * @typedef {object} Ratio
 * @property {string} of contender
 * @property {string} to contender
 * @property {number} [wanted] what the project set out to reach; without it, a ratio is there for information
 */

/** The contender that a job's others are checked against and compared with: the plain Python loop. */
export const plainLoop = "python";

/** @type {Prediction} */
const score = { column: "score", type: "FLOAT", atLeast: (rows) => rows / 100 };

/** @type {readonly Job[]} in the order in which each round runs them */
export const jobs = [
  {
    id: "mlp",
    what: "32 FLOAT columns, MLP 32-128-64-1",
    predictions: [score],
    ratios: [
      { of: "infer-batch", to: plainLoop, wanted: 1 },
      { of: "infer-batch", to: "python-shards" },
      { of: "infer-batch", to: "parquetjs-row", wanted: 50 },
      { of: "infer-batch", to: "parquetjs-group" },
      { of: "infer-batch-small", to: "parquetjs-row" },
      { of: "infer-batch-small", to: "parquetjs-group" },
    ],
  },
  {
    id: "wide",
    what: "200 FLOAT columns, MLP 200-64-1",
    predictions: [score],
    ratios: [{ of: "infer-batch", to: plainLoop, wanted: 1 }],
  },
  {
    id: "strings",
    what: "2 VARCHAR, 4 DOUBLE and a BIGINT column, each an input of a scikit-learn pipeline; label and a probability",
    predictions: [
      { column: "label", type: "VARCHAR", atLeast: () => 3 },
      { column: "probability", type: "FLOAT", atLeast: (rows) => rows / 100 },
    ],
    ratios: [{ of: "infer-batch", to: plainLoop }],
  },
  {
    id: "arrow",
    what: "the rows of `mlp` in Arrow files",
    predictions: [score],
    ratios: [
      { of: "infer-batch", to: plainLoop, wanted: 1 },
      { of: "infer-batch", to: "infer-batch-parquet", wanted: 1 },
    ],
  },
  {
    id: "arrow-wide",
    what: "the rows of `wide` in Arrow files",
    predictions: [score],
    ratios: [{ of: "infer-batch", to: plainLoop, wanted: 1 }],
  },
  {
    id: "embeddings",
    what: "fixed-size lists of 384 FLOAT in Arrow files, MLP 384-64-1",
    predictions: [score],
    ratios: [{ of: "infer-batch", to: plainLoop, wanted: 1 }],
  },
];
