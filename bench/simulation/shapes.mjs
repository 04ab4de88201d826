// Seven shapes of job: how many rows a night has, and how its features and scores are distributed.
import { randomOf } from "./draws.mjs";

/**
 * @typedef {object} Night
 * @property {string} date
 * @property {number} rows
 * @property {boolean} isUsual nothing but chance, weekday and season is at work
 * @property {number} positives share of positives, or of the second of three labels
 * @property {Readonly<Record<string, number>>} shifts of each number's mean, in its standard deviations
 * @property {readonly string[]} scores names of the outputs that are numbers
 * @property {{ share: number, shift: number }} [segment] rows of another kind: all shifts are theirs, too
 */

const nights = 365;
/** A year that begins on a Wednesday. */
const firstMs = Date.UTC(2025, 0, 1);
const dayMs = 86_400_000;

const features = ["weight", "amount", "age", "balance", "ratio"];

/**
 * What each shape does beyond what all do. `rows`: of an ordinary night. `row` and `shift` are factors and shifts of a
 * night; `draw` is what differs between seeds.
 */
export const shapes = {
  weekly: {
    what: "50,000 rows; 45 % of them on weekends, with other customers",
    rows: 50_000,
    draw: (random) => ({ weekend: random.between(0.3, 0.6), shift: random.between(0.2, 0.6) }),
    night: ({ weekday }, { weekend, shift }) =>
      weekday === 0 || weekday === 6 ? { factor: weekend, shift, isUsual: true } : {},
  },
  "month-end": {
    what: "30,000 rows; about twice as many, and larger amounts, in the last two nights of a month and the first",
    rows: 30_000,
    draw: (random) => ({ more: random.between(1.5, 2.2), shift: random.between(0.3, 0.6) }),
    night: ({ day, daysLeft }, { more, shift }) =>
      daysLeft < 2 || day === 1 ? { factor: more, shift, isUsual: false } : {},
  },
  growth: {
    what: "from 20,000 to about 100,000 rows within the year, and everything drifts by one standard deviation",
    rows: 20_000,
    draw: (random) => ({ growth: random.between(3, 7), drift: random.between(0.5, 1.5) }),
    night: ({ index }, { growth, drift }) => ({
      factor: growth ** (index / nights),
      shift: (drift * index) / nights,
      isUsual: true,
    }),
  },
  campaign: {
    what: "40,000 rows; four campaigns of a week, in which a third of about twice as many rows is another segment",
    rows: 40_000,
    draw: (random) => ({
      more: random.between(1.5, 2.3),
      segment: { share: random.between(0.2, 0.4), shift: random.between(0.6, 1.1) },
      starts: [50, 140, 230, 320].map((start) => start + Math.floor(random.between(0, 30))),
    }),
    night: ({ index }, { more, segment, starts }) =>
      starts.some((start) => index >= start && index < start + 7) ? { factor: more, segment, isUsual: false } : {},
  },
  "200 rows": {
    what: "200 rows, give or take",
    rows: 200,
    draw: () => ({}),
    night: () => ({}),
  },
  "0.1 % positives": {
    what: "100,000 rows, of which 0.1 % are positive",
    rows: 100_000,
    positives: 0.001,
    draw: () => ({}),
    night: () => ({}),
  },
  probabilities: {
    what: "3,000 rows; the probabilities of ten classes, each near 1 in a tenth of the rows and near 0 in the others",
    rows: 3000,
    scores: Array.from({ length: 10 }, (_, index) => `p${index}`),
    draw: () => ({}),
    night: () => ({}),
  },
};

/**
 * The nights of a year of a shape.
 * @param {{ variation?: number }} [chance] standard deviation of the logarithm of a night's rows, beside weekday and season
 */
export function yearOf(name, seed, { variation = 0.07 } = {}) {
  const shape = shapes[name];
  const random = randomOf(seed * 1_000_003 + Object.keys(shapes).indexOf(name));
  const { scores = ["score"] } = shape;
  const numbers = [...features, ...scores];
  const drawn = shape.draw(random);
  const weekdays = Array.from({ length: 7 }, () => random.between(0.9, 1.1));
  const season = { rows: random.between(0, 0.2), shift: random.between(0, 0.4), phase: random.between(0, 2 * Math.PI) };
  const walks = Object.fromEntries(numbers.map((number) => [number, { at: 0, way: random.next() < 0.5 ? -1 : 1 }]));
  const found = [];
  for (let index = 0; index < nights; index += 1) {
    const about = calendarOf(index);
    const { factor = 1, shift = 0, segment, isUsual = true } = shape.night({ index, ...about }, drawn);
    const angle = (2 * Math.PI * index) / nights + season.phase;
    const rows = shape.rows * factor * weekdays[about.weekday] * (1 + season.rows * Math.sin(angle));
    const shifts = {};
    for (const number of numbers) {
      const walk = walks[number];
      // What moves slowly, and what each night has of its own.
      walk.at = 0.8 * walk.at + 0.04 * random.normal();
      shifts[number] = walk.at + 0.03 * random.normal() + walk.way * (shift + season.shift * Math.sin(angle));
    }
    found.push({
      date: about.date,
      rows: Math.max(1, Math.round(rows * Math.exp(variation * random.normal()))),
      isUsual,
      positives: (shape.positives ?? 0.3) * Math.exp(0.1 * random.normal()),
      shifts,
      scores,
      segment,
    });
  }
  return { nights: found, random };
}

function calendarOf(index) {
  const date = new Date(firstMs + index * dayMs);
  const next = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0));
  return {
    date: date.toISOString().slice(0, 10),
    weekday: date.getUTCDay(),
    day: date.getUTCDate(),
    daysLeft: next.getUTCDate() - date.getUTCDate(),
  };
}
