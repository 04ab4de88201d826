// Profiles of the nights, and the faults that are planted into them.
import { cellsOf, drawNumbers, drawTexts, gridOf, mixed } from "./draws.mjs";

const logistic = (value) => 1 / (1 + Math.exp(-value));

/** Each number's value by a standard normal variable. */
const columns = {
  weight: { grid: gridOf((z) => 70 + 9 * z), type: "float64" },
  amount: { grid: gridOf((z) => Math.exp(3 + z)), type: "float64", nulls: 0.02 },
  age: { grid: gridOf((z) => 45 + 12 * z, true), type: "int32" },
  balance: { grid: gridOf((z) => 1500 * z), type: "float64", zeros: 0.2 },
  ratio: { grid: gridOf((z) => logistic(z)), type: "float32", nulls: 0.1 },
};
const features = Object.keys(columns);
const inGrams = gridOf((z) => 70_000 + 9000 * z);
/** Scores of two classes, with a third of positives or with a thousandth; and of a model that is sure of one class in ten. */
const scores = {
  usual: gridOf((z) => logistic(1.2 * z - 0.8)),
  rare: gridOf((z) => logistic(z - 6.9)),
  sure: gridOf((z) => logistic(8 * (z - 1.28))),
};
const countries = { AT: 0.1, CH: 0.12, DE: 0.4, ES: 0.13, FR: 0.2, IT: 0.05 };

function cellsAt(shift, segment, deviation = 1) {
  const cells = cellsOf({ mean: shift, deviation });
  return segment === undefined
    ? cells
    : mixed(cellsOf({ mean: shift + segment.shift, deviation }), cells, segment.share);
}

/** A night's run, with a fault or without one. */
export function runOf(random, night, index, fault = {}) {
  const rows = Math.round(night.rows * (fault.rows ?? 1));
  const numberOf = (name, source = name) => {
    const about = columns[source];
    const probabilities = cellsAt(night.shifts[source], night.segment);
    const drawn = drawNumbers(random, { rows, probabilities, ...about, grid: fault.grids?.[name] ?? about.grid });
    return { ...drawn, type: columns[name].type };
  };
  const found = features.map((name, at) => [
    name,
    numberOf(name, fault.isShifted ? features[(at + 1) % features.length] : name),
  ]);
  const isRare = night.positives < 0.01;
  const { shift = 0, deviation = 1 } = fault.score ?? {};
  const grid = isRare ? scores.rare : night.scores.length > 1 ? scores.sure : scores.usual;
  const predicted = night.scores.map((name) => {
    const probabilities = cellsAt(night.shifts[name] + shift, night.segment, deviation);
    return [name, drawNumbers(random, { rows, grid, probabilities, type: "float32" })];
  });
  const positives = Math.min(night.positives * (fault.positives ?? 1), 0.6);
  const labels = isRare
    ? { no: 1 - positives, yes: positives }
    : { a: (1 - positives) * 0.6, b: positives, c: (1 - positives) * 0.4 };
  const run = {
    runId: `night-${index}`,
    date: night.date,
    modelSha256: "a",
    rows,
    rejected: 0,
    model: { uri: "model.onnx" },
    outputs: new Map([...predicted, ["label", drawTexts(random, rows, labels)]]),
    carried: new Map(),
    features: new Map([...found, ["country", drawTexts(random, rows, { ...countries, ...fault.countries })]]),
    slices: new Map(),
  };
  return fault.change === undefined ? run : fault.change(run);
}

const withFeature = (run, name, change) => ({
  ...run,
  features: new Map([...run.features, [name, change(run.features.get(name))]]),
});

const allNaN = (profile) => ({
  ...profile,
  nulls: 0,
  nan: profile.rows,
  values: { shift: 0, keys: [], counts: [] },
});

/** Each fault, whether it is mild (a warning is enough), and how it changes a night that is usual otherwise. */
export const faults = {
  "a feature × 1000": { fault: { grids: { weight: inGrams } } },
  "columns shifted by one": { fault: { isShifted: true } },
  "a feature all NaN": { fault: { change: (run) => withFeature(run, "ratio", allNaN) } },
  "a class collapses": { fault: { positives: 0.01 } },
  "half a table": { fault: { rows: 0.5 } },
  "last year's model": { isMild: true, fault: { score: { shift: 0.6, deviation: 1.3 } } },
  "a new category": { isMild: true, fault: { countries: { DE: 0.32, PT: 0.08 } } },
  "yesterday's features again": {
    isMild: true,
    fault: {},
    before: (run, last) => ({ ...run, rows: last.rows, outputs: last.outputs, features: last.features }),
  },
};
