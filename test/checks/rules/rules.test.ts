import { describe, expect, test } from "vitest";
import { defaultLimits, type Finding, type Limits } from "#src/checks/check.js";
import { earlierThan, judge, judgeWithPrevious, checkOf } from "#src/checks/checks.js";
import type { ColumnProfile } from "#src/checks/profile/column.js";
import type { RunProfile } from "#src/checks/profile/run-profile.js";
import {
  type Columns,
  nightsBefore,
  normals,
  numbersProfile,
  runProfile,
  textsProfile,
  vectorsProfile,
} from "../../support/run-profiles.js";

const rows = 1000;
const score = (seed: number, mean = 0.5, deviation = 0.1): ColumnProfile =>
  numbersProfile(normals(rows, { mean, deviation, seed }));
const weather = (seed: number): ColumnProfile =>
  numbersProfile(normals(rows, { mean: 15 + 8 * Math.sin(seed * 2.4), seed }));
const label = (no: number, yes = 1000 - no): ColumnProfile => textsProfile({ no, yes }, "label");
const usual = (seed: number): Required<Columns> => ({
  outputs: { score: score(seed), label: label(950 + (seed % 5)) },
  features: { age: numbersProfile(normals(rows, { mean: 40, deviation: 9, seed: seed + 100 })), temp: weather(seed) },
});

type Tonight = Columns & Partial<Pick<RunProfile, "rows" | "rejected" | "repeated" | "modelSha256">>;

/** What is found in a night that is like those before it but for this, as "check column level". */
function judged(tonight: Tonight, nights = 28, limits: Partial<Limits> = {}, of = usual): string[] {
  return resultsOf(tonight, nights, limits, of).map(({ check, column, level }) =>
    `${check} ${column ?? ""} ${level}`.replace("  ", " "),
  );
}

function resultsOf(
  { outputs, features, ...about }: Tonight,
  nights = 28,
  limits: Partial<Limits> = {},
  of = usual,
): Finding[] {
  const own = of(0);
  const run = runProfile({
    rows,
    repeated: 0,
    outputs: { ...own.outputs, ...outputs },
    features: { ...own.features, ...features },
    ...about,
  });
  const earlier = nightsBefore(nights, (ago) => ({ rows, repeated: 0, ...of(ago) }));
  return judge({
    run,
    earlier: earlierThan(run.date, earlier),
    limits: { ...defaultLimits, ...limits },
  }).results.filter(({ level }) => level !== "pass");
}

const scaled = (factor: number, shift = 0): ColumnProfile =>
  numbersProfile(normals(rows, { mean: 40, deviation: 9, seed: 7 }).map((value) => value * factor + shift));

function ids(night: number): ColumnProfile {
  return numbersProfile(Array.from({ length: rows }, (_, row) => night * rows + row));
}

function toward(x: number, seed: number): ColumnProfile {
  return vectorsProfile(normals(rows, { seed, deviation: 0.2 }).map((value) => [x + value, 1 - x + value / 2, 0.3]));
}

