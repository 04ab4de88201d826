// What is timed: jobs, each done by several programs over one table.

/**
 * @typedef {object} Job
 * @property {string} id
 * @property {string} what as the report shows it
 * @property {readonly Prediction[]} predictions the columns that each output has in addition to `id`
 * @property {number} [tolerance] how far floats may be from the plain loop's; default: 1e-5
 * @property {boolean} [long] the model takes most of the time; not warmed up
 * @property {string} [own] the contender that the others are compared with; default `infer-batch`
 * @property {string} [like] the job whose plain loop writes the same rows; default: this one
 * @property {readonly Ratio[]} ratios of its rate to another's
 */

/**
 * @typedef {object} Prediction
 * @property {string} column
 * @property {"FLOAT" | "VARCHAR"} type as DuckDB names it; texts must be equal, floats may differ a little
 * @property {(rows: number) => number} atLeast how many different values make it plausible
 */

/**
 * @typedef {object} Ratio
 * @property {string} [of] contender; default: the job's own
 * @property {string} to contender
 * @property {number} [wanted] what the project set out to reach; without it, a ratio is there for information
 * @property {number} [target] what would be better still
 */

/** The contender that a job's others are checked against: the plain Python loop. */
export const plainLoop = "python";
/** The contender that only calls the model. */
export const floorId = "session";
/** The trees alone, by another compiler. */
export const treesFloorId = "lleaves";

/**
 * ONNX Runtime adds up a thousand trees in one order with one thread and in another with two: its own sums, of up to 13,
 * differ by 2.3e-5 in a million rows.
 */
const sumTolerance = 1e-4;

/** @type {Prediction} */
const score = { column: "score", type: "FLOAT", atLeast: (rows) => rows / 100 };

/** @type {readonly Job[]} in the order in which each round runs them */
export const jobs = [
  {
    id: "linear",
    what: "32 FLOAT columns, logistic regression",
    predictions: [score],
    ratios: [
      { to: plainLoop, wanted: 1.5 },
      { to: "python-shards", wanted: 0.8 },
    ],
  },
  {
    id: "mlp",
    what: "32 FLOAT columns, MLP 32-128-64-1",
    predictions: [score],
    ratios: [
      { to: plainLoop, wanted: 1.5 },
      { to: "python-shards", wanted: 1, target: 1.2 },
      { to: "daft", wanted: 2.5 },
      { to: "ray", wanted: 8 },
      { to: "spark", wanted: 15 },
      { to: "parquetjs-row", wanted: 50 },
      { of: "infer-batch-small", to: "parquetjs-row" },
      { of: "infer-batch-small", to: "parquetjs-group" },
    ],
  },
  {
    id: "lightgbm",
    what: "32 FLOAT columns, LightGBM, 200 trees of 31 leaves",
    long: true,
    // A forest has few answers of its own, compared with a net.
    predictions: [{ ...score, atLeast: (rows) => rows / 1000 }],
    ratios: [
      { to: plainLoop, wanted: 2.3 },
      { to: "python-shards", wanted: 2.3 },
      { to: floorId, wanted: 0.92 },
      { to: treesFloorId, wanted: 0.8 },
    ],
  },
  {
    id: "forest",
    what: "32 FLOAT columns, 1,000 boosted trees of 63 leaves",
    long: true,
    tolerance: sumTolerance,
    predictions: [score],
    ratios: [{ to: plainLoop, wanted: 1.5 }, { to: "python-shards", wanted: 1.5 }, { to: floorId }],
  },
  {
    id: "oblivious",
    what: "32 FLOAT columns, 2,000 oblivious trees of depth 6",
    long: true,
    tolerance: sumTolerance,
    predictions: [score],
    ratios: [{ to: plainLoop, wanted: 1.5 }, { to: "python-shards", wanted: 1.5 }, { to: floorId }],
  },
  {
    id: "mlp-big",
    what: "32 FLOAT columns, MLP 32-1024-1024-1",
    long: true,
    predictions: [score],
    ratios: [
      { to: plainLoop, wanted: 1.45 },
      { to: "python-shards", wanted: 1.1 },
      { to: floorId, wanted: 0.92 },
    ],
  },
  {
    id: "mixed",
    what: "8 DOUBLE, 6 BIGINT, 6 INTEGER and 12 FLOAT columns, most of them dictionaries, a third with NULLs; MLP 32-128-64-1 with means in place of NaN",
    predictions: [score],
    ratios: [
      { to: plainLoop, wanted: 1.5 },
      { to: "python-shards", wanted: 1 },
    ],
  },
  {
    id: "wide",
    what: "200 FLOAT columns, MLP 200-64-1",
    predictions: [score],
    ratios: [{ to: plainLoop, wanted: 1 }],
  },
  {
    id: "strings",
    what: "2 VARCHAR, 4 DOUBLE and a BIGINT column, each an input of a scikit-learn pipeline; label and a probability",
    predictions: [
      { column: "label", type: "VARCHAR", atLeast: () => 3 },
      { column: "probability", type: "FLOAT", atLeast: (rows) => rows / 100 },
    ],
    ratios: [{ to: plainLoop }],
  },
  {
    id: "arrow",
    what: "the rows of `mlp` in Arrow files",
    predictions: [score],
    ratios: [
      { to: plainLoop, wanted: 1 },
      { to: "infer-batch-parquet", wanted: 1 },
    ],
  },
  {
    id: "arrow-wide",
    what: "the rows of `wide` in Arrow files",
    predictions: [score],
    ratios: [{ to: plainLoop, wanted: 1 }],
  },
  {
    id: "arrow-wide-long",
    what: "the same with four times the rows",
    predictions: [score],
    ratios: [{ to: plainLoop, wanted: 1 }],
  },
  {
    id: "embeddings",
    what: "fixed-size lists of 384 FLOAT in Arrow files, MLP 384-64-1",
    predictions: [score],
    ratios: [{ to: plainLoop, wanted: 1 }],
  },
  {
    id: "embeddings-long",
    what: "the same with eight times the rows",
    predictions: [score],
    ratios: [{ to: plainLoop, wanted: 1 }],
  },
  {
    id: "scaling",
    what: "the job of `mlp` by 1 and 2 processes, `--worker i/n`",
    predictions: [score],
    own: "workers-2",
    like: "mlp",
    ratios: [{ to: "workers-1" }, { of: "workers-2-cores-1", to: "workers-1-cores-1" }],
  },
];
