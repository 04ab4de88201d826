import { spawnSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Outcome } from "#src/report/report.js";
import type { RunComparison } from "#src/run/lifecycle/erasure.js";
import { matchedRows } from "../../support/challenger.js";
import { pageAfter } from "#src/report/page/page.js";
import { describe, expect, test } from "vitest";
import { scratchFolder } from "../../support/job.js";
import { reviewedRun, scores } from "../../support/reviews.js";
import { textsProfile } from "../../support/run-profiles.js";

const browsers = ["chromium", "chromium-browser", "google-chrome"];
const browser = browsers.find((name) => spawnSync(name, ["--version"]).status === 0);
const widths = [390, 768, 1280];

const challenger: RunComparison = {
  model: "models:/churn_of_customers_who_pay_monthly@challenger",
  sha256: "0".repeat(64),
  tolerance: 0.01,
  version: null,
  rows: { ...matchedRows, rows_compared: 4_470_039 },
  missed: { null: 12 },
  place: "out/_challenger",
  columns: [
    [
      "score",
      {
        kind: "numbers",
        rows: 4_470_039,
        figures: {
          rows_beyond_tolerance: 1_204_331,
          largest_difference: 0.35828,
          mean_difference: 0.0302907,
          psi: 0.0561075,
          p99_difference: 0.34,
          rank_correlation: 0.99993,
          median_difference: 0.0008,
          p90_difference: 0.09,
        },
        flips: [],
        most: [
          { row: 1, keys: { id: "9007199254741361" }, one: "0.313993037", other: "0.672272861", distance: 0.35828 },
        ],
      },
    ],
  ],
  apart: [],
};

/** A held page with 14 outputs, one of a long name and many labels, and a challenger. */
function widePage(): string {
  const labels = Object.fromEntries(
    Array.from({ length: 30 }, (_, index) => [`segment of customers ${index}`, 10 + index]),
  );
  const outputs = Object.fromEntries(
    Array.from({ length: 11 }, (_, index) => [`probability_${index}`, scores(index, index)]),
  );
  const name = "probability_that_the_customer_leaves_within_thirty_days";
  const { record, outcome, review } = reviewedRun(3, {
    outputs: { ...outputs, [name]: scores(4_470_039, 5), segment: textsProfile(labels) },
  });
  record.setReview({ ...review, comparison: challenger });
  const { report } = outcome.kind === "done" ? outcome : expect.fail();
  const verdict = report.verdict ?? expect.fail();
  const failed = [...verdict.failed, ...Array.from({ length: 23 }, (_, check) => `${name}: check ${check} failed`)];
  const many: Outcome = { kind: "done", report: { ...report, verdict: { ...verdict, failed } } };
  return pageAfter("", { record, outcome: many, endedMs: Date.UTC(2026, 10, 23, 4) }).replaceAll(
    "<details>",
    "<details open>",
  );
}

/** Measures the page in a frame of each width: texts that end beyond the frame, and numbers that take several lines. */
const measuring = `
const found = {};
for (const frame of document.querySelectorAll("iframe")) {
  const page = frame.contentDocument;
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  const beyond = [];
  const broken = [];
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    const range = page.createRange();
    range.selectNodeContents(node);
    const lines = [...range.getClientRects()];
    const text = node.data.trim();
    if (lines.some(({ right }) => right > frame.clientWidth)) {
      beyond.push(text);
    }
    if (/^[\\d.,%<+-]+$/.test(text) && new Set(lines.map(({ top }) => top)).size > 1) {
      broken.push(text);
    }
  }
  const commandsAt = page.querySelector(".deciding pre").getBoundingClientRect().top;
  found[frame.width] = { beyond, broken, commandsAt, wider: page.documentElement.scrollWidth - frame.clientWidth };
}
document.title = JSON.stringify(found);`;

interface Measured {
  readonly beyond: readonly string[];
  readonly broken: readonly string[];
  /** Pixels above the first command of a held run. */
  readonly commandsAt: number;
  /** By how many pixels the page is wider than its frame. */
  readonly wider: number;
}

async function measured(page: string): Promise<Readonly<Record<string, Measured>>> {
  await using scratch = await scratchFolder();
  await writeFile(join(scratch.path, "page.html"), page);
  const frames = widths.map(
    (width) => `<iframe src="page.html" width="${width}" height="1000" style="border:0"></iframe>`,
  );
  const frame = join(scratch.path, "frames.html");
  await writeFile(frame, `<body>${frames.join("")}<script>onload = () => { ${measuring} };</script></body>`);
  const args = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--allow-file-access-from-files",
    "--window-size=3000,1200",
  ];
  const { stdout, stderr } = spawnSync(
    browser ?? "",
    [
      ...args,
      `--user-data-dir=${join(scratch.path, "profile")}`,
      "--virtual-time-budget=10000",
      "--dump-dom",
      `file://${frame}`,
    ],
    { encoding: "utf8", timeout: 100_000 },
  );
  const title = /<title>(.*?)<\/title>/.exec(stdout)?.[1] ?? expect.fail(stderr);
  return JSON.parse(title.replaceAll("&lt;", "<").replaceAll("&amp;", "&")) as Record<string, Measured>;
}

describe.skipIf(browser === undefined)(
  `in a browser (${browser ?? `none of ${browsers.join(", ")} is installed`}),`,
  () => {
    test("the page fits into windows of 390, 768 and 1280 pixels, and no number is broken into several lines; the commands are on the first screen", async () => {
      const found = await measured(widePage());
      for (const width of widths) {
        const { commandsAt, ...fit } = found[width] ?? expect.fail();
        expect(fit, String(width)).toEqual({ beyond: [], broken: [], wider: 0 });
        expect(commandsAt, `the place of the first command at ${width}`).toBeLessThan(400);
      }
    });
  },
);