describe("a night beside the nights before it", () => {
  test("a usual night is not held, without a night known, with one, a few and many", () => {
    for (const nights of [0, 1, 2, 3, 5, 8, 14, 28, 40]) {
      expect([nights, judged({}, nights).filter((text) => text.endsWith("hold"))]).toEqual([nights, []]);
    }
  });

  test.each<[string, Tonight, string[]]>([
    ["another unit", { features: { age: scaled(1.609) } }, ["shape age hold"]],
    ["thousands", { features: { age: scaled(1000) } }, ["far age hold", "shape age hold"]],
    [
      "a thousandth of what moves each night",
      { features: { temp: numbersProfile(normals(rows, { mean: 15 }).map((value) => value / 1000)) } },
      ["far temp hold", "shape temp warn"],
    ],
    [
      "less than zero, which never was",
      { features: { temp: numbersProfile(normals(rows, { mean: -1 })) } },
      ["far temp hold", "shape temp warn"],
    ],
    [
      "no value",
      { features: { age: numbersProfile(Array<null>(rows).fill(null)) } },
      ["constant age hold", "nulls age hold"],
    ],
    [
      "30 % NULL",
      {
        features: {
          age: numbersProfile(
            normals(rows, { mean: 40, deviation: 9 }).map((value, row) => (row % 10 < 3 ? null : value)),
          ),
        },
      },
      ["nulls age hold"],
    ],
    [
      "a constant score",
      { outputs: { score: numbersProfile(Array<number>(rows).fill(0.5)) } },
      ["constant score hold", "shape score hold"],
    ],
    ["half of the rows", { rows: 500 }, ["rows hold"]],
    ["rows twice", { repeated: 0.5, rows: 2000 }, ["rows hold", "twice hold"]],
    [
      "another label",
      { outputs: { label: textsProfile({ No: 950, yes: 50 }, "label") } },
      ["unseen label hold", "shape label hold", "class label hold", "class label hold"],
    ],
    [
      "a rare class is gone",
      { outputs: { label: label(1000) } },
      ["shape label hold", "class label hold", "class label hold"],
    ],
    ["a column that is gone", { outputs: { score: textsProfile({ a: rows }) } }, ["column score hold"]],
    ["rejected rows", { rejected: 60 }, ["rejects hold"]],
  ])("%s holds the night", (_, tonight, due) => {
    expect(judged(tonight)).toEqual(due.filter((text) => !text.endsWith("pass")));
  });

  test("what moves from night to night only warns", () => {
    expect(
      judged({ features: { temp: numbersProfile(normals(rows, { mean: 60 })) } }, 28).filter((text) =>
        text.startsWith("shape"),
      ),
    ).toEqual(["shape temp warn"]);
  });

  test("yesterday's rows are held, unless nights are often the same", () => {
    const again = (of: typeof usual): Tonight => of(1);
    expect(judged(again(usual))).toEqual(["repeat hold"]);
    const still = (): Required<Columns> => usual(1);
    expect(judged({}, 28, {}, still)).toEqual([]);
  });

  test("one known night only warns, and few nights notice less than many", () => {
    const km: Tonight = { features: { age: scaled(1.609) } };
    expect(judged(km, 1)).toContain("shape age warn");
    expect(judged(km, 3)).toEqual(["shape age hold"]);
    const little: Tonight = { features: { age: scaled(1.2) } };
    expect(judged(little, 3)).toEqual([]);
    expect(judged(little, 28)).toEqual(["shape age hold"]);
  });

  test("with one known night or few rows a constant output only warns, and one without a value is held", () => {
    const filled = (count: number, value: number | null): ColumnProfile =>
      numbersProfile(Array<number | null>(count).fill(value));
    const levelOf = (value: number | null, nights: number, count = rows): string[] =>
      judged({ rows: count, outputs: { score: filled(count, value) } }, nights).filter((text) =>
        text.startsWith("constant"),
      );
    expect([levelOf(0.5, 1), levelOf(0.5, 2)]).toEqual([["constant score warn"], ["constant score hold"]]);
    expect(levelOf(0.5, 28, 80)).toEqual(["constant score warn"]);
    const empty = [levelOf(null, 0), levelOf(null, 1), levelOf(null, 28, 80)];
    expect(empty.flat()).toEqual(["constant score hold", "constant score hold", "constant score hold"]);
  });

  test("with fewer than 100 rows a night only warns", () => {
    expect(judged({ rows: 80, features: { age: scaled(1000) } }).filter((text) => text.includes("age"))).toEqual([
      "far age warn",
      "shape age warn",
    ]);
  });

  test("a factor makes all comparisons stricter or more lenient, one of a column only its own, and a column can be ignored", () => {
    const km: Tonight = { features: { age: scaled(1.3) } };
    expect(judged(km)).toEqual(["shape age hold"]);
    expect(judged(km, 28, { factor: 100 })).toEqual([]);
    expect(judged(km, 28, { inputs: new Map([["age", { factor: 100 }]]) })).toEqual([]);
    expect(judged(km, 28, { inputs: new Map([["age", { factor: Number.POSITIVE_INFINITY }]]) })).toEqual([]);
    expect(judged(km, 28, { outputs: new Map([["age", { factor: 100 }]]) })).toEqual(["shape age hold"]);
  });

  test("a run that is expected to differ only warns, and later runs are not compared with it; absolute limits still hold it", () => {
    const expected = { reason: "Black Friday", asBaseline: false };
    const [shape] = resultsOf({ features: { age: scaled(1000) } }, 28, { expected });
    expect(shape).toMatchObject({ level: "warn", lowered: "expected to differ: Black Friday", isExcused: true });
    const half = normals(rows, { mean: 40, deviation: 9 }).map((value, row) => (row % 2 === 0 ? null : value));
    expect(judged({ features: { age: numbersProfile(half) } }, 28, { expected })).toEqual(["nulls age warn"]);

    const outputs: Limits["outputs"] = new Map([
      ["score", { range: [0, 0.1] }],
      ["label", { in: ["no"] }],
    ]);
    const others = ["unique", "sql"].map(
      (check): Finding => ({ check, column: "id", level: "hold", measured: 1, limit: 0, against: null, numbers: {} }),
    );
    const run = runProfile({ rows, rejected: 60, ...usual(0) });
    const earlier = earlierThan(
      run.date,
      nightsBefore(28, (ago) => ({ rows, ...usual(ago) })),
    );
    const { results } = judge({ run, earlier, limits: { ...defaultLimits, expected, outputs }, others });
    const holds = results.filter(({ level }) => level === "hold").map(({ check }) => check);
    expect(holds).toEqual(["rejects", "range", "in", "unique", "sql"]);
  });

  test("columns that only grow are not compared, and are named", () => {
    const earlier = nightsBefore(9, (ago) => ({ features: { id: ids(100 - ago) } }));
    const run = runProfile({ features: { id: ids(100) } });
    const verdict = judge({ run, earlier: earlierThan(run.date, earlier), limits: defaultLimits });
    expect([verdict.outcome, verdict.growing]).toEqual(["publish", ["id"]]);
    const back = judge({
      run: runProfile({ features: { id: ids(20) } }),
      earlier: earlierThan(run.date, earlier),
      limits: defaultLimits,
    });
    expect(back.outcome).toBe("hold");
  });

  test("vectors that point elsewhere are held", () => {
    const of = (seed: number): Required<Columns> => ({ outputs: { v: toward(1, seed) }, features: {} });
    expect(judged({}, 28, {}, of)).toEqual([]);
    expect(judged({ outputs: { v: toward(0, 3) } }, 28, {}, of)).toContain("direction v hold");
  });
});

