export interface EvaluationRequest {
  /** Columns of both that together identify a row. */
  readonly key: readonly string[];
  readonly label: string;
  readonly prediction: string;
  /** The labels are those whose column has this date; undefined: they are of any date. */
  readonly date: { readonly column: string; readonly value: string } | undefined;
  /** The column by whose values the rows are judged apart, too. */
  readonly by?: string | undefined;
  /** A score from here on predicts the class. */
  readonly threshold: number;
  /** The label of the class whose probability is predicted. Default: 1 or true. */
  readonly positive?: string | undefined;
}

/** How right predictions are, under the names of JSON. */
export interface Evaluated {
  readonly kind: "classes" | "numbers" | "labels";
  readonly prediction: string;
  /** They count as keys without one. */
  readonly keys_with_several_labels: number;
  readonly all: Figures;
  /** By the values of a column. */
  readonly by: readonly (readonly [string, Figures])[];
}

export interface Figures {
  readonly rows: number;
  /** Rows with a label, and those of them whose prediction is one. */
  readonly rows_labelled: number;
  readonly rows_judged: number;
  /** By name: `auc`, `mae` and so on. NaN: it cannot be computed from these rows. */
  readonly values: Readonly<Record<string, number>>;
  /** Of a class, in bins that end at the deciles of the scores: the mean score and the share of rows of the class. */
  readonly calibration: readonly { readonly predicted: number; readonly observed: number; readonly rows: number }[];
}

/** Evaluated predictions of a night, by model. */
export interface EvaluatedNight {
  /** The date of the night; "": one was asked for. */
  readonly night: string;
  readonly models: readonly (Evaluated & { readonly model: string })[];
}

/** So many earlier nights say what is usual. */
const enoughNights = 5;

interface Change {
  readonly night: string;
  readonly model: string;
  readonly figure: string;
  readonly value: number;
  readonly low: number;
  readonly high: number;
}

/** Figures further from those of the nights before than these are from each other, after five of them. */
export function changesOf(nights: readonly EvaluatedNight[]): Change[] {
  const all = nights.flatMap(({ night, models }) =>
    models.map(({ model, all: { values } }) => ({ night, model, values })),
  );
  return all.flatMap(({ night, model, values }, index) =>
    Object.entries(values).flatMap(([figure, value]) => {
      const before = all
        .slice(0, index)
        .map((earlier) => (earlier.model === model ? (earlier.values[figure] ?? Number.NaN) : Number.NaN))
        .filter(Number.isFinite);
      const [low, high] = [Math.min(...before), Math.max(...before)];
      const isFar = value < low - (high - low) || value > high + (high - low);
      return before.length >= enoughNights && isFar ? [{ night, model, figure, value, low, high }] : [];
    }),
  );
}
