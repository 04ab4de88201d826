/** Which predictions are judged by which labels. */
export interface EvaluationRequest {
  /** Columns of both that together identify a row. */
  readonly key: readonly string[];
  readonly label: string;
  readonly prediction: string;
  /** The labels are those whose column has this date; undefined: they are of any date. */
  readonly date: { readonly column: string; readonly value: string } | undefined;
  /** The column by whose values the rows are judged apart, too. */
  readonly by: string | undefined;
  /** A score from here on predicts the class. */
  readonly threshold: number;
  /** The label of the class whose probability is predicted. Default: 1 or true. */
  readonly positive: string | undefined;
}

/** How right predictions are. */
export interface Evaluated {
  readonly kind: "classes" | "numbers" | "labels";
  /** Keys with several labels, which count as none. */
  readonly repeated: number;
  readonly all: Figures;
  readonly bySlice: ReadonlyMap<string, Figures>;
}

export interface Figures {
  readonly rows: number;
  /** Rows with a label, and those of them whose prediction is one. */
  readonly labelled: number;
  readonly judged: number;
  /** By name: `auc`, `mae` and so on. NaN: it cannot be computed from these rows. */
  readonly values: Readonly<Record<string, number>>;
  /** Of a class, in bins that end at the deciles of the scores: the mean score and the share of rows of the class. */
  readonly calibration: readonly { readonly predicted: number; readonly observed: number; readonly rows: number }[];
}

/** So many earlier nights say what is usual. */
const enoughNights = 5;

/** A figure of a night that is far from what it was on the nights before. */
export interface Change {
  readonly night: string;
  readonly figure: string;
  readonly value: number;
  /** What it was on the nights before. */
  readonly low: number;
  readonly high: number;
}

/**
 * Finds what changed against the usual nights: figures further from those of the nights before than these are from each
 * other, after five of them.
 */
export function changesOf(nights: readonly { readonly night: string; readonly figures: Figures }[]): Change[] {
  return nights.flatMap(({ night, figures }, index) =>
    Object.entries(figures.values).flatMap(([figure, value]) => {
      const before = nights
        .slice(0, index)
        .map((earlier) => earlier.figures.values[figure] ?? Number.NaN)
        .filter(Number.isFinite);
      const [low, high] = [Math.min(...before), Math.max(...before)];
      const isFar = value < low - (high - low) || value > high + (high - low);
      return before.length >= enoughNights && isFar ? [{ night, figure, value, low, high }] : [];
    }),
  );
}