describe("what a rule takes for a night to compare with", () => {
  const resultOf = (
    run: RunProfile,
    earlier: readonly RunProfile[],
    { limits = {}, check }: { readonly limits?: Partial<Limits>; readonly check: Finding["check"] },
  ): string[] =>
    judge({ run, earlier: earlierThan(run.date, earlier), limits: { ...defaultLimits, ...limits } }).results.flatMap(
      (finding) => (finding.check === check ? `${finding.column ?? "run"} ${finding.level}` : []),
    );

  test.each<[string, number, string]>([
    ["no rejected rows", 0, "run hold"],
    ["rejected rows below the limit", 4, "run hold"],
    ["as many rejected rows", 9, "run pass"],
  ])("more rejected rows than the limit are usual only after nights that were above it: %s", (_, rejected, due) => {
    const earlier = nightsBefore(14, () => ({ rows: 991, rejected }));
    const run = runProfile({ rows: 991, rejected: 9 });
    expect(resultOf(run, earlier, { limits: { rejects: 0.005 }, check: "rejects" })).toEqual([due]);
  });

  test("a limit of NULLs holds for an output that only grows, and for a run that is expected to differ", () => {
    const growing = (night: number, nulls: number): ColumnProfile =>
      numbersProfile(Array.from({ length: rows }, (__, row) => (row < nulls ? null : night * rows + row)));
    const earlier = nightsBefore(9, (ago) => ({ outputs: { id: growing(100 - ago, 0) } }));
    const run = runProfile({ outputs: { id: growing(100, 2) } });
    const outputs = new Map([["id", { nulls: 0.001 }]]);
    const expected = { reason: "a holiday", asBaseline: false };
    for (const limits of [{ outputs }, { outputs, expected }]) {
      const verdict = judge({ run, earlier: earlierThan(run.date, earlier), limits: { ...defaultLimits, ...limits } });
      expect([verdict.outcome, verdict.growing]).toEqual(["hold", ["id"]]);
      expect(resultOf(run, earlier, { limits, check: "nulls" })).toEqual(["id hold"]);
    }
  });

  test("an output is compared although a feature of the same name only grows", () => {
    const earlier = nightsBefore(28, (ago) => ({ outputs: { x: score(ago) }, features: { x: ids(100 - ago) } }));
    const run = runProfile({ outputs: { x: score(0, 0.9) }, features: { x: ids(100) } });
    expect(resultOf(run, earlier, { check: "shape" })).toEqual(["x hold"]);
  });

  test("a night that has few rows because it lost most is held, as the nearest night has enough", () => {
    const nightOf = (count: number, left: number): string[] =>
      resultOf(
        runProfile({ rows: left }),
        nightsBefore(14, () => ({ rows: count })),
        { check: "rows" },
      );
    expect([nightOf(200, 60), nightOf(90, 30)]).toEqual([["run hold"], ["run warn"]]);
  });

  test("the fewer nights are known, the more times the usual distance passes", () => {
    const levelAfter = (nights: number, left = 300): string[] =>
      resultOf(
        runProfile({ rows: left }),
        nightsBefore(nights, (ago) => ({ rows: ago === 2 ? 1200 : 1000 + ago })),
        { check: "rows" },
      );
    expect([levelAfter(3), levelAfter(3, 150), levelAfter(28)]).toEqual([["run pass"], ["run hold"], ["run hold"]]);
  });

  describe("values that no earlier night had", () => {
    const some = (share: number, valueOf: (row: number) => number): ColumnProfile =>
      numbersProfile(Array.from({ length: rows }, (_, row) => (row < share * rows ? valueOf(row) : row % 50)));
    const texts = (share: number): ColumnProfile => textsProfile({ other: share * rows, usual: rows - share * rows });
    const levelOf = (x: ColumnProfile, before: readonly RunProfile[]): string[] =>
      resultOf(runProfile({ features: { x } }), before, { check: "unseen" });
    const after = (nights: number, usualOf: (ago: number) => ColumnProfile): RunProfile[] =>
      nightsBefore(nights, (ago) => ({ features: { x: usualOf(ago) } }));
    const fresh = (row: number): number => 1000 + (row % 9);

    test("are held where most numbers or many texts are new, and more of them while few nights are known", () => {
      const numbers = [0.7, 0.9, 0.96].map((share) => some(share, fresh));
      const names = [0.1, 0.3, 0.5].map(texts);
      for (const nights of [3, 28]) {
        const due = ["x pass", nights === 3 ? "x pass" : "x hold", "x hold"];
        expect(
          numbers.flatMap((x) =>
            levelOf(
              x,
              after(nights, () => some(0, fresh)),
            ),
          ),
        ).toEqual(due);
        expect(
          names.flatMap((x) =>
            levelOf(
              x,
              after(nights, () => texts(0)),
            ),
          ),
        ).toEqual(due);
      }
      expect(
        levelOf(
          texts(1),
          after(1, () => texts(0)),
        ),
      ).toEqual(["x warn"]);
    });

    test("are no surprise where earlier numbers were many, or too many to be counted", () => {
      expect(
        levelOf(
          some(1, fresh),
          after(28, (ago) => some(0.2, (row) => ago * 1000 + row)),
        ),
      ).toEqual([]);
      expect(
        levelOf(
          score(1),
          after(28, () => some(0, fresh)),
        ),
      ).toEqual([]);
    });

    test("are usual where a night had as many, unless a person approved it", () => {
      const before = after(28, (ago) => some(ago === 5 ? 1 : 0, (row) => 500 + (row % 9)));
      const approved = before.map((run, index) => (index === 23 ? { ...run, isApproved: true as const } : run));
      expect([before, approved].flatMap((nights) => levelOf(some(1, fresh), nights))).toEqual(["x pass", "x hold"]);
    });
  });

  test("a few NULL pass, and more of them while few nights are known", () => {
    const nullEvery = (every: number): Tonight => {
      const ages = normals(rows, { mean: 40, deviation: 9 });
      return { features: { age: numbersProfile(ages.map((value, row) => (row % every === 0 ? null : value))) } };
    };
    expect([judged(nullEvery(25)), judged(nullEvery(4), 3), judged(nullEvery(2), 3)]).toEqual([
      [],
      [],
      ["nulls age hold"],
    ]);
  });

  test("a difference that chance makes in so few rows passes", () => {
    const kinds = (rowsOf: (kind: number) => number): Required<Columns> => {
      const counts = Array.from({ length: 50 }, (_, kind) => [`kind ${kind}`, rowsOf(kind)]);
      return { outputs: { kind: textsProfile(Object.fromEntries(counts)) }, features: {} };
    };
    const levelOf = (times: number): string[] => {
      const run = runProfile({ rows: 100 * times, ...kinds((kind) => (kind % 2 === 0 ? 1 : 3) * times) });
      return resultOf(
        run,
        nightsBefore(28, () => kinds(() => 20)),
        { check: "shape" },
      );
    };
    expect([levelOf(1), levelOf(20)]).toEqual([["kind pass"], ["kind hold"]]);
  });

  test("half of the rows is held where ends of months have twice as many", () => {
    const monthEnd = [2400, 2100, 1700];
    const earlier = nightsBefore(28, (ago) => ({ rows: monthEnd[ago - 8] ?? 980 + ((ago * 13) % 40) }));
    const levelFor = (count: number): string[] => resultOf(runProfile({ rows: count }), earlier, { check: "rows" });
    expect(levelFor(500)).toEqual(["run hold"]);
    expect([1500, 3000].flatMap(levelFor)).toEqual(["run pass", "run pass"]);
    expect(resultOf(runProfile({ rows: 500 }), earlier.slice(-9), { check: "rows" })).toEqual(["run pass"]);
  });

  test("rows that repeat others are held where they are many, and more than on each night", () => {
    const levelOf = (repeated: number, before: number, nights: number): string[] =>
      resultOf(
        runProfile({ repeated }),
        nightsBefore(nights, () => ({ repeated: before })),
        { check: "twice" },
      );
    const levels = [3, 28].flatMap((nights) => [0.2, 0.3].flatMap((share) => levelOf(share, 0, nights)));
    expect(levels).toEqual(["run pass", "run hold", "run pass", "run hold"]);
    expect(levelOf(0.1, 0.9, 28)).toEqual(["run pass"]);
  });

  test("an approved night does not widen how far a median may be, and of negative numbers no logarithm counts", () => {
    const levelOf = (median: number, before: readonly RunProfile[]): string[] =>
      resultOf(runProfile({ features: { x: around(median) } }), before, { check: "far" });
    const around = (median: number): ColumnProfile =>
      numbersProfile(Array.from({ length: rows }, (_, row) => median + (row % 19) - 9));
    const before = nightsBefore(28, (ago) => ({ features: { x: around(ago === 5 ? 10_000 : 40) } }));
    const approved = before.map((run, index) => (index === 23 ? { ...run, isApproved: true as const } : run));
    expect([before, approved].flatMap((nights) => levelOf(90_000, nights))).toEqual(["x pass", "x hold"]);
    const negative = nightsBefore(28, () => ({ features: { x: around(-10) } }));
    expect([2, 9].flatMap((median) => levelOf(median, negative))).toEqual(["x pass", "x hold"]);
  });

  test.each([
    { approved: 2700, levels: { 1700: "warn", 3600: "warn", 5000: "hold", 700: "hold" } },
    { approved: 1400, levels: { 1900: "warn", 2200: "hold" } },
    { approved: 1000, levels: { 1400: "hold" } }, // approved for something else
    { approved: 200, levels: { 500: "hold", 1700: "hold" } }, // most faults lose rows
  ])(
    "more rows than usual are not held where they are about the $approved of an approved night",
    ({ approved, levels }) => {
      const earlier = nightsBefore(28, (ago) => ({
        rows: 980 + ((ago * 13) % 40),
        ...(ago === 3 ? { rows: approved, isApproved: true } : {}),
      }));
      for (const [count, level] of Object.entries(levels)) {
        const found = resultOf(runProfile({ rows: Number(count) }), earlier, { check: "rows" });
        expect([count, found]).toEqual([count, [`run ${level}`]]);
      }
    },
  );

  describe("where nights of weekends have about half of a weekday's rows", () => {
    const isWeekend = (ago: number): boolean => [1, 2].includes(ago % 7); // 23 November 2026 is a Monday
    const rowsOf = (ago: number): number => (isWeekend(ago) ? 440 : 980) + ((ago * 13) % 40);
    const before = (
      nights: number,
      holiday?: Partial<Pick<RunProfile, "rows" | "isApproved">>,
      at = 5,
    ): readonly RunProfile[] => nightsBefore(nights, (ago) => ({ rows: rowsOf(ago), ...(ago === at && holiday) }));
    const levelFor = (count: number, earlier: readonly RunProfile[], date?: string): string[] =>
      resultOf({ ...runProfile({ rows: count }), ...(date !== undefined && { date }) }, earlier, { check: "rows" });

    test("half of a weekday's rows is held, and what a holiday leaves is not", () => {
      const levels = [980, 800, 490, 230].map((count) => levelFor(count, before(28)));
      expect(levels).toEqual([["run pass"], ["run pass"], ["run hold"], ["run hold"]]);
      const milder = nightsBefore(28, (ago) => ({ rows: rowsOf(ago) + (isWeekend(ago) ? 180 : 0) }));
      expect([660, 600].map((count) => levelFor(count, milder))).toEqual([["run pass"], ["run hold"]]);
      expect(levelFor(490, before(27))).toEqual(["run pass"]); // three Mondays say too little
      const run = runProfile({ rows: 490 });
      const { results } = judge({ run, earlier: earlierThan(run.date, before(28)), limits: defaultLimits });
      const held = results.find(({ check }) => check === "rows") ?? expect.fail();
      expect(checkOf(held).say(held, { dateOf: (runId) => runId })).toMatch(
        /^490 rows; the usual Monday had 1,002 \(night-2026-11-09\), 48\.9% of it$/,
      );
    });

    test("it only warns where a person has approved such a night, as of a holiday, and a weekend's night with more warns", () => {
      expect(levelFor(490, before(28, { rows: 460, isApproved: true }))).toEqual(["run warn"]);
      expect(levelFor(490, before(28, { rows: 2400, isApproved: true }))).toEqual(["run hold"]);
      expect(levelFor(490, before(28, { isApproved: true }, 8))).toEqual(["run hold"]); // a Sunday
      expect(levelFor(980, before(35).slice(0, -1), "2026-11-22")).toEqual(["run warn"]);
    });

    test("nights that had many more rows than their weekday do not excuse one that has half of them", () => {
      expect(levelFor(490, before(28, { rows: 3000 }))).toEqual(["run hold"]);
    });
  });

  test("half of 150 rows is held where nights of weekends have as many", () => {
    const earlier = nightsBefore(28, (ago) => ({ rows: [1, 2].includes(ago % 7) ? 70 : 150 }));
    expect(resultOf(runProfile({ rows: 75 }), earlier, { check: "rows" })).toEqual(["run hold"]);
  });

  test("nights without rows, or with few different values, are not the same rows", () => {
    const few = { outputs: { label: label(900) }, features: {} };
    const earlier = nightsBefore(28, (ago) => (ago < 4 ? few : ago < 7 ? { rows: 0 } : { rows, ...usual(ago) }));
    expect(resultOf(runProfile({ rows, ...usual(20) }), earlier, { check: "repeat" })).toEqual(["run hold"]);
    expect(resultOf(runProfile(few), earlier, { check: "repeat" })).toEqual([]);
  });

  test("a night is not an earlier one if an output, a feature or the rejected rows differ, and may be that of a file", () => {
    const earlier = nightsBefore(28, (ago) => ({ rows, ...usual(ago) }));
    const again = runProfile({ rows, ...usual(20) });
    const { outputs, features } = runProfile(usual(21));
    for (const change of [{}, { outputs }, { features }, { rejected: 1 }]) {
      const due = Object.keys(change).length === 0 ? "run hold" : "run pass";
      expect(resultOf({ ...again, ...change }, earlier, { check: "repeat" })).toEqual([due]);
    }
    const ofFile = judge({ run: again, earlier: earlierThan(again.date, [again], true), limits: defaultLimits });
    expect(ofFile.results.filter(({ level }) => level !== "pass")).toEqual([]);
  });

  test("a column is missed in comparison with the last night that had rows, unless it is ignored", () => {
    const earlier = nightsBefore(9, (ago) => (ago === 1 ? { rows: 0 } : { rows, ...usual(ago) }));
    const { label: left } = usual(0).outputs;
    const run = runProfile({ rows, outputs: { label: left as ColumnProfile }, features: {} });
    expect(resultOf(run, earlier, { check: "column" })).toEqual(["score hold", "label pass"]);
    const outputs = new Map([["score", { factor: Number.POSITIVE_INFINITY }]]);
    expect(resultOf(run, earlier, { limits: { outputs }, check: "column" })).toEqual(["score pass", "label pass"]);
    expect(resultOf(runProfile({ rows: 0 }), earlier, { check: "column" })).toEqual(["score pass", "label pass"]);
  });
});

describe("nights that a person approved", () => {
  const strange = { age: scaled(1000) };

  test("an approved night is a neighbour: the next one like it passes, and others are judged as before", () => {
    const nights = nightsBefore(28, (ago) => ({
      rows: rows + ago,
      ...usual(ago),
      ...(ago === 1 ? { features: { ...usual(1).features, ...strange }, isApproved: true as const } : {}),
    }));
    const judgeOf = (age: ColumnProfile): string[] => {
      const run = runProfile({ rows, outputs: usual(0).outputs, features: { ...usual(0).features, age } });
      const { results } = judge({ run, earlier: earlierThan(run.date, nights), limits: defaultLimits });
      return results.filter(({ level }) => level !== "pass").map(({ check, column }) => `${check} ${column}`);
    };
    expect(judgeOf(numbersProfile(normals(rows, { mean: 40_000, deviation: 9000, seed: 5 })))).toEqual([]);
    expect(judgeOf(scaled(1.609))).toEqual(["shape age"]);
  });

  test("after a long gap a night is judged as one of the first", () => {
    const nights = nightsBefore(28, (ago) => ({ rows, ...usual(ago) }));
    expect(earlierThan("2026-11-23", nights).known).toBe(14);
    expect(earlierThan("2026-12-30", nights).known).toBe(1);
    const [first] = nights;
    const one = { ...(first as RunProfile), date: "2026-12-30" };
    expect(earlierThan("2026-12-31", [...nights, one]).known).toBe(1);
    expect(earlierThan("2027-01-01", [...nights, one, { ...one, date: "2026-12-31" }]).known).toBe(2);
    const after = [{ ...(first as RunProfile), date: "2026-09-01" }, ...nights.slice(1)];
    expect(earlierThan("2026-11-23", after).known).toBe(14);
  });
});

describe("absolute limits", () => {
  test.each<[string, Limits["outputs"], Tonight, string[]]>([
    [
      "range",
      new Map([["score", { range: [0, 1] as const }]]),
      { outputs: { score: numbersProfile([0.2, 0.3, 1.5]) } },
      ["range score hold"],
    ],
    ["in", new Map([["label", { in: ["no"] }]]), {}, ["in label hold"]],
    [
      "in, of whole numbers",
      new Map([["score", { in: ["1", "2"] }]]),
      { outputs: { score: numbersProfile([1, 2, 3], "int64") } },
      ["in score hold"],
    ],
    [
      "nulls",
      new Map([["score", { nulls: 0 }]]),
      { outputs: { score: numbersProfile([0.2, null]) } },
      ["nulls score hold"],
    ],
  ])("%s holds the first run", (_, outputs, tonight, due) => {
    expect(judged(tonight, 0, { outputs })).toEqual(due);
    const without = judged(tonight, 0, {});
    expect(without).toEqual([]);
  });

  test("an output with more NULLs than its limit is named once", () => {
    const half = normals(rows, { mean: 0.5, deviation: 0.1 }).map((value, row) => (row % 2 === 0 ? null : value));
    const outputs = new Map([["score", { nulls: 0.1 }]]);
    expect(judged({ outputs: { score: numbersProfile(half) } }, 28, { outputs })).toEqual(["nulls score hold"]);
  });
});

test("the model of the last run tells whether a new model or the data are the cause", () => {
  const earlier = nightsBefore(28, (ago) => ({ rows, ...usual(ago) }));
  const run = runProfile({ rows, modelSha256: "new", ...usual(0), outputs: { score: score(3, 0.8) } });
  const judgedRun = { run, earlier: earlierThan(run.date, earlier), limits: defaultLimits };
  const verdict = judge(judgedRun);
  const causeOf = (before: ColumnProfile): string | undefined =>
    judgeWithPrevious(judgedRun, verdict, {
      modelSha256: "a",
      rows: 1000,
      outputs: new Map([["score", before]]),
    }).results.find(({ check, column }) => check === "shape" && column === "score")?.cause?.of;
  expect([causeOf(score(9)), causeOf(score(9, 0.8))]).toEqual(["model", "data"]);
});

test.each<[string, Tonight, RegExp]>([
  [
    "a unit",
    { features: { age: scaled(1.609344) } },
    /^median 64\.\d, usually 39\.\d to 40\.\d|×1\.61: kilometres for miles\?/,
  ],
  ["thousands", { features: { age: scaled(1000) } }, /^median \d+, seen -?\d.* to \d.* \(×1000: thousands\?\)$/],
  [
    "a tail, where the median is as usual",
    {
      features: { age: numbersProfile(normals(rows, { mean: 40, deviation: 9 }).map((age) => (age < 36 ? 36 : age))) },
    },
    /^a tenth is below 36(\.\d+)?, usually 2\d.*; its values are /,
  ],
  ["rows", { rows: 482 }, /^482 rows; the nearest night had 1,000 \(night-2026-\d+-\d+\), 48\.2% of it$/],
  [
    "a label",
    { outputs: { label: textsProfile({ No: 950, yes: 50 }, "label") } },
    /^95% of the rows have values that no earlier night had, such as No; no row has no; usually at most 0%$/,
  ],
  [
    "NULL",
    {
      features: {
        age: numbersProfile(
          normals(rows, { mean: 40, deviation: 9 }).map((value, row) => (row % 2 === 0 ? null : value)),
        ),
      },
    },
    /^50% NULL; before, at most 0%$/,
  ],
])("a sentence says tonight's number and the usual ones: %s", (_, tonight, text) => {
  const [first = expect.fail()] = resultsOf(tonight);
  expect(checkOf(first).say(first, { dateOf: (runId) => runId })).toMatch(text);
});

test("a finding names the quantile that has moved", () => {
  const tail = normals(rows, { mean: 40, deviation: 9 }).map((age) => Math.max(age, 36));
  const [{ numbers } = expect.fail()] = resultsOf({ features: { age: numbersProfile(tail) } });
  expect(numbers).toMatchObject({ p10: expect.closeTo(36, 0), low: expect.any(Number), high: expect.any(Number) });
  expect(numbers).not.toHaveProperty("median");
});

test("a sentence has no median of a column whose quantiles are as usual, and no distance of thousands of times", () => {
  const flags = (ones: number): ColumnProfile =>
    numbersProfile(Array.from({ length: rows }, (_, row) => (row < ones ? 1 : 0)));
  const of = (seed: number): Required<Columns> => ({ outputs: {}, features: { flag: flags(450 + seed) } });
  const [first = expect.fail()] = resultsOf({ features: { flag: flags(150) } }, 28, {}, of);
  expect(checkOf(first).say(first, { dateOf: () => "2 May" })).toBe(
    "its values are more than 100 times as far from the nearest night (2 May) as earlier nights were from theirs",
  );
});
